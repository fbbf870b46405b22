// Communicators over NCCL between processes, on the emulator; run under mpirun with the name of the part to run.
#include <cuda_runtime_api.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <iostream>
#include <thread>

#include "machine/cuda/nccl_ranks.h"
#include "parallel/communicator_nccl_cuda.h"
#include "parallel/watchdog.h"

namespace shiftron {
namespace {

using conformance::Rank;

void check_conformance(HostCommunicator& world) {
  for (const Order order : kOrders) {
    machine::restart_device({.order = order, .seed = static_cast<uint64_t>(world.rank()), .patience = scaled(60)});
    machine::set_nccl({.seed = 1, .patience = scaled(60)});
    {
      NcclRank rank(world);
      check_nccl(rank);
      conformance::check_groups(rank.tested, world.size());
    }
    CHECK(machine::nccl_communicators() == 0, machine::nccl_communicators(), " communicators are left");
    if (world.rank() == 0) std::cout << kOrderNames[static_cast<int>(order)] << " done" << std::endl;
  }
}

void reduce(NcclRank& rank, int64_t count) {
  Rank own(rank.tested);
  const Tensor tensor = own.put(std::vector<float>(static_cast<size_t>(count), 1.0f));
  own.await(rank.world->all_reduce(own.stream, InOut(tensor), Reduction::sum));
}

void run(const std::string& part, HostCommunicator& world) {
  const bool last = world.rank() == world.size() - 1;
  if (part == "conformance") return check_conformance(world);
  if (part == "abandon") machine::set_nccl({.lost_rank = world.size() - 1, .patience = scaled(60)});
  NcclRank rank(world);
  if (part == "duplicate") return reduce(rank, 5);  // all ranks have one device, if they came so far
  if (part == "misfit") {                           // the error of ranks that disagree names both calls
    reduce(rank, last ? 4 : 5);
  } else if (part == "hang") {  // one rank never comes; the host waits for its stream, and the watchdog says for what
    Watchdog watchdog([&](const Watchdog::Expiry& expiry) {
      std::cerr << "rank " << world.rank() << " in " << expiry.section << " waits for " << expiry.under_way
                << std::endl;
    });
    const Watchdog::Inquiry inquiry(watchdog, [&] { return rank.world->under_way(); });
    reduce(rank, 5);
    const Watchdog::Section section = watchdog.enter("step 2", {scaled(last ? 60 : 4)});
    if (last) std::this_thread::sleep_for(std::chrono::duration<double>(scaled(60)));
    Rank own(rank.tested);
    const Tensor tensor = own.blank<float>(5);
    rank.world->all_reduce(own.stream, InOut(tensor), Reduction::sum).wait(own.stream);
    own.finish();
  } else if (part == "idle") {  // a host that waits in MPI lets its device continue, for which others wait
    Rank own(rank.tested);
    const Tensor tensor = own.put(std::vector<float>{1});
    rank.world->all_reduce(own.stream, InOut(tensor), Reduction::sum).wait(own.stream);
    if (!last) world.barrier();
    CHECK(own.read_in_stream<float>(tensor)[0] == static_cast<float>(world.size()), "the sum of idle ranks");
    if (last) world.barrier();
  } else if (part == "abandon") {  // what waits for a rank that never comes is given up by all
    Rank own(rank.tested);
    const Tensor tensor = own.blank<float>(5);
    const auto more = rank.split(conformance::all_ranks(world), "more");
    more->all_reduce(own.stream, InOut(tensor), Reduction::sum).wait(own.stream);
    rank.world->all_reduce(own.stream, InOut(tensor), Reduction::sum).wait(own.stream);
    give_up_together([&] {
      for (Communicator* group : {more.get(), rank.world.get()}) group->give_up();
    });
    for (Communicator* group : {more.get(), rank.world.get()}) group->abandon();
    own.finish();
  } else if (part == "kill") {  // a peer's end reaches those that wait for an operation
    if (last) kill(getpid(), SIGKILL);
    for (;;) reduce(rank, 1000);
  } else {
    throw_bad_input("no part named ", part);
  }
}

}  // namespace
}  // namespace shiftron

int main(int, char** argv) {
  using namespace shiftron;
  const std::string part = argv[1];
  MpiSession session;
  if (part != "duplicate") cudaSetDevice(session.local_rank());
  try {
    run(part, *session.world());
  } catch (const Error& error) {
    std::cerr << "rank " << session.rank() << ": " << error.what() << std::endl;
    session.abort(static_cast<int>(error.code()));
  }
  if (session.rank() == 0) std::cout << part << ": no fault among " << session.ranks() << " ranks" << std::endl;
  return 0;
}

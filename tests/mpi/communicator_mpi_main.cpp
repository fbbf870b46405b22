// The conformance suite over MPI, and ranks that fail on purpose; run under mpirun with the name of the part to run.
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <thread>

#include "kernels/processors.h"
#include "machine/scheduler.h"
#include "parallel/communicator_traffic.h"
#include "parallel/launcher.h"
#include "parallel/watchdog.h"
#include "time_scale.h"

namespace shiftron {
namespace {

using conformance::Rank;
using conformance::tensor_of;

void reduce_for_ever(HostCommunicator& world) {
  Rank rank;
  std::vector<float> values(1000, 1.0f);
  for (;;) world.all_reduce(rank.stream, InOut(tensor_of(values)), Reduction::sum).wait(rank.stream);
}

// A helper thread of each rank works on a group of its own while the main thread works on the world.
void check_helper_threads(HostCommunicator& world) {
  const std::unique_ptr<HostCommunicator> group = world.split(conformance::all_ranks(world), "helper");
  std::exception_ptr failure;
  const auto work = [](HostCommunicator& own, int64_t times) {
    Rank rank;
    for (int64_t i = 0; i < times; ++i) {
      const int64_t count = i % 2 == 0 ? 3 : 20000;
      std::vector<float> values = conformance::numbers<float>(own.rank(), count);
      own.all_reduce(rank.stream, InOut(tensor_of(values)), Reduction::sum).wait(rank.stream);
      conformance::expect_same(values, conformance::reduced<float>(own.size(), 0, count, Reduction::sum), own.name());
    }
  };
  std::thread helper([&] {
    try {
      work(*group, 100);
    } catch (...) {
      failure = std::current_exception();
    }
  });
  work(world, 150);
  helper.join();
  if (failure != nullptr) std::rethrow_exception(failure);
}

// The processor that rank `rank` is bound to, as a launcher would have done.
int processor_of(int rank) {
  static const std::vector<int> all = processors_of_host();
  return all[static_cast<size_t>(rank) % all.size()];
}

void bind_this_rank() {
  CHECK(launched_tasks().count > 1, "run under mpirun");
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(processor_of(launched_tasks().rank), &one);
  CHECK(sched_setaffinity(0, sizeof one, &one) == 0, "bound");
}

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

void run(const std::string& part, MpiSession& session, HostCommunicator& world) {
  const bool last = world.rank() == world.size() - 1;
  if (part == "conformance" || part == "pieces") {
    CHECK(session.rank() == world.rank() && session.ranks() == world.size(), "rank of the session");
    CHECK(session.local_processors().size() == static_cast<size_t>(world.size()), "all ranks share this host");
    CHECK(session.local_rank() == world.rank(), "local rank");
    CHECK(session.local_processors()[static_cast<size_t>(world.rank())] == processors_of_process(), "own processors");
    if (!environment("OMPI_COMM_WORLD_SIZE").empty()) {
      CHECK(!environment("OMPI_MCA_mpi_yield_when_idle").empty(), "ranks yield when idle");
      CHECK(environment("OMPI_MCA_pml") == "ob1", "ranks of one host look for no network");
    }
    conformance::check_host(world, part == "pieces" ? 2 : world.size());
    check_helper_threads(world);
  } else if (part == "alone") {  // no launcher started it
    CHECK(world.size() == 1 && environment("OMPI_MCA_pml").empty(), "does not prepare MPI");
    CHECK(session.local_processors() == std::vector<std::vector<int>>{processors_of_process()}, "own processors");
  } else if (part == "bound") {  // each rank knows what the others may use
    for (int rank = 0; rank < world.size(); ++rank) {
      CHECK(session.local_processors()[static_cast<size_t>(rank)] == std::vector<int>{processor_of(rank)}, "rank ",
            rank);
    }
  } else if (part == "late") {  // queues in each process
    for (const Order order : {Order::eager, Order::late}) {
      Machine machine({.order = order, .patience = scaled(60)});
      const std::unique_ptr<Queue> queue = machine.make_queue("rank");
      const std::unique_ptr<HostCommunicator> group = world.split(conformance::all_ranks(world), "late");
      conformance::check_host_on_queues(*group, *queue, world.size());
    }
  } else if (part == "kill") {  // the job ends
    if (last) kill(getpid(), SIGKILL);
    reduce_for_ever(world);
  } else if (part == "throw") {  // the job ends with the code of the rank that threw
    if (last) throw_bad_input("a fault of one rank");
    reduce_for_ever(world);
  } else if (part == "unwind") {  // no destructor may wait for peers
    Rank rank;
    std::vector<float> values(1000000);
    const Work receive = world.recv(rank.stream, tensor_of(values), (world.rank() + 1) % world.size());
    world.send(rank.stream, tensor_of(values), (world.rank() + 2) % world.size()).wait(rank.stream);
    if (last) throw_bad_input("a fault of one rank");
    reduce_for_ever(world);
  } else if (part == "skip") {  // one rank skips a collective, the watchdog ends the job
    Watchdog watchdog([&](const Watchdog::Expiry& expiry) {
      std::cerr << "rank " << world.rank() << " hangs in section " << expiry.section << " after " << expiry.seconds
                << " s\n";
    });
    for (int step = 1; step <= 3; ++step) {
      Watchdog::Section section = watchdog.enter("step " + std::to_string(step) + ": reduce gradients", {scaled(2)});
      if (step == 3 && last) {
        section.leave();
        std::this_thread::sleep_for(std::chrono::duration<double>(scaled(60)));
      }
      Rank rank;
      std::vector<float> values(1000, 1.0f);
      world.all_reduce(rank.stream, InOut(tensor_of(values)), Reduction::sum).wait(rank.stream);
    }
  } else if (part == "files") {  // while one rank waits for files, the others' deadlines do not pass
    static Watchdog watchdog([](const Watchdog::Expiry& expiry) {  // outlives the session, which listens for it
      std::cerr << "no file wait of another rank was heard of in section " << expiry.section << "\n";
    });
    session.listen_for_failures([](int, int) {}, watchdog);
    const Watchdog::Section section = watchdog.enter("a barrier", {scaled(2)});
    if (last) {
      const Watchdog::Section wait = watchdog.enter_file_wait("reading", {scaled(60)});
      std::this_thread::sleep_for(std::chrono::duration<double>(scaled(4)));
    }
    world.barrier();
  } else {
    throw_bad_input("no part named ", part);
  }
}

}  // namespace
}  // namespace shiftron

int main(int argc, char** argv) {
  using namespace shiftron;
  const std::string part = argc > 1 ? argv[1] : "conformance";
  try {
    if (part == "bound") bind_this_rank();
    MpiSession session(part == "pieces" ? 10007 : MpiSession::kPieceBytes);
    if (part == "unwind") {
      run(part, session, *session.world());
      return 0;
    }
    try {
      run(part, session, *session.world());
    } catch (const Error& error) {
      std::cerr << "rank " << session.rank() << ": " << error.what() << std::endl;
      session.abort(static_cast<int>(error.code()));
    }
    if (session.rank() == 0) std::cout << part << ": no fault among " << session.ranks() << " ranks" << std::endl;
    return 0;
  } catch (const Error& error) {
    std::cerr << error.what() << std::endl;
    return static_cast<int>(error.code());
  }
}

// Threads per rank, and one voice for all ranks.
#include "cli/process.h"

#include <algorithm>
#include <csignal>

#include "kernels/kernels.h"
#include "parallel/agree.h"

namespace shiftron::cli {

int thread_count(int wanted, int local_ranks) {
  if (wanted > 0) return wanted;
  return std::max(1, processor_count() / std::max(1, local_ranks));
}

HostShare share_of(const MpiSession& session, int threads) {
  return {.threads = thread_count(threads, session.local_ranks()), .local_rank = session.local_rank()};
}

void outlive_failing_writes() {
  for (const int number : {SIGPIPE, SIGXFSZ}) std::signal(number, SIG_IGN);
}

void agree(ControlPlane& world, const std::function<void()>& check) {
  std::string code = "0";
  std::string message;
  if (world.rank() == 0) {
    try {
      check();
    } catch (const std::exception& exception) {
      const Error error = as_error(exception);
      code = std::to_string(static_cast<int>(error.code()));
      message = error.what();
    }
  }
  code = world.broadcast_text(code, 0);
  if (code == "0") return;
  const auto exit_code = static_cast<ExitCode>(std::stoi(code));
  if (world.rank() != 0) leave_to_another(exit_code);
  throw Error(message, exit_code);
}

}  // namespace shiftron::cli

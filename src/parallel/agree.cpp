// Gathers faults by the control plane.
#include "parallel/agree.h"

#include <unistd.h>

#include <sstream>

namespace shiftron {

void leave_to_another(ExitCode code) {
  constexpr useconds_t kMoment = 300'000;  // microseconds
  usleep(kMoment);
  throw Error("", code);
}

void all_agree(ControlPlane& world, const std::function<void()>& work) {
  std::string fault;  // code, line break, message
  try {
    work();
  } catch (const std::exception& exception) {
    const Error error = as_error(exception);
    fault = std::to_string(static_cast<int>(error.code())) + "\n" + error.what();
  }
  const std::vector<std::string> faults = world.gather_text(fault, 0);
  std::string code, message;
  size_t failed = 0;
  for (size_t rank = 0; rank < faults.size(); ++rank) {
    if (faults[rank].empty() || failed++ > 0) continue;
    const size_t end = faults[rank].find('\n');
    code = faults[rank].substr(0, end);
    message = (rank == 0 ? "" : "rank " + std::to_string(rank) + ": ") + faults[rank].substr(end + 1);
  }
  if (failed > 0 && failed < faults.size()) {
    message += " (on " + std::to_string(failed) + " of " + std::to_string(faults.size()) + " ranks)";
  }
  code = world.broadcast_text(code, 0);
  if (code.empty()) return;
  const auto exit_code = static_cast<ExitCode>(std::stoi(code));
  if (world.rank() != 0) leave_to_another(exit_code);
  throw Error(message, exit_code);
}

void told_by_first(const ControlPlane& world, const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    if (world.rank() == 0 || error.code() == ExitCode::hang) throw;  // a lost peer is not seen alike
    leave_to_another(error.code());
  }
}

std::string joined_texts(ControlPlane& world, const std::string& own) {
  std::string all;
  for (const std::string& part : world.gather_text(own, 0)) all += part;
  return world.broadcast_text(all, 0);
}

RanksAlike ranks_alike(ControlPlane& world, const std::string& line) {
  RanksAlike alike{.count = 0};
  std::istringstream lines(joined_texts(world, line + "\n"));
  std::string other;
  for (int rank = 0; std::getline(lines, other); ++rank) {
    if (other != line) continue;
    if (rank < world.rank()) ++alike.place;
    ++alike.count;
  }
  return alike;
}

}  // namespace shiftron

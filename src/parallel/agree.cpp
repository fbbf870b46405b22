// Gathers faults by the control plane.
#include "parallel/agree.h"

#include <unistd.h>

#include <set>
#include <sstream>

#include "core/hash.h"
#include "core/host.h"
#include "core/system_error.h"

namespace shiftron {

void end_without_report(ExitCode code) {
  constexpr useconds_t kMoment = 300'000;  // microseconds
  usleep(kMoment);
  throw Error("", code);
}

namespace {

// "" if `work` succeeds, otherwise the code of its failure, a line break, `place` and its message.
std::string fault_of(const std::function<void()>& work, const std::string& place = "") {
  try {
    work();
  } catch (const std::exception& exception) {
    const Error error = as_error(exception);
    return std::to_string(static_cast<int>(error.code())) + "\n" + place + error.what();
  }
  return "";
}

// Every rank throws the fault that rank 0 passes, if there is one.
void throw_together(ControlPlane& world, const std::string& fault) {
  const size_t end = fault.find('\n');
  const std::string code = world.broadcast_text(fault.substr(0, end), 0);
  if (code.empty()) return;
  const auto exit_code = static_cast<ExitCode>(std::stoi(code));
  if (world.rank() != 0) end_without_report(exit_code);
  throw Error(fault.substr(end + 1), exit_code);
}

}  // namespace

std::string place_of(int rank) {
  return "rank " + std::to_string(rank) + " on " + host_name();
}

void run_on_all_ranks(ControlPlane& world, const std::function<void()>& work) {
  const std::string place = world.rank() == 0 ? "" : place_of(world.rank()) + ": ";
  const std::vector<std::string> faults = world.gather_text(fault_of(work, place), 0);
  std::string first;
  size_t failed = 0;
  for (const std::string& fault : faults) {
    if (!fault.empty() && failed++ == 0) first = fault;
  }
  if (failed > 0 && failed < faults.size()) {
    first += " (on " + std::to_string(failed) + " of " + std::to_string(faults.size()) + " ranks)";
  }
  throw_together(world, first);
}

void run_on_first_rank(ControlPlane& world, const std::function<void()>& check) {
  throw_together(world, world.rank() == 0 ? fault_of(check) : "");
}

void report_on_first_rank(const ControlPlane& world, const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    const bool own = error.code() == ExitCode::crash || error.code() == ExitCode::hang;  // a failing GPU, a lost peer
    if (world.rank() == 0 || own) throw;
    end_without_report(error.code());
  }
}

std::string joined_texts(ControlPlane& world, const std::string& own) {
  std::string all;
  for (const std::string& part : world.gather_text(own, 0)) all += part;
  return world.broadcast_text(all, 0);
}

std::vector<std::string> different_texts(ControlPlane& world, const std::string& own) {
  std::set<std::string> hashes;
  std::string firsts;  // the first rank of each different text, one per line
  int rank = 0;
  for (const std::string& hash : world.gather_text(to_hex(xxh3_128(own)), 0)) {
    if (hashes.insert(hash).second) firsts += std::to_string(rank) + "\n";
    ++rank;
  }
  std::vector<std::string> texts;
  std::istringstream lines(world.broadcast_text(firsts, 0));
  for (std::string first; std::getline(lines, first);) texts.push_back(world.broadcast_text(own, std::stoi(first)));
  return texts;
}

MatchingRanks find_matching_ranks(ControlPlane& world, const std::string& line) {
  MatchingRanks matching{.count = 0};
  std::istringstream lines(joined_texts(world, line + "\n"));
  std::string other;
  for (int rank = 0; std::getline(lines, other); ++rank) {
    if (other != line) continue;
    if (rank < world.rank()) ++matching.place;
    ++matching.count;
  }
  return matching;
}

}  // namespace shiftron

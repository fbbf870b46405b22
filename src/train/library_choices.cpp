// Rank 0 collects the choices, all ranks adopt them.
#include "train/library_choices.h"

#include <fmt/format.h>

#include "kernels/foreign_choices.h"

namespace shiftron {
namespace {

// Why the choices were not adopted (for another device or library version); "" if they were.
std::string adopt(Libraries& libraries, const std::string& choices, const std::string& source) {
  try {
    libraries.adopt(choices, source);
    return "";
  } catch (const ForeignChoices& error) {
    return error.what();
  }
}

}  // namespace

std::string agree_on_choices(ControlPlane& world, Libraries& libraries) {
  const std::vector<std::string> of_ranks = world.gather_text(libraries.choices(), 0);
  const std::string agreed = world.broadcast_text(world.rank() == 0 ? joined_choices(of_ranks) : std::string(), 0);
  adopt(libraries, agreed, "rank 0's algorithms");  // ranks on another device keep their own
  return agreed;
}

std::string choose_algorithms(const RunConfig& config, Trainer& trainer, const BatchReader& read, ControlPlane& world,
                              const std::string& kept, const std::string& source, Log& log) {
  Libraries& libraries = trainer.engine().libraries();
  if (libraries.choices().empty()) return {};
  const std::string fault = kept.empty() ? "" : adopt(libraries, kept, source);
  if (!fault.empty() && world.rank() == 0) {
    log.warning(fmt::format("{}; algorithms are selected again, so results may differ in the last bits", fault));
  }
  libraries.time_candidates(config.train.deterministic == Deterministic::off);
  trainer.warm_up(read);
  libraries.time_candidates(false);
  for (const std::string& refusal : libraries.refusals()) {
    log.warning(fmt::format("using Shiftron's own slower kernels instead: {}", refusal));
  }
  for (const std::string& one : libraries.untimed()) log.info("not timed: " + one);
  return agree_on_choices(world, libraries);
}

}  // namespace shiftron

// Rank 0 collects, all adopt.
#include "train/library_choices.h"

#include <fmt/format.h>

namespace shiftron {

std::string agree_on_choices(ControlPlane& world, Libraries& libraries) {
  const std::string own = libraries.choices();
  std::vector<std::string> of_ranks = world.gather_text(own, 0);
  for (auto choices = of_ranks.rbegin(); choices != of_ranks.rend(); ++choices) {  // the lowest rank's win: they are the last
    try {
      libraries.adopt(*choices, "a rank's algorithms");
    } catch (const Error& error) {
      if (error.code() != ExitCode::bad_input) throw;  // of another device
    }
  }
  const std::string agreed = world.broadcast_text(libraries.choices(), 0);
  try {
    libraries.adopt(agreed, "rank 0's algorithms");
  } catch (const Error& error) {
    if (error.code() != ExitCode::bad_input) throw;
  }
  return agreed;
}

std::string choose_algorithms(const RunConfig& config, Trainer& trainer, const BatchReader& read, ControlPlane& world,
                              const std::string& kept, const std::string& source, Log& log) {
  Libraries& libraries = trainer.engine().libraries();
  if (libraries.choices().empty()) return {};
  if (!kept.empty()) {
    try {
      libraries.adopt(kept, source);
    } catch (const Error& error) {
      if (error.code() != ExitCode::bad_input) throw;
      if (world.rank() == 0) log.warning(fmt::format("{}; they are chosen anew, so bits may differ", error.what()));
    }
  }
  libraries.time_candidates(config.train.deterministic == Deterministic::off);
  trainer.warm_up(read);
  libraries.time_candidates(false);
  for (const std::string& refusal : libraries.refusals()) {
    log.warning(fmt::format("served by slower kernels of our own: {}", refusal));
  }
  return agree_on_choices(world, libraries);
}

}  // namespace shiftron

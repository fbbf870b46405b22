// The deadline of a start.
#include "train/run_environment.h"

namespace shiftron {

Deadline setup_deadline(const RunConfig& config) {
  return {config.fault.setup_deadline, "fault.setup_deadline"};
}

}  // namespace shiftron

// All tests are skipped if no GPU is visible: the host has none, or its driver does not start.
#include "cuda/gpus.h"

namespace shiftron::testing {
namespace {

class OneGpu : public ::testing::Environment {
 public:
  void SetUp() override { NEED_GPUS(1); }
};
const auto* const kOneGpu = ::testing::AddGlobalTestEnvironment(new OneGpu);

}  // namespace
}  // namespace shiftron::testing

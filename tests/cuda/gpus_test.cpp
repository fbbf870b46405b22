// All tests are skipped where no GPU is shown: the program was built where none is, or its driver does not start.
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

#include "interchange/embedded_files.h"

#include <gtest/gtest.h>

#include "core/file.h"

namespace shiftron {
namespace {

TEST(EmbeddedFiles, AreTheFilesOfTheSources) {
  const std::string path = std::string(SHIFTRON_SOURCE_DIR) + "/src/interchange/modeling_kv_shift_llama.py";
  const std::string file = read_file(path, uint64_t{1} << 20);
  ASSERT_GT(file.size(), 10000u);
  EXPECT_EQ(modeling_kv_shift_llama(), file);
}

}  // namespace
}  // namespace shiftron

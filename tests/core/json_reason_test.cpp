// Messages of the JSON library, and of others.
#include "core/json_reason.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

namespace shiftron {
namespace {

TEST(JsonReason, BeginsBehindTheNameOfTheException) {
  try {
    [[maybe_unused]] const auto parsed = nlohmann::json::parse("{\"a\": ] }");
    FAIL() << "is no JSON";
  } catch (const nlohmann::json::exception& error) {
    EXPECT_EQ(json_reason(error).rfind("parse error at line 1, column 7", 0), 0u) << json_reason(error);
  }
  EXPECT_EQ(json_reason(std::runtime_error("[json] of [x] y")), "of [x] y");
  EXPECT_EQ(json_reason(std::runtime_error("without brackets")), "without brackets");
}

}  // namespace
}  // namespace shiftron

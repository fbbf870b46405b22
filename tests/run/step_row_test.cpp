// Rows of steps are read as a full parser reads them, both those of our own writer and others.
#include "run/step_row.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace shiftron {
namespace {

std::optional<double> number_at(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return std::nullopt;
  return found->is_number() ? found->get<double>() : std::nan("");
}

void expect_alike(const std::optional<double>& ours, const std::optional<double>& theirs, const std::string& line) {
  ASSERT_EQ(ours.has_value(), theirs.has_value()) << line;
  if (!ours) return;
  EXPECT_TRUE(*ours == *theirs || (std::isnan(*ours) && std::isnan(*theirs))) << line;
}

void expect_as_parsed(const std::string& line) {
  const nlohmann::json object = nlohmann::json::parse(line);
  const std::optional<StepRow> row = read_step_row(line);
  ASSERT_TRUE(row) << line;
  expect_alike(row->step, number_at(object, "step"), line);
  expect_alike(row->tokens, number_at(object, "tokens"), line);
  expect_alike(row->loss, number_at(object, "loss"), line);
  expect_alike(row->step_seconds, number_at(object, "step_seconds"), line);
  expect_alike(row->accuracy, number_at(object, "accuracy"), line);
  expect_alike(row->validation_loss, number_at(object, "validation_loss"), line);
  expect_alike(row->validation_accuracy, number_at(object, "validation_accuracy"), line);
}

TEST(StepRow, IsAsAWholeParserReadsIt) {
  for (
      const char* line :
      {R"({"step":7,"tokens":896,"loss":5.959882499664787,"step_seconds":3.0e-2,"shift":{"0":[1]}})",
       R"({"step":7,"tokens":896,"loss":5.5,"accuracy":0.25,"learning_rate":1,"step_seconds":1,"memory_bytes":{"a":1}})",
       R"({"step":40,"validation_loss":1.25,"validation_accuracy":0.5,"validation_sources":{"a":{"accuracy":0.125}}})",
       R"({"step":7,"tokens":896,"loss":null,"step_seconds":1})", R"({"step":40,"validation_loss":1.25})",
       R"({"step":40,"validation_loss":null})",
       R"({"step":40,"benchmarks":{"task":{"loss":3,"step":1,"a]}\\\"":[{"step_seconds":9}]}},"loss":2})",
       R"( { "loss" : -1e-3 , "step_seconds" : "5" , "text" : "}, \"step\":9" , "step" : 3 } )",
       R"({"step":[1,2],"tokens":{"step":5},"loss":true,"step_seconds":[],"step2":4})", R"({})", R"({ })"}) {
    expect_as_parsed(line);
  }
}

TEST(StepRow, LinesThatWereCutAreNone) {
  const std::string whole = R"({"step":7,"text":"a}","tokens":8,"loss":1.5,"more":{"a":[1]}})";
  for (size_t end = 0; end < whole.size(); ++end) {
    const std::string cut = whole.substr(0, end);
    EXPECT_EQ(read_step_row(cut).has_value(), nlohmann::json::accept(cut)) << cut;
  }
  for (const char* line : {"", "7", "[1]", "null", "}", "{", R"({"step"})", R"({"step":})", R"({step:1})",
                           R"({"step":[1})", R"({"step":1]})", R"({"a\"})", R"({"step":1e400})"}) {
    EXPECT_FALSE(read_step_row(line)) << line;
  }
}

}  // namespace
}  // namespace shiftron

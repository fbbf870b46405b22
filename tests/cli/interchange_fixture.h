// A step of a small model, and the commands that write and read it in other programs' formats.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "checkpoint/reader.h"
#include "checkpoint/step_writer.h"
#include "cli/dispatch.h"
#include "config/config_text.h"
#include "config/run_config.h"
#include "interchange/hugging_face_testing.h"
#include "run/saved_state.h"

namespace shiftron::cli {

using namespace shiftron::testing;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Its tensors in float64, of values that float32 does not have.
class WideSource : public TensorSource {
 public:
  explicit WideSource(MemorySource& narrow) : narrow_(narrow), tensors_(narrow.tensors()) {
    for (ManifestTensor& tensor : tensors_) tensor.dtype = DType::float64;
  }
  const std::vector<ManifestTensor>& tensors() const override { return tensors_; }
  int find(TensorGroup group, const std::string& name) const override { return narrow_.find(group, name); }
  void read(int index, const Box& box, void* to) override {
    std::vector<float> values(static_cast<size_t>(box.extent.count()));
    narrow_.read(index, box, values.data());
    for (size_t i = 0; i < values.size(); ++i) static_cast<double*>(to)[i] = values[i] * (1 + 0x1p-40);
  }

 private:
  MemorySource& narrow_;
  std::vector<ManifestTensor> tensors_;
};

class Interchange : public ::testing::Test {
 protected:
  // Writes a step of `model` as a run leaves it, with `tokenizer_`.
  std::string step_of(const ModelConfig& model, Precision precision = Precision::fp32, std::optional<DType> type = {},
                      bool moments = false) {
    RunConfig config;
    config.model = model;
    config.train.steps = 9;
    config.train.global_batch = 4;
    config.train.sequence_length = 32;
    config.train.precision = precision;
    config.data.document_reset = false;
    config.optimizer.learning_rate = 0.1;
    source_.emplace(model);
    SavedState state;
    state.configuration = config;
    state.trainer.applied_updates = 9;
    for (size_t i = 0, count = source_->tensors().size(); moments && i < count; ++i) {
      for (const TensorGroup group : {TensorGroup::first_moment, TensorGroup::second_moment}) {
        const ManifestTensor tensor = source_->tensors()[i];
        source_->add(tensor.name, tensor.shape, source_->values(tensor.name), group);
      }
    }
    WideSource wide(*source_);
    TensorSource& source = precision == Precision::fp64 ? static_cast<TensorSource&>(wide) : *source_;
    std::vector<ManifestTensor> tensors = source.tensors();
    for (ManifestTensor& tensor : tensors) {
      if (type && tensor.group == TensorGroup::parameters) tensor.dtype = *type;
    }
    return write_step(source,
                      {.content = {.step = 9,
                                   .configuration = to_config_text(config),
                                   .state_json = to_json(state),
                                   .tokenizer = {{"tokenizer.model", tokenizer_}},
                                   .data_fingerprint = "0123",
                                   .code_version = "test\n1\n"},
                       .files = one_file(tensors)},
                      directory_.path() + "/run/checkpoints")
        .directory;
  }
  static std::pair<int, std::string> output_of(const std::vector<Command>& commands,
                                               const std::vector<std::string>& words) {
    std::ostringstream text;
    struct Redirected {
      std::streambuf* before;
      ~Redirected() { std::cout.rdbuf(before); }
    } const redirected{std::cout.rdbuf(text.rdbuf())};
    const int code = dispatch(commands, words);
    return {code, text.str()};
  }
  json run(const std::string& verb, std::vector<std::string> words) {
    words.insert(words.begin(), {"checkpoint", verb});
    if (std::ranges::find(words, "--format") == words.end()) words.insert(words.end(), {"--format", "hf"});
    words.push_back("--json");
    const auto [code, text] = output_of(interchange_commands(), words);
    EXPECT_EQ(code, 0);
    return json::parse(text);
  }
  json diff(const std::string& first, const std::string& second, std::vector<std::string> words = {}) {
    words.insert(words.begin(), {"checkpoint", "diff", first, second, "--json"});
    const auto [code, text] = output_of(checkpoint_commands(), words);
    json answer = json::parse(text);
    EXPECT_EQ(answer["equal"], code == 0);
    return answer;
  }
  std::string tokenizer_;  // bytes of a model
  TemporaryDirectory directory_;
  std::optional<MemorySource> source_;
  const std::string out_ = directory_.path() + "/out", imported_ = directory_.path() + "/imported";
};

}  // namespace shiftron::cli

// A saved step of a small model, and what is asked of it.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "checkpoint/save.h"
#include "data/fixture.h"
#include "evaluate/checkpoint_model.h"
#include "evaluate/tasks/request.h"
#include "scratch.h"
#include "train/small_model.h"

namespace shiftron::testing {

inline constexpr int64_t kLength = 24;

inline RunConfig model_config(Precision precision = Precision::fp64) {
  RunConfig config = small_config({.query = 1, .key = 2, .value = 1}, precision);
  config.model.vocab = 330;
  config.train.sequence_length = kLength;
  return config;
}

inline CheckpointModel saved_model(const Scratch& scratch, const RunConfig& config = model_config(),
                                   const std::function<void(ParameterSet&)>& fill = set_weights, int64_t step = 1,
                                   const std::string& state = R"({"configuration":{},"trainer":{}})") {
  const auto world = make_single_world();
  RankTrainer rank(config, *world);
  fill(rank.trainer->engine().parameters());
  Log log(0);
  CheckpointContent content;
  content.step = step;
  content.state_json = state;
  content.tokenizer = stored_example();
  const SaveResult saved = save_checkpoint(scratch / "checkpoints", content, rank.trainer->engine().parameters(),
                                           *world, {.keep = 1, .keep_every = 0}, log);
  EXPECT_TRUE(saved.saved) << saved.reason;
  return {.directory = saved.directory, .content = content, .config = config};
}

inline std::vector<Request> example_requests() {
  std::vector<Request> requests;
  for (const char* context :
       {"the key", "the value and", "", "a longer context, of which the first part falls off in front"}) {
    for (const char* continuation : {" the", " and the value", " x"}) {
      requests.push_back({.context = context, .continuation = continuation});
    }
  }
  requests.push_back({.kind = RequestKind::rolling,
                      .context = "the key and the value, and once more the key and the value, and the rest"});
  requests.push_back({.kind = RequestKind::rolling, .context = ""});
  return requests;
}

inline std::vector<Request> example_prompts() {
  std::vector<Request> requests;
  for (const char* context : {"the key", "and", "", "the value and the key", "x"}) {
    requests.push_back({.kind = RequestKind::generate, .context = context, .generation = {.most_tokens = 6}});
  }
  return requests;
}

}  // namespace shiftron::testing

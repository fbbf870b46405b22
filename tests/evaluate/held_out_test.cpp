// Evaluation of a checkpoint on datasets, sound ones and such in which there is nothing to divide by.
#include "evaluate/held_out.h"

#include <gtest/gtest.h>

#include <cmath>

#include "data/dataset.h"
#include "data/fixture.h"
#include "evaluate/saved_model.h"
#include "expect_error.h"

namespace shiftron::testing {
namespace {

constexpr int64_t kWindow = 8;

// A dataset of these documents, of which an empty one is its end alone, as no text makes it.
std::string dataset_of(const Scratch& scratch, const std::string& name, const std::vector<std::string>& documents) {
  const Tokenizer tokenizer(example_model(), "example");
  const std::string directory = scratch / name;
  std::filesystem::create_directory(directory);
  std::vector<std::vector<int32_t>> rows;
  DatasetDescription description{
      {tokenizer.vocab_size(), tokenizer.end_of_document(), tokenizer.hash(), "test"}, 0, {}};
  int64_t tokens = 0;
  for (const std::string& document : documents) {
    rows.push_back(tokenizer.encode(document));
    rows.back().push_back(tokenizer.end_of_document());
    tokens += static_cast<int64_t>(rows.back().size());
    description.text_bytes += static_cast<int64_t>(document.size());
  }
  ShardWriter writer(directory + "/shard-00000.h5", description.header, tokens, static_cast<int64_t>(rows.size()));
  for (size_t i = 0; i < rows.size(); ++i) {
    writer.append(rows[i].data(), static_cast<int64_t>(rows[i].size()), static_cast<int64_t>(documents[i].size()));
  }
  description.shards = {writer.finish()};
  scratch.write(name + "/tokenizer.model", example_model());
  scratch.write(name + "/dataset.json", description.to_text());
  return directory;
}

// A saved step of a model with initial weights.
CheckpointModel initial_model(const Scratch& scratch) {
  RunConfig config = small_config({}, Precision::fp64);
  config.model.vocab = 330;
  config.train.sequence_length = kWindow;
  return saved_model(scratch, config, [](ParameterSet&) {});
}

TEST(HeldOut, MeansAreOfWhatIsCounted) {
  const Scratch scratch;
  const CheckpointModel model = initial_model(scratch);
  const std::vector<std::string> documents(5, "the key and the value");
  const std::string dataset = dataset_of(scratch, "sound", documents);
  const auto world = make_single_world();
  const HeldOutResult result = evaluate_held_out(model, dataset, *world, {});
  EXPECT_NEAR(result.perplexity, std::exp(result.loss), 1e-9);
  EXPECT_GT(result.loss, std::log(330.0) / 2);
  EXPECT_NEAR(result.bits_per_byte,
              result.loss * static_cast<double>(result.targets) / (std::log(2.0) * static_cast<double>(result.bytes)),
              1e-9);
}

TEST(HeldOut, ADatasetWithoutTextIsRefused) {
  const Scratch scratch;
  const CheckpointModel model = initial_model(scratch);
  const std::string ends = dataset_of(scratch, "ends", std::vector<std::string>(2 * kWindow + 1));
  const std::string single = dataset_of(scratch, "single", std::vector<std::string>(kWindow + 1, "a"));
  for (const int ranks : {1, 2}) {
    run_thread_ranks(ranks, [&](HostCommunicator& world) {
      const bool tells = world.rank() == 0;
      EXPECT_ERROR(evaluate_held_out(model, ends, world, {}), ExitCode::bad_input,
                   tells ? ends + " holds nothing to predict: its 2 windows have no counted target" : "");
      EXPECT_ERROR(evaluate_held_out(model, single, world, {}), ExitCode::bad_input,
                   tells ? single + " holds no text to predict: the 8 counted targets of its 2 windows" : "");
    });
  }
}

}  // namespace
}  // namespace shiftron::testing

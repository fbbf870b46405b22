// Prompts of ids: read from lines, and continued like a text with the same ids, each as if it were alone.
#include "evaluate/continue_ids.h"

#include <gtest/gtest.h>

#include "evaluate/saved_model.h"
#include "expect_error.h"

namespace shiftron::testing {
namespace {

constexpr TokenVocabulary kVocabulary{.size = 330, .end_of_document = 7, .tokenizer_model = ""};

std::vector<Continuation> continuations(const CheckpointModel& model, const std::vector<std::vector<int32_t>>& prompts,
                                        const GenerateOptions& options, int ranks = 1,
                                        const TokenVocabulary& vocabulary = kVocabulary) {
  std::vector<std::vector<Continuation>> of_ranks(static_cast<size_t>(ranks));
  run_thread_ranks(ranks, [&](HostCommunicator& world) {
    const auto take = [&](const Continuation& made) { of_ranks[static_cast<size_t>(world.rank())].push_back(made); };
    continue_prompts(model, prompts, vocabulary, options, world, {}, take);
  });
  for (const auto& own : of_ranks) {
    EXPECT_EQ(own.size(), prompts.size());
    for (size_t i = 0; i < own.size(); ++i) EXPECT_EQ(own[i].ids, of_ranks[0][i].ids) << "prompt " << i;
  }
  return of_ranks[0];
}

std::vector<std::vector<int32_t>> several_prompts() {
  return {{20, 21, 22}, {300}, {20, 21, 22, 23, 24, 25, 26, 27, 28}, {20, 21}};
}

// With documents cut apart and without, which puts an end token before each prompt.
TEST(ContinueIds, IdsOfATextAreContinuedAsTheText) {
  for (const bool document_reset : {true, false}) {
    const Scratch scratch;
    RunConfig config = model_config();
    config.data.document_reset = document_reset;
    const CheckpointModel model = saved_model(scratch, config);
    const GenerateOptions options{.tokens = 20, .temperature = 1, .seed = 3};
    const TokenVocabulary vocabulary = vocabulary_of_ids(model, std::nullopt);
    const auto expected = generate(model, "the key and", options, *make_single_world(), {}, {});
    const auto made = continuations(model, {tokenizer_of(model).encode("the key and")}, options, 1, vocabulary);
    EXPECT_EQ(made.at(0).ids, expected) << "document_reset " << document_reset;
  }
}

TEST(ContinueIds, EachPromptIsAsIfAloneOnOneRankAndOnTwo) {
  const Scratch scratch;
  const CheckpointModel model = saved_model(scratch);
  for (const double temperature : {0.0, 1.0}) {
    const GenerateOptions options{.tokens = 12, .temperature = temperature, .seed = 5};
    const auto together = continuations(model, several_prompts(), options);
    const auto on_two = continuations(model, several_prompts(), options, 2);
    for (size_t i = 0; i < together.size(); ++i) {
      const auto alone = continuations(model, {several_prompts()[i]}, options);
      EXPECT_EQ(together[i].ids, alone.at(0).ids) << "prompt " << i << ", temperature " << temperature;
      EXPECT_EQ(together[i].ids, on_two[i].ids) << "prompt " << i << ", temperature " << temperature;
    }
    EXPECT_NE(together[0].ids, together[1].ids) << "prompts are too similar to compare";
  }
}

TEST(ContinueIds, OnlyTheEndTokenEnds) {
  const Scratch scratch;
  const CheckpointModel model = saved_model(scratch);
  const GenerateOptions options{.tokens = 12, .temperature = 1, .seed = 5};
  const auto whole = continuations(model, several_prompts(), options).at(0);
  ASSERT_EQ(whole.ids.size(), 12);
  EXPECT_FALSE(whole.ended);
  TokenVocabulary ends_early = kVocabulary;
  ends_early.end_of_document = whole.ids[6];
  const auto cut = continuations(model, {several_prompts()[0]}, options, 1, ends_early).at(0);
  EXPECT_EQ(cut.ids, std::vector<int32_t>(whole.ids.begin(), std::ranges::find(whole.ids, whole.ids[6])));
  EXPECT_TRUE(cut.ended);
}

TEST(ContinueIds, WithoutATokenizerTheEndTokenMustBeGiven) {
  const Scratch scratch;
  CheckpointModel model = saved_model(scratch);
  EXPECT_EQ(vocabulary_of_ids(model, std::nullopt).end_of_document, tokenizer_of(model).end_of_document());
  EXPECT_ERROR(vocabulary_of_ids(model, 7), ExitCode::bad_input,
               "--end-of-document 7 is not needed, because the tokenizer of");
  model.content.tokenizer_model.clear();
  const TokenVocabulary given = vocabulary_of_ids(model, 329);
  EXPECT_EQ(given.size, 330);
  EXPECT_EQ(given.end_of_document, 329);
  EXPECT_ERROR(vocabulary_of_ids(model, 330), ExitCode::bad_input, "--end-of-document 330 is not in the vocabulary of");
  EXPECT_ERROR(vocabulary_of_ids(model, std::nullopt), ExitCode::bad_input, "give --end-of-document I");
}

TEST(ContinueIds, PromptsAreReadAndFaultsNameTheirLine) {
  const Scratch scratch;
  const auto read = [&](const std::string& text) {
    return read_prompts(scratch.write("prompts.jsonl", text), kVocabulary);
  };
  const auto prompts = read("{\"ids\": [1, 2], \"targets\": [null, 3], \"more\": 0}\n\n{\"ids\": [329]}\n");
  ASSERT_EQ(prompts.size(), 2);
  EXPECT_EQ(prompts[0], (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(prompts[1], (std::vector<int32_t>{329}));
  const std::vector<std::pair<std::string, std::string>> faults = {
      {"{\"ids\": [1, 330]}", "id 330 at position 1 is not within the vocabulary of 330; ids are 0 to 329"},
      {"{\"ids\": [1, 7]}", "id 7 at position 1 is the end-of-document token"},
      {"{\"ids\": []}", "no ids; give at least one"},
      {"[1, 2]", "a JSON array, not an object"},
      {"{\"ids\": [1,", "not JSON"},
      {"{\"text\": \"a\"}", "no key \"ids\""}};
  for (const auto& [line, fault] : faults) {
    EXPECT_ERROR(read("{\"ids\": [1]}\n" + line + "\n"), ExitCode::bad_input, "prompts.jsonl:2: " + fault);
  }
  EXPECT_ERROR(read("\n"), ExitCode::bad_input, "prompts.jsonl has no prompt");
}

}  // namespace
}  // namespace shiftron::testing

// Prompts: read from lines, each continued independently of the others.
#include "evaluate/continue_ids.h"

#include <gtest/gtest.h>

#include <set>

#include "evaluate/saved_model.h"
#include "expect_error.h"
#include "run/saved_state.h"

namespace shiftron::testing {
namespace {

constexpr TokenVocabulary kVocabulary{.size = 330, .end_of_document = 7, .tokenizer = {}};

// In the order of prompts and samples; every rank must get the same.
std::vector<Continuation> continuations(const CheckpointModel& model, const std::vector<std::vector<int32_t>>& prompts,
                                        const GenerateOptions& options, int64_t samples = 1, int ranks = 1,
                                        const TokenVocabulary& vocabulary = kVocabulary) {
  std::vector<std::vector<Continuation>> of_ranks(static_cast<size_t>(ranks));
  run_thread_ranks(ranks, [&](HostCommunicator& world) {
    const auto take = [&](const Continuation& made) { of_ranks[static_cast<size_t>(world.rank())].push_back(made); };
    continue_prompts(model, prompts, vocabulary, options, samples, world, {}, take);
  });
  for (const auto& own : of_ranks) {
    EXPECT_EQ(own.size(), prompts.size() * static_cast<size_t>(samples));
    for (size_t i = 0; i < own.size(); ++i) {
      EXPECT_EQ(own[i].ids, of_ranks[0][i].ids) << "continuation " << i;
      EXPECT_EQ(own[i].prompt * samples + own[i].sample, static_cast<int64_t>(i));
    }
  }
  return of_ranks[0];
}

std::vector<std::vector<int32_t>> several_prompts() {
  return {{20, 21, 22}, {300}, {20, 21, 22, 23, 24, 25, 26, 27, 28}, {20, 21}};
}

constexpr SamplingRules kDrawn{.temperature = 1, .top_k = 100, .top_p = 0.95, .seed = 5};

// With data.document_reset and without, which puts an end token before each prompt. A decoder that knows one prompt and
// one sample only is the reference.
TEST(ContinueIds, EachContinuationIsThatOfItsPromptAndSampleAlone) {
  for (const bool document_reset : {true, false}) {
    const Scratch scratch;
    RunConfig config = model_config();
    config.data.document_reset = document_reset;
    const CheckpointModel model = saved_model(scratch, config);
    const auto prompts = several_prompts();
    const auto world = make_single_world();
    for (const SamplingRules& rules : {SamplingRules{}, kDrawn}) {
      const GenerateOptions options{.tokens = 12, .sampling = rules};
      for (const Continuation& made : continuations(model, prompts, options, 3)) {
        std::vector<int32_t> fed = prompts[static_cast<size_t>(made.prompt)];
        if (!document_reset) fed.insert(fed.begin(), kVocabulary.end_of_document);
        Decoder alone(model, *world, {}, 40, 256);
        const auto expected = continue_tokens(alone, fed, options, kVocabulary.size, kVocabulary.end_of_document, {},
                                              made.prompt, made.sample);
        EXPECT_EQ(made.ids, expected.ids) << "prompt " << made.prompt << ", sample " << made.sample;
      }
    }
  }
}

TEST(ContinueIds, SamplesDifferAndDependOnNeitherTheirNumberNorTheRanks) {
  const Scratch scratch;
  const CheckpointModel model = saved_model(scratch);
  const GenerateOptions options{.tokens = 12, .sampling = kDrawn};
  const std::vector<std::vector<int32_t>> prompts = {{20, 21, 22}, {20, 21, 22}, {300}};
  const auto five = continuations(model, prompts, options, 5), two = continuations(model, prompts, options, 2, 2);
  std::set<std::vector<int32_t>> different;
  for (const Continuation& made : five) different.insert(made.ids);
  EXPECT_EQ(different.size(), five.size());
  for (const Continuation& made : two) {
    EXPECT_EQ(made.ids, five[static_cast<size_t>(made.prompt * 5 + made.sample)].ids)
        << "prompt " << made.prompt << ", sample " << made.sample;
  }
  for (const Continuation& made : continuations(model, {{300}, {20, 21, 22}}, {.tokens = 12}, 2)) {
    const auto alone = continuations(model, {made.prompt == 0 ? prompts[2] : prompts[0]}, {.tokens = 12});
    EXPECT_EQ(made.ids, alone.at(0).ids) << "greedy continuations depend on their prompt only";
  }
}

// Whether documents are separated or not: the token marks where they begin.
TEST(ContinueIds, PromptsBeginWithTheTokenThatBeginsDocuments) {
  TokenVocabulary begins = kVocabulary;
  begins.tokenizer.settings.beginning_of_document = 9;
  for (const bool document_reset : {true, false}) {
    const Scratch scratch;
    RunConfig config = model_config();
    config.data.document_reset = document_reset;
    const CheckpointModel model = saved_model(scratch, config);
    const GenerateOptions options{.tokens = 12};
    const auto made = continuations(model, {{20, 21}, {9, 20, 21}}, options, 1, 1, begins);
    config.data.document_reset = true;
    const CheckpointModel bare = {
        .directory = model.directory, .manifest_hash = {}, .content = model.content, .config = config};
    const auto expected = continuations(bare, {{9, 20, 21}}, options).at(0).ids;
    EXPECT_EQ(made.at(0).ids, expected) << document_reset;
    EXPECT_EQ(made.at(1).ids, expected) << document_reset;
    EXPECT_NE(expected, continuations(bare, {{20, 21}}, options).at(0).ids);
  }
}

TEST(ContinueIds, OnlyTheEndTokenEnds) {
  const Scratch scratch;
  const CheckpointModel model = saved_model(scratch);
  const GenerateOptions options{.tokens = 12, .sampling = {.temperature = 1, .seed = 5}};
  const auto whole = continuations(model, several_prompts(), options).at(0);
  ASSERT_EQ(whole.ids.size(), 12);
  EXPECT_FALSE(whole.ended);
  TokenVocabulary ends_early = kVocabulary;
  ends_early.end_of_document = whole.ids[6];
  const auto cut = continuations(model, {several_prompts()[0]}, options, 1, 1, ends_early).at(0);
  EXPECT_EQ(cut.ids, std::vector<int32_t>(whole.ids.begin(), std::ranges::find(whole.ids, whole.ids[6])));
  EXPECT_TRUE(cut.ended);
}

TEST(ContinueIds, WithoutATokenizerTheEndTokenMustBeGiven) {
  const Scratch scratch;
  CheckpointModel model = saved_model(scratch);
  EXPECT_EQ(vocabulary_of_ids(model, std::nullopt).end_of_document, tokenizer_of(model)->end_of_document());
  EXPECT_ERROR(vocabulary_of_ids(model, 7), ExitCode::bad_input,
               "--end-of-document 7 is not needed, because the tokenizer of");
  model.content.tokenizer = {};
  const TokenVocabulary given = vocabulary_of_ids(model, 329);
  EXPECT_EQ(given.size, 330);
  EXPECT_EQ(given.end_of_document, 329);
  EXPECT_ERROR(vocabulary_of_ids(model, 330), ExitCode::bad_input, "--end-of-document 330 is not in the vocabulary of");
  SavedState state;
  state.configuration = model.config;
  const auto known = [&] {
    model.content.state_json = to_json(state);
    return vocabulary_of_ids(model, std::nullopt).end_of_document;
  };
  EXPECT_ERROR(known(), ExitCode::bad_input, "give --end-of-document I");
  state.origin = {.from = "elsewhere", .positions = 0, .end_tokens = {7, 8}, .begin_token = {}};
  EXPECT_ERROR(known(), ExitCode::bad_input, "give --end-of-document I");
  state.origin.end_tokens = {7};
  EXPECT_EQ(known(), 7);
  state.end_of_document = 5;  // of the data that it was trained on since
  EXPECT_EQ(known(), 5);
  EXPECT_EQ(vocabulary_of_ids(model, 329).end_of_document, 329);
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

TEST(ContinueIds, TextPromptsAreLinesOrObjects) {
  const Scratch scratch;
  const auto read = [&](const std::string& name, const std::string& text) {
    return read_text_prompts(scratch.write(name, text));
  };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(read("a.txt", "\xEF\xBB\xBFthe key\r\n\n \t\r\n and \xFF \n{\"prompt\": \"x\"}"),
            (Texts{"the key", " and \xFF ", "{\"prompt\": \"x\"}"}));
  EXPECT_EQ(read("a.jsonl", "{\"prompt\": \"the\\nkey\", \"more\": 1}\n\n{\"prompt\": \"\"}\n"),
            (Texts{"the\nkey", ""}));
  for (const char* line : {"{\"text\": \"a\"}", "{\"prompt\": 3}"}) {
    EXPECT_ERROR(read("b.jsonl", "{\"prompt\": \"a\"}\n" + std::string(line)), ExitCode::bad_input,
                 "b.jsonl:2: no text \"prompt\"");
  }
  EXPECT_ERROR(read("b.jsonl", "the key"), ExitCode::bad_input, "b.jsonl:1: not JSON");
  EXPECT_ERROR(read("c.txt", " \n"), ExitCode::bad_input, "c.txt has no prompt");
  EXPECT_ERROR(read("d.txt", "\x1F\x8B\x08"), ExitCode::bad_input, "d.txt is compressed by gzip");
}

}  // namespace
}  // namespace shiftron::testing

// Answers to requests: by a checkpoint in several layouts, by live weights of a run that is not disturbed, and after
// kills.
#include "evaluate/scorer.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <ranges>

#include "evaluate/continue_ids.h"
#include "evaluate/saved_model.h"
#include "expect_error.h"

namespace shiftron::testing {
namespace {

std::vector<Answer> answered(const CheckpointModel& model, int ranks, const std::vector<Request>& requests,
                             const ScorerOptions& options = {}) {
  std::vector<std::vector<Answer>> of_ranks(static_cast<size_t>(ranks));
  run_thread_ranks(ranks, [&](HostCommunicator& world) {
    Scorer scorer(model, world, {});
    of_ranks[static_cast<size_t>(world.rank())] = scorer.answer(requests, options);
  });
  for (const auto& answers : of_ranks) {
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(answers[i].log_likelihood, of_ranks[0][i].log_likelihood);
      EXPECT_EQ(answers[i].text, of_ranks[0][i].text);
    }
  }
  return of_ranks[0];
}

void expect_same(const std::vector<Answer>& answers, const std::vector<Answer>& expected, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(answers.size(), expected.size()) << what;
  for (size_t i = 0; i < answers.size(); ++i) {
    EXPECT_NEAR(answers[i].log_likelihood, expected[i].log_likelihood, tolerance) << what << ", request " << i;
    EXPECT_EQ(answers[i].greedy, expected[i].greedy) << what << ", request " << i;
    EXPECT_EQ(answers[i].text, expected[i].text) << what << ", request " << i;
  }
}

TEST(Scorer, AnswersAreAlikeInEveryLayout) {
  const Scratch scratch;
  CheckpointModel model = saved_model(scratch);
  std::vector<Request> requests = example_requests();
  for (const Request& prompt : example_prompts()) requests.insert(requests.begin() + 3, prompt);
  const auto expected = answered(model, 1, requests);
  for (const Answer& answer : expected) EXPECT_TRUE(answer.log_likelihood < -3 || answer.log_likelihood == 0);
  EXPECT_TRUE(std::ranges::any_of(expected, [](const Answer& answer) { return answer.text.size() > 6; }));
  for (const auto& [tp, pp, dp] :
       std::vector<std::array<int, 3>>{{2, 1, 1}, {1, 2, 1}, {1, 1, 3}, {2, 2, 1}, {2, 1, 2}, {1, 2, 3}}) {
    model.config.parallel.tp = tp;
    model.config.parallel.pp = pp;
    expect_same(answered(model, tp * pp * dp, requests), expected, 1e-11,
                "tp " + std::to_string(tp) + ", pp " + std::to_string(pp) + ", dp " + std::to_string(dp));
  }
}

// Its tokens after the model's have neither rows in a table nor logits.
TEST(Scorer, ATokenizerOfMoreTokensThanTheModelIsRefused) {
  const Scratch scratch;
  RunConfig config = model_config();
  config.model.vocab = 329;
  const CheckpointModel model = saved_model(scratch, config);
  const std::string words = model.directory + "/tokenizer.model has 330 tokens, but the model has only 329";
  EXPECT_ERROR(answered(model, 1, example_requests()), ExitCode::bad_input, words);
  EXPECT_ERROR(vocabulary_of_ids(model, {}), ExitCode::bad_input, words);
}

// What rolling windows give is what the pieces of the text give.
TEST(Scorer, RollingIsTheSumOfItsWindows) {
  const Scratch scratch;
  const CheckpointModel model = saved_model(scratch);
  const SentencePieceTokenizer tokenizer(example_model(), "example");
  const std::string text = "the key and the value";
  ASSERT_LE(tokenizer.encode(text).size(), kLength);
  const auto answers = answered(model, 1, {{.kind = RequestKind::rolling, .context = text}, {.continuation = text}});
  EXPECT_NEAR(answers[0].log_likelihood, answers[1].log_likelihood, 1e-12);
  EXPECT_EQ(answered(model, 1, {{.kind = RequestKind::rolling, .context = ""}})[0].log_likelihood, 0);
}

TEST(Scorer, GenerationStops) {
  const Scratch scratch;
  const CheckpointModel model = saved_model(scratch);
  std::vector<Request> requests = example_prompts();
  for (Request& request : requests) request.generation.most_tokens = 12;
  const auto whole = answered(model, 1, requests);
  size_t cut = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (whole[i].text.size() < 4) continue;
    Request stopped = requests[i];
    const size_t middle = whole[i].text.size() / 2;
    stopped.generation.until = {"never", whole[i].text.substr(middle, 2)};
    const std::string text = answered(model, 1, {stopped})[0].text;
    EXPECT_EQ(text, whole[i].text.substr(0, whole[i].text.find(stopped.generation.until[1])));
    ++cut;
  }
  EXPECT_GT(cut, 0);
}

// Texts of one token that a model generates after many contexts, and how many of them are not greedy when it scores
// them; `told`: those that were asked.
int not_greedy(const CheckpointModel& model, const ScorerOptions& options, int& told) {
  const SentencePieceTokenizer tokenizer(example_model(), "example");
  std::vector<Request> prompts, scored;
  for (const char* first : {"the", "key", "value and", "once more", "of which", "a longer", "rest"}) {
    for (const char* last : {" the", " key", " and", " value", " x", " part", " in front", " falls"}) {
      prompts.push_back(
          {.kind = RequestKind::generate, .context = std::string(first) + last, .generation = {.most_tokens = 1}});
    }
  }
  const auto texts = answered(model, 1, prompts, options);
  for (size_t i = 0; i < prompts.size(); ++i) {
    // Where it is scored as the token that was generated: no other has its text, and it merges with no other.
    int32_t generated = -1, alike = 0;
    for (int32_t token = 0; token < tokenizer.vocab_size(); ++token) {
      if (tokenizer.text_of(token) != texts[i].text) continue;
      generated = token;
      ++alike;
    }
    auto tokens = tokenizer.encode(prompts[i].context);
    tokens.push_back(generated);
    if (alike != 1 || tokenizer.encode(prompts[i].context + texts[i].text) != tokens) continue;
    scored.push_back({.context = prompts[i].context, .continuation = texts[i].text});
  }
  told = static_cast<int>(scored.size());
  const auto answers = answered(model, 1, scored, options);
  return static_cast<int>(std::ranges::count(answers, false, &Answer::greedy));
}

// Scores mix across a token in front of a text, where training with shift.reset=always starts from nothing: so do
// texts.
TEST(Scorer, GeneratedTextsReadAFirstTokenAsScoresDo) {
  const Scratch scratch;
  RunConfig config = model_config();
  config.model.shift.reset = ShiftReset::always;
  int told = 0;
  EXPECT_EQ(not_greedy(saved_model(scratch, config), {.beginning = BeginningToken::always}, told), 0);
  EXPECT_GT(told, 10);
}

TEST(Scorer, RequestsThatCannotBeAnsweredAreNamed) {
  const Scratch scratch;
  const CheckpointModel model = saved_model(scratch);
  std::vector<Request> requests = example_requests();
  requests.push_back({.context = " ", .continuation = "x"});
  for (const int ranks : {1, 2}) {
    run_thread_ranks(ranks, [&](HostCommunicator& world) {
      Scorer scorer(model, world, {});
      EXPECT_ERROR(scorer.answer(requests), ExitCode::bad_input,
                   world.rank() == 0
                       ? "request " + std::to_string(requests.size() - 1) + ": its context is only white space"
                       : "");
    });
  }
}

// Losses and weights of a run, with and without requests answered on its way.
TEST(Scorer, LiveWeightsAreNotDisturbed) {
  const Scratch scratch;
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    for (const auto& [tp, pp, dp, zero] : std::vector<std::array<int, 4>>{{1, 1, 1, 0}, {2, 1, 2, 1}, {1, 2, 2, 1}}) {
      RunConfig config = model_config(precision);
      config.parallel.tp = tp;
      config.parallel.pp = pp;
      config.parallel.zero = zero;
      config.data.document_reset = false;  // in training, a row sees what stands before its document
      std::vector<Request> requests = example_requests();
      if (pp == 1) {
        for (const Request& prompt : example_prompts()) requests.push_back(prompt);
      }
      const auto run = [&](bool asks, std::vector<Answer>& answers) {
        TensorMap weights;
        std::mutex mutex;
        std::vector<double> losses;
        run_thread_ranks(tp * pp * dp, [&](HostCommunicator& world) {
          RankTrainer rank(config, world);
          const SampleReader samples = random_samples(kLength, config.model.vocab);
          std::vector<Answer> told;
          for (int64_t step = 1; step <= 4; ++step) {
            const double loss = rank.step(step, samples).loss;
            if (world.rank() == 0) losses.push_back(loss);
            if (!asks || step != 2) continue;
            Scorer scorer(config, rank.trainer->engine(), stored_example(), "step 2", world, {});
            told = scorer.answer(requests);
          }
          rank.trainer->engine().parameters().await_weights(rank.stream);
          if (world.rank() == 0) answers = told;
          if (zero == 0 || precision == Precision::fp32) {
            collect(rank.trainer->engine().parameters(), masters_of, weights, mutex);
          }
        });
        weights["losses"] = losses;
        return weights;
      };
      std::vector<Answer> answers, none;
      EXPECT_EQ(run(true, answers), run(false, none));
      ASSERT_EQ(answers.size(), requests.size());
      EXPECT_LT(answers[0].log_likelihood, -1);
    }
  }
}

// Live weights answer as a step of the same weights does.
TEST(Scorer, LiveWeightsAnswerAsASavedStepDoes) {
  const Scratch scratch;
  const CheckpointModel model = saved_model(scratch);
  std::vector<Request> requests = example_requests();
  for (const Request& prompt : example_prompts()) requests.push_back(prompt);
  const auto expected = answered(model, 1, requests);
  for (const auto& [tp, pp] : std::vector<std::array<int, 2>>{{1, 1}, {2, 1}, {1, 2}, {2, 2}}) {
    RunConfig config = model.config;
    config.parallel.tp = tp;
    config.parallel.pp = pp;
    config.data.document_reset = false;
    config.model.shift.reset = pp == 1 ? ShiftReset::never : ShiftReset::automatic;
    run_thread_ranks(2 * tp * pp, [&](HostCommunicator& world) {
      RankTrainer rank(config, world);
      set_weights(rank.trainer->engine().parameters());
      Scorer scorer(config, rank.trainer->engine(), stored_example(), "live", world, {});
      const auto prompts = example_prompts();  // before anything else has read the weights
      expect_same(scorer.answer(prompts), {expected.end() - static_cast<int64_t>(prompts.size()), expected.end()}, 0,
                  "generated");
      expect_same(scorer.answer(requests), expected, 1e-11, "live");
      EXPECT_ERROR(scorer.answer(requests, {.max_length = kLength + 1}), ExitCode::bad_input,
                   world.rank() == 0 ? "train.sequence_length" : "");
    });
  }
}

// A journal answers for one model and for what was asked, nothing else.
TEST(Scorer, JournalsAreOfAModelAndItsTargets) {
  const Scratch scratch;
  const CheckpointModel model = saved_model(scratch);
  // Two continuations of one token each: one row is read for both.
  const SentencePieceTokenizer tokenizer(example_model(), "example");
  std::vector<std::string> continuations;
  for (int32_t token = 0; token < tokenizer.vocab_size() && continuations.size() < 2; ++token) {
    const std::string text = tokenizer.text_of(token);
    const auto before = tokenizer.encode("the key"), whole = tokenizer.encode("the key" + text);
    if (text.starts_with(" ") && whole.size() == before.size() + 1 && whole.back() == token)
      continuations.push_back(text);
  }
  ASSERT_EQ(continuations.size(), 2);
  const auto asked = [](const std::string& continuation) {
    return std::vector<Request>{{.context = "the key", .continuation = continuation}};
  };
  const ScorerOptions options{.journal = scratch / "journal"};
  answered(model, 1, asked(continuations[0]), options);
  expect_same(answered(model, 1, asked(continuations[1]), options), answered(model, 1, asked(continuations[1])), 0,
              "another target");
  RunConfig config = model.config;
  const auto world = make_single_world();
  RankTrainer rank(config, *world);
  rank.trainer->engine().parameters().initialise(99);
  for (const std::string& continuation : continuations) {
    const auto live = [&](const ScorerOptions& with) {
      return Scorer(config, rank.trainer->engine(), stored_example(), "another", *world, {})
          .answer(asked(continuation), with);
    };
    expect_same(live(options), live({}), 0, "another model");
  }
}

// Nor for another precision, in which a text may continue differently.
TEST(Scorer, JournalsAreOfAPrecision) {
  const Scratch scratch;
  CheckpointModel model = saved_model(scratch, model_config(Precision::fp32));
  std::vector<Request> requests = example_prompts();
  requests.push_back({.context = "the key", .continuation = " and the value"});
  const auto lines = [&] {
    const std::string text = Scratch::read(scratch / "journal/answers-0.txt");
    return std::ranges::count_if(std::views::split(text, '\n'), [](const auto& line) { return !line.empty(); });
  };
  const ScorerOptions options{.journal = scratch / "journal"};
  answered(model, 1, requests, options);
  const auto once = lines();
  EXPECT_GT(once, std::ssize(example_prompts()));
  answered(model, 1, requests, options);
  EXPECT_EQ(lines(), once);
  model.config.train.precision = Precision::bf16;
  answered(model, 1, requests, options);
  EXPECT_EQ(lines(), 2 * once);
}

// A process that is killed at some batch, over and over, ends with the answers of one that is not.
TEST(Scorer, KilledEvaluationsGoOn) {
  const Scratch scratch;
  const CheckpointModel model = saved_model(scratch);
  std::vector<Request> requests = example_requests();
  for (const Request& prompt : example_prompts()) requests.push_back(prompt);
  ScorerOptions options{.token_budget = kLength};
  const auto expected = answered(model, 1, requests, options);
  options.journal = scratch / "journal";
  const auto calls_until = [&](int calls) {  // batches and prompts that were begun; the process dies at the last one
    int begun = 0;
    ScorerOptions counted = options;
    counted.each_batch = [&] {
      if (++begun == calls) _exit(9);
    };
    const auto world = make_single_world();
    Scorer scorer(model, *world, {});
    const auto answers = scorer.answer(requests, counted);
    for (size_t i = 0; i < answers.size(); ++i) {
      EXPECT_EQ(answers[i].log_likelihood, expected[i].log_likelihood);
      EXPECT_EQ(answers[i].text, expected[i].text);
    }
    return begun;
  };
  const Philox random(17, "kills");
  int killed = 0;
  for (int round = 0; round < 10; ++round) {
    const int calls = 1 + static_cast<int>(3 * random.uniform(static_cast<uint64_t>(round)));
    const pid_t child = fork();
    if (child == 0) {
      calls_until(calls);
      _exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_TRUE(WEXITSTATUS(status) == 9 || WEXITSTATUS(status) == 0) << WEXITSTATUS(status);
    killed += WEXITSTATUS(status) == 9 ? 1 : 0;
    if (round == 4) {  // a line that was cut off in the middle, and one that was changed
      const std::string path = options.journal + "/answers-0.txt";
      std::string text = read_file(path);
      if (text.size() > 60) {
        text[40] = text[40] == '0' ? '1' : '0';
        text.resize(text.size() - 20);
        scratch.write("journal/answers-0.txt", text);
      }
    }
  }
  EXPECT_GE(killed, 4);
  calls_until(-1);
  EXPECT_EQ(calls_until(-1), 0);  // all is known
  // Another layout takes what it can.
  expect_same(answered(model, 2, requests, options), expected, 1e-11, "dp 2");
}

}  // namespace
}  // namespace shiftron::testing

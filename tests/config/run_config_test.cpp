// Levels, texts that read back, JSON, comparison, and the consistency of the option table.
#include "config/run_config.h"

#include <gmock/gmock.h>

#include <set>
#include <sstream>

#include "config/changed_keys.h"
#include "config/config_text.h"
#include "config/options.h"
#include "config/settings.h"
#include "config/validate.h"
#include "core/check.h"
#include "expect_error.h"

namespace shiftron {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A value for every key that is not its default.
Pairs unusual() {
  return {{"model.layers", "5"},
          {"model.hidden", "96"},
          {"model.heads", "6"},
          {"model.kv_heads", "3"},
          {"model.head_dim", "32"},
          {"model.ffn", "300"},
          {"model.vocab", "777"},
          {"model.rope_base", "10000.5"},
          {"model.norm_epsilon", "1e-06"},
          {"model.tie_embeddings", "true"},
          {"model.init_std", "0.1"},
          {"shift.query", "1"},
          {"shift.key", "2"},
          {"shift.value", "3"},
          {"shift.form", "clamp"},
          {"shift.init", "identity"},
          {"shift.remainder", "current"},
          {"shift.reset", "never"},
          {"train.steps", "123"},
          {"train.global_batch", "24"},
          {"train.micro_batch", "2"},
          {"train.sequence_length", "48"},
          {"train.stop_at", "60"},
          {"train.precision", "bf16"},
          {"train.seed", "42"},
          {"train.deterministic", "layouts"},
          {"optimizer.learning_rate", "0.00030000000000000003"},
          {"optimizer.betas", "0.8,0.99"},
          {"optimizer.epsilon", "1e-07"},
          {"optimizer.weight_decay", "0.01"},
          {"optimizer.shift_weight_decay", "0.02"},
          {"optimizer.shift_learning_rate_scale", "3"},
          {"optimizer.clip", "0.5"},
          {"optimizer.schedule", "wsd"},
          {"optimizer.warmup", "7"},
          {"optimizer.decay_steps", "9"},
          {"optimizer.final_fraction", "0.1"},
          {"parallel.tp", "3"},
          {"parallel.cp", "2"},
          {"parallel.pp", "5"},
          {"parallel.rank_order", "tp,pp,cp,dp"},
          {"parallel.chunks", "2"},
          {"parallel.zero", "1"},
          {"parallel.bucket_elements", "1000"},
          {"parallel.pipeline", "zb-v"},
          {"parallel.recompute", "full,selective,none,none,full"},
          {"parallel.stage_layers", "1,1,1,1,1"},
          {"data.train", "a:2/x:y:0.25"},
          {"data.train", "b c:1"},
          {"data.validation", "v:1"},
          {"data.document_reset", "false"},
          {"evaluation.every", "10"},
          {"evaluation.sequences", "8"},
          {"evaluation.tasks", "hellaswag,a b.json"},
          {"evaluation.data", "c d"},
          {"evaluation.fewshot", "0"},
          {"evaluation.limit", "0.25"},
          {"evaluation.bos", "1"},
          {"evaluation.max_gen_toks", "16"},
          {"evaluation.boundary_fallback", "true"},
          {"checkpoint.every", "20"},
          {"checkpoint.keep", "4"},
          {"checkpoint.keep_every", "40"},
          {"checkpoint.asynchronous", "true"},
          {"checkpoint.resume", "40"},
          {"fault.setup_deadline", "60.5"},
          {"fault.step_deadline", "30"},
          {"fault.read_deadline", "45"},
          {"fault.evaluation_deadline", "120"},
          {"fault.checkpoint_deadline", "90"},
          {"fault.non_finite_in_row", "5"},
          {"output.directory", "my run"},
          {"output.log_every", "10"},
          {"device.kind", "cuda"},
          {"device.reserve", "5"},
          {"device.threads", "4"}};
}

RunConfig unusual_config() {
  RunConfig config;
  apply_level(config, settings_of(unusual()));
  resolve(config);
  return config;
}

// Reads "key = value" lines under [section] without the command line's reader.
RunConfig read_text(const std::string& text) {
  Pairs pairs;
  std::string section, line;
  for (std::istringstream stream(text); std::getline(stream, line);) {
    if (line.empty() || line[0] == '#') continue;
    if (line[0] == '[')
      section = line.substr(1, line.size() - 2);
    else
      pairs.emplace_back(section + "." + line.substr(0, line.find(" = ")), line.substr(line.find(" = ") + 3));
  }
  RunConfig config;
  apply_level(config, settings_of(pairs));
  resolve(config);
  return config;
}

TEST(RunConfig, UnusualConfigurationDiffersInEveryKey) {
  const RunConfig config = unusual_config();
  EXPECT_THAT(config.reading_faults, IsEmpty());
  std::set<std::string> changed;
  for (const ChangedKey& key : changed_keys({}, config)) changed.insert(key.key);
  for (const Option& option : option_table()) EXPECT_EQ(changed.count(option.key), 1u) << option.key;
}

TEST(RunConfig, EveryKeyWritesWhatItRead) {
  const RunConfig config = unusual_config();
  for (const auto& [key, text] : unusual()) {
    for (const Option& option : option_table()) {
      if (option.key != key) continue;
      EXPECT_THAT(option.write(config), ::testing::Contains(text)) << key;
    }
  }
}

// Older checkpoints say false; such a run resumes.
TEST(RunConfig, DeterministicWasASwitch) {
  const RunConfig old = config_from_json(R"({"train": {"deterministic": false}})");
  EXPECT_THAT(old.reading_faults, IsEmpty());
  EXPECT_EQ(old.train.deterministic, Deterministic::off);
  EXPECT_NO_THROW(require_resumable(old, RunConfig{}));
  EXPECT_THAT(to_json(old), ::testing::HasSubstr(R"("deterministic": "off")"));
  const RunConfig promised = config_from_json(R"({"train": {"deterministic": true}})");
  EXPECT_EQ(promised.train.deterministic, Deterministic::repeat);
}

TEST(RunConfig, TextAndJsonReadBack) {
  for (const RunConfig& config : {RunConfig{}, small_config_with({}), unusual_config()}) {
    EXPECT_THAT(changed_keys(config, read_text(to_config_text(config))), IsEmpty());
    const RunConfig back = config_from_json(to_json(config));
    EXPECT_THAT(changed_keys(config, back), IsEmpty());
    EXPECT_EQ(to_json(back), to_json(config));
    EXPECT_EQ(to_config_text(back), to_config_text(config));
  }
}

TEST(RunConfig, JsonHasTypes) {
  const std::string json = to_json(unusual_config());
  EXPECT_THAT(json, HasSubstr("\"hidden\": 96"));
  EXPECT_THAT(json, HasSubstr("\"tie_embeddings\": true"));
  EXPECT_THAT(json, HasSubstr("\"learning_rate\": 0.00030000000000000003"));
  EXPECT_THAT(json, HasSubstr("\"stage_layers\": \"1,1,1,1,1\""));
  EXPECT_THAT(json, HasSubstr("\"resume\": \"40\""));
  EXPECT_THROW(config_from_json("[1]"), Error);
  EXPECT_THROW(config_from_json("{"), Error);
  EXPECT_THROW(config_from_json("{\"model\": 3}"), Error);
  EXPECT_THAT(config_from_json("{\"model\": {\"hiden\": 3}}", "m.json").reading_faults,
              ElementsAre("unknown key model.hiden; did you mean model.hidden? (m.json)"));
}

TEST(RunConfig, TableIsConsistent) {
  std::set<std::string> keys;
  std::vector<std::string> sections;
  for (const Option& option : option_table()) {
    EXPECT_TRUE(keys.insert(option.key).second) << option.key;
    if (sections.empty() || sections.back() != option.section()) sections.push_back(option.section());
    EXPECT_FALSE(option.help.empty() || option.values.empty()) << option.key;
    RunConfig config;
    EXPECT_TRUE(option.write(config).empty() || option.check(config).empty()) << option.key;
    for (const std::string& text : option.write(config)) EXPECT_EQ(option.read(config, text), "") << option.key;
    EXPECT_THAT(changed_keys({}, config), IsEmpty()) << option.key;
    config = unusual_config();
    option.reset(config);
    EXPECT_EQ(option.write(config), option.write(RunConfig{})) << option.key;
  }
  EXPECT_THAT(sections, ElementsAre("model", "shift", "train", "optimizer", "parallel", "data", "evaluation",
                                    "checkpoint", "fault", "output", "device"));
  EXPECT_EQ(keys.size(), 75u);
}

TEST(RunConfig, DefaultsAreThoseOfTheUserGuide) {
  const std::string text = to_config_text({});
  for (const char* line : {"rope_base = 100000",
                           "norm_epsilon = 1e-05",
                           "init_std = 0.02",
                           "key = 1",
                           "form = free",
                           "reset = auto",
                           "micro_batch = 1",
                           "precision = fp32",
                           "betas = 0.9,0.95",
                           "epsilon = 1e-08",
                           "weight_decay = 0.1",
                           "shift_weight_decay = 0",
                           "clip = 1",
                           "schedule = constant",
                           "rank_order = tp,cp,dp,pp",
                           "pipeline = 1f1b",
                           "recompute = none",
                           "document_reset = true",
                           "keep = 2",
                           "resume = auto",
                           "setup_deadline = 600",
                           "non_finite_in_row = 3",
                           "log_every = 1",
                           "kind = cpu"}) {
    EXPECT_THAT(text, HasSubstr(std::string("\n") + line + "\n"));
  }
}

TEST(RunConfig, StrongerLevelsWinAndListsReplace) {
  RunConfig config;
  apply_level(config,
              settings_of({{"train.seed", "1"}, {"train.steps", "10"}, {"data.train", "a"}, {"data.train", "b:3"}}));
  ASSERT_EQ(config.data.train.size(), 2u);
  EXPECT_EQ(config.data.train[1].directory, "b");
  EXPECT_EQ(config.data.train[1].weight, 3);
  apply_level(config, settings_of({{"train.seed", "2"}, {"data.train", "c"}}, "b.conf"));
  EXPECT_EQ(config.train.seed, 2);
  EXPECT_EQ(config.train.steps, 10);
  ASSERT_EQ(config.data.train.size(), 1u);
  EXPECT_EQ(config.data.train[0].directory, "c");
  apply_level(config, settings_of({{"train.seed", "3"}, {"train.seed", "4"}}), true);
  EXPECT_EQ(config.train.seed, 4);
  EXPECT_THAT(config.reading_faults, IsEmpty());
  EXPECT_EQ(to_string(config.origins.at("train.steps")), "a.conf:2");
}

TEST(RunConfig, SourcesOfDataAreParsed) {
  const auto parsed = [](const std::string& text) {
    RunConfig config;
    apply_level(config, settings_of({{"data.train", text}}));
    return config;
  };
  EXPECT_EQ(parsed("a/b").data.train.at(0).directory, "a/b");
  EXPECT_EQ(parsed("a/b").data.train.at(0).weight, 0);
  EXPECT_EQ(parsed("a/b:0.25").data.train.at(0).directory, "a/b");
  EXPECT_EQ(parsed("a/b:0.25").data.train.at(0).weight, 0.25);
  EXPECT_EQ(parsed("a:1/b").data.train.at(0).directory, "a:1/b");
  for (const char* text : {"a:", "a:x", "a:0", "a:-1", "a:nan", "a:1x"}) {
    EXPECT_EQ(parsed(text).reading_faults.size(), 1u) << text;
    EXPECT_THAT(parsed(text).data.train, IsEmpty()) << text;
  }
}

TEST(RunConfig, AnUnreadableValueOfAWeakerLevelStaysAFault) {
  RunConfig config = small_config();
  apply_level(config, settings_of({{"train.seed", "x"}}));
  apply_level(config, settings_of({{"train.seed", "5"}}, "b.conf"));
  EXPECT_THAT(find_faults(config, 1), ElementsAre("train.seed 'x' is not a whole number (a.conf:1)"));
}

TEST(RunConfig, ResolvesKvHeadsAndHeadDim) {
  const RunConfig config = small_config_with({{"model.hidden", "128"}});
  EXPECT_EQ(config.model.head_dim, 16);
  EXPECT_EQ(config.model.kv_heads, 4);
  RunConfig plain;
  apply_level(plain, settings_of({{"model.hidden", "128"}, {"model.heads", "8"}}));
  resolve(plain);
  EXPECT_EQ(plain.model.kv_heads, 8);
}

TEST(RunConfig, OnlyListedKeysMayDifferOnResume) {
  std::set<std::string> fixed;
  for (const ChangedKey& key : changed_keys({}, unusual_config())) {
    if (!key.may_differ) fixed.insert(key.key.substr(0, key.key.find('.')));
    const std::string section = key.key.substr(0, key.key.find('.'));
    const std::set<std::string> free = {"parallel", "evaluation", "checkpoint", "output", "device", "fault"};
    const std::set<std::string> free_keys = {"train.micro_batch", "train.steps", "train.stop_at", "data.train",
                                             "data.validation"};  // their fingerprints may not
    EXPECT_EQ(key.may_differ, free.count(section) || free_keys.count(key.key)) << key.key;
  }
  EXPECT_EQ(fixed, (std::set<std::string>{"model", "shift", "train", "optimizer", "data"}));
}

TEST(RunConfig, RefusesAResumeWithOtherNumbers) {
  const RunConfig saved = small_config_with({});
  EXPECT_NO_THROW(require_resumable(saved, small_config_with({{"parallel.tp", "2"}, {"train.steps", "200"}})));
  const RunConfig now = small_config_with({{"model.vocab", "512"}, {"parallel.tp", "2"}, {"train.seed", "9"}});
  const std::vector<ChangedKey> changed = changed_keys(saved, now);
  ASSERT_EQ(changed.size(), 3u);
  EXPECT_EQ(changed[2].key, "parallel.tp");
  EXPECT_TRUE(changed[2].may_differ);
  try {
    require_resumable(saved, now);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    EXPECT_STREQ(error.what(),
                 "these keys may not differ when a run resumes:\n  model.vocab was '256', is now '512' (a.conf:1)\n"
                 "  train.seed was '0', is now '9' (a.conf:3)");
  }
  const RunConfig seed = small_config_with({{"train.seed", "9"}});
  EXPECT_ERROR(require_resumable(saved, seed, false, "run/checkpoints/step-00000004"), ExitCode::bad_input,
               "shiftron checkpoint import run/checkpoints/step-00000004 --format shiftron --output NEW, then shiftron "
               "train --config NEW/config.conf --config YOURS.conf --output.directory NEW");
  try {
    require_resumable(saved, now, false, "run/checkpoints/step-00000004");  // another model begins from no step
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::Not(HasSubstr("import")));
  }
}

// Of a later version: its value would become this one's default, and the next step would say so.
TEST(RunConfig, RefusesAResumeOfWhatItDoesNotKnow) {
  for (const auto& [json, fault] : {std::pair{R"({"model": {"key_of_tomorrow": true}})", "model.key_of_tomorrow"},
                                    std::pair{R"({"train": {"precision": "fp8"}})", "fp8"}}) {
    const RunConfig saved = config_from_json(json, "step-00000004");
    EXPECT_ERROR(require_resumable(saved, RunConfig{}), ExitCode::bad_input, "resume with the version that saved it");
    EXPECT_ERROR(require_resumable(saved, RunConfig{}), ExitCode::bad_input, fault);
    EXPECT_ERROR(require_resumable(saved, RunConfig{}), ExitCode::bad_input, "step-00000004");
  }
}

TEST(RunConfig, HashInputIgnoresWhatMayDiffer) {
  const std::string input = hash_input(small_config_with({}));
  EXPECT_EQ(hash_input(small_config_with({{"parallel.tp", "2"}, {"train.stop_at", "3"}, {"output.directory", "x"}})),
            input);
  EXPECT_NE(hash_input(small_config_with({{"train.seed", "2"}})), input);
  EXPECT_THAT(input, HasSubstr("model.head_dim=8\n"));
}

TEST(RunConfig, LayoutOfRanks) {
  const RunConfig config = small_config_with({{"parallel.tp", "2"}, {"parallel.pp", "4"}});
  EXPECT_EQ(minimum_ranks(config.parallel), 8);
  EXPECT_EQ(make_layout(config.parallel, 24), (ParallelLayout{.tp = 2, .cp = 1, .dp = 3, .pp = 4}));
  EXPECT_THROW(make_layout(config.parallel, 12), Error);
  const RunConfig ordered = small_config_with({{"parallel.tp", "2"}, {"parallel.rank_order", "dp, tp,cp,pp"}});
  EXPECT_EQ(make_layout(ordered.parallel, 6),
            (ParallelLayout{.tp = 2, .dp = 3, .order = {Axis::dp, Axis::tp, Axis::cp, Axis::pp}}));
}

}  // namespace
}  // namespace shiftron

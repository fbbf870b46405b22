// Steps of real models converted to other layouts: the files that a run there saves, and a configuration that resumes.
#include "train/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "checkpoint/digest.h"
#include "checkpoint/reader.h"
#include "checkpoint/restore.h"
#include "checkpoint/save.h"
#include "checkpoint/verify.h"
#include "config/changed_keys.h"
#include "config/config_text.h"
#include "core/file.h"
#include "expect_error.h"
#include "run/resume.h"
#include "scratch.h"
#include "train/small_model.h"
#include "without_rights.h"

namespace shiftron::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Target {
  const char* words;  // of --layout
  int ranks;
};
const std::vector<Target> kTargets = {{"tp=1,pp=1,dp=1", 1},
                                      {"tp=2,pp=2", 4},
                                      {"dp=2,zero=1,bucket_elements=300", 2},
                                      {"tp=4,pp=2,stage_layers=3,1", 8},
                                      {"pp=2,dp=2,zero=1,pipeline=zb-v", 4},
                                      {"tp=2,pp=2,chunks=2,pipeline=interleaved", 4},
                                      {"pp=4,rank_order=pp,dp,cp,tp", 4}};

RunConfig four_layers() {
  RunConfig config = small_config({.query = 1, .key = 1, .value = 2}, Precision::fp32);
  config.model.layers = 4;
  config.output.directory = "run";
  return config;
}

CheckpointContent content_of(const RunConfig& config, int64_t step) {
  return {.step = step,
          .configuration = to_config_text(config),
          .state_json = R"({"configuration":)" + to_json(config) + R"(,"trainer":{"applied_updates":)" +
                        std::to_string(step) + R"(,"skipped_in_row":0,"skipped_updates":0}})",
          .tokenizer = {{"tokenizer.model", "model"}},
          .data_fingerprint = "0123",
          .code_version = "test"};
}

// Under `config`, masters and moments of values that no layout changes; or those of `from`, where a step is named.
std::string save_under(const RunConfig& config, int ranks, const std::string& directory, const std::string& from = "") {
  SaveResult result;
  run_thread_ranks(ranks, [&](HostCommunicator& world) {
    RankTrainer rank(config, world);
    ParameterSet& set = rank.trainer->engine().parameters();
    if (from.empty()) {
      set_weights(set);
      for (const auto& parameter : set.parameters()) {
        for (const ParameterState state : {ParameterState::first_moment, ParameterState::second_moment}) {
          for_each_of(parameter->spec.shape, parameter->box, [&](int64_t local, int64_t logical) {
            if (local < parameter->kept.begin || local >= parameter->kept.end) return;
            const auto value =
                static_cast<float>(Philox(state == ParameterState::first_moment ? 5 : 6, parameter->spec.name)
                                       .normal(static_cast<uint64_t>(logical)));
            set.write(*parameter, state, local, 1, &value);
          });
        }
      }
    } else {
      load_parameters(from, set, {.with_moments = true});
    }
    Log log(world.rank());
    const SaveResult saved = save_checkpoint(directory, content_of(config, 3), set, world, {}, log);
    if (world.rank() == 0) result = saved;
  });
  EXPECT_TRUE(result.saved) << result.reason;
  return result.directory;
}

class Convert : public ::testing::Test {
 protected:
  void SetUp() override { step_ = save_under(config_, 1, scratch_.path() + "/run/checkpoints"); }
  std::string place(const std::string& name) const { return scratch_.path() + "/" + name; }
  ConvertedStep to(const std::string& layout, const std::string& name, const ConvertOptions& options = {}) {
    Log log;
    return convert_step(step_, layout, place(name), log, options);
  }
  Scratch scratch_;
  const RunConfig config_ = four_layers();
  std::string step_;
};

TEST_F(Convert, FilesAreThoseThatARunOfTheLayoutSaves) {
  std::string before = step_;
  for (const Target& target : kTargets) {
    SCOPED_TRACE(target.words);
    const std::string name = target.words;
    Log log;
    const ConvertedStep made = convert_step(before, target.words, place(name), log);  // each out of the one before it
    int ranks = 0;
    const RunConfig from = saved_config(read_content(before).state_json, before);  // whose bucket_elements stays
    const RunConfig under = config_with_layout(from, parse_layout(target.words), ranks);
    ASSERT_EQ(ranks, target.ranks);
    EXPECT_EQ(made.layout, make_layout(under.parallel, ranks));
    EXPECT_TRUE(made.can_train);
    const std::string saved = save_under(under, ranks, place(name + "-saved"), step_);
    const Manifest expected = read_manifest(saved), actual = read_manifest(made.directory);
    ASSERT_EQ(actual.files.size(), expected.files.size());
    for (size_t i = 0; i < actual.files.size(); ++i) {
      EXPECT_EQ(actual.files[i].name, expected.files[i].name);
      EXPECT_EQ(actual.files[i].hash, expected.files[i].hash) << actual.files[i].name;
    }
    EXPECT_THAT(verify_step(made.directory), IsEmpty());
    EXPECT_TRUE(diff_steps(step_, made.directory).equal());
    before = made.directory;
  }
}

TEST_F(Convert, TheConfigurationFollowsAndResumes) {
  const ConvertedStep made = to("tp=2,pp=2,dp=2,zero=1", "converted");
  EXPECT_EQ(made.directory, place("converted") + "/checkpoints/step-00000003");
  const CheckpointContent content = read_content(made.directory);
  EXPECT_EQ(read_file(made.config_file), content.configuration);
  const RunConfig saved = saved_config(content.state_json, "step");
  EXPECT_EQ(content.configuration, to_config_text(saved));
  EXPECT_EQ(saved.parallel.tp, 2);
  EXPECT_EQ(saved.parallel.pp, 2);
  EXPECT_EQ(saved.parallel.zero, 1);
  EXPECT_EQ(saved.output.directory, place("converted"));
  EXPECT_NO_THROW(require_resumable(saved_config(read_content(step_).state_json, "step"), saved));
  EXPECT_EQ(content.tokenizer.file.bytes, "model");
  EXPECT_EQ(content.data_fingerprint, "0123");
}

TEST_F(Convert, LayoutsAreRefusedAsTrainDoes) {
  const auto refused = [&](const std::string& layout) -> std::string {
    try {
      to(layout, "refused");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::bad_input) << error.what();
      EXPECT_FALSE(fs::exists(place("refused"))) << layout;
      return error.what();
    }
    ADD_FAILURE() << layout << " was taken";
    return "";
  };
  EXPECT_THAT(refused("tp=3"),
              ::testing::AllOf(HasSubstr("heads 4 not divisible by tp 3 ("), HasSubstr("parallel.tp: --layout)")));
  EXPECT_THAT(refused("pp=5"), HasSubstr("--layout"));
  EXPECT_THAT(refused("tp=3,pp=5"), ::testing::AllOf(HasSubstr("tp 3"), HasSubstr("pp 5")));  // all at once
  EXPECT_THAT(refused("tpp=2"), HasSubstr("unknown key parallel.tpp; did you mean parallel.tp? (--layout)"));
  EXPECT_THAT(refused("tp=two"), HasSubstr("parallel.tp 'two'"));
  EXPECT_THAT(refused("dp=0"), HasSubstr("dp '0' must be"));
  EXPECT_THAT(refused("dp=3"), HasSubstr("global_batch 4"));
  EXPECT_THAT(refused("4,tp=2"), HasSubstr("is not KEY=VALUE"));
  EXPECT_THAT(refused("tp=2,tp=2"), HasSubstr("tp is given twice"));
  EXPECT_THAT(refused("dp=2000000"), HasSubstr("dp '2000000' must be"));
  EXPECT_THAT(refused("tp=60000,dp=60000"), HasSubstr("more than 1000000 ranks"));
}

TEST_F(Convert, AnOutputThatIsARunIsRefused) {
  to("tp=2", "taken");
  const std::string manifest = read_file(place("taken") + "/checkpoints/step-00000003/manifest.json");
  EXPECT_ERROR(to("pp=2", "taken"), ExitCode::bad_input, "already exists");
  EXPECT_EQ(read_file(place("taken") + "/checkpoints/step-00000003/manifest.json"), manifest);
  fs::create_directories(place("other"));
  write_file_durably(place("other") + "/config.conf", "[model]\n");
  EXPECT_ERROR(to("pp=2", "other"), ExitCode::bad_input, "belongs to another run");
  EXPECT_EQ(read_file(place("other") + "/config.conf"), "[model]\n");
  EXPECT_ERROR(to("pp=2", "caf\xe9"), ExitCode::bad_input, "must be UTF-8");
}

TEST_F(Convert, AFailureAtAnyPointLeavesNothing) {
  int tried = 0;
  for (int failing_at = 0; tried == failing_at; ++failing_at) {
    for (const bool was_there : {false, true}) {
      if (was_there) fs::create_directories(place("out"));
      int passed = 0;
      ConvertOptions options;
      bool committed = false;
      options.write.at_point = [&](const std::string& point) {
        if (passed++ != failing_at) return;
        committed = point == "committed";
        if (!committed) throw_crash("disk on fire");
      };
      if (was_there) ++tried;
      try {
        to("tp=2,pp=2", "out", options);
        EXPECT_TRUE(committed);
        EXPECT_GT(failing_at, 20);
        return;
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr("disk on fire"));
      }
      EXPECT_EQ(fs::exists(place("out")), was_there);
      EXPECT_FALSE(fs::exists(place("out") + "/config.conf"));
      EXPECT_THAT(list_steps(place("out") + "/checkpoints"), IsEmpty());
      fs::remove_all(place("out"));
    }
  }
}

// As if it was killed after the step got its name: the same command accepts that step, another one refuses it.
TEST_F(Convert, OnlyTheSameCommandContinues) {
  std::string request;
  const auto convert = [&](const std::string& layout, DType precision) {
    ConvertOptions options{.precision = precision, .drop_optimizer = true};
    options.write.at_point = [&](const std::string& point) {
      if (point == "committed") request = read_file(place("out") + "/made-for");
    };
    if (!request.empty()) write_file_durably(place("out") + "/made-for", request);
    return to(layout, "out", options).was_there;
  };
  EXPECT_FALSE(convert("tp=2", DType::float32));
  ASSERT_NE(request, "");
  EXPECT_ERROR(convert("tp=2", DType::bfloat16), ExitCode::bad_input, "already exists");
  EXPECT_ERROR(convert("pp=2", DType::float32), ExitCode::bad_input, "already exists");
  EXPECT_TRUE(convert("tp=2", DType::float32));
}

// The disk that failed may not even list what lies there.
TEST_F(Convert, AFailureIsToldWhereNothingCanBeLooked) {
  const std::string checkpoints = place("out") + "/checkpoints";
  open_to_all(scratch_.path(), true);
  ConvertOptions options;
  options.write.at_point = [&](const std::string& point) {
    if (point != "half written") return;
    fs::permissions(checkpoints, fs::perms::none);
    throw_crash("disk on fire");
  };
  {
    const WithoutRights somebody;
    ASSERT_TRUE(somebody.holds());
    EXPECT_ERROR(to("tp=2,pp=2", "out", options), ExitCode::crash, "disk on fire");
  }
  EXPECT_TRUE(fs::exists(checkpoints));
  open_to_all(checkpoints, true);
}

TEST_F(Convert, ParametersAloneInHalves) {
  ConvertOptions options;
  options.precision = DType::bfloat16;
  EXPECT_ERROR(to("tp=2", "cast", options), ExitCode::bad_input, "add --drop-optimizer");
  options.drop_optimizer = true;
  const ConvertedStep made = to("tp=2", "cast", options);
  EXPECT_FALSE(made.can_train);
  EXPECT_THAT(verify_step(made.directory), IsEmpty());
  for (const ManifestTensor& tensor : read_manifest(made.directory).tensors) {
    EXPECT_EQ(tensor.group, TensorGroup::parameters);
    EXPECT_EQ(tensor.dtype, DType::bfloat16);
  }
  const auto found = diff_steps(step_, made.directory, {.parameters_only = true, .widen = true});
  for (const TensorDifference& tensor : found.tensors) EXPECT_LT(tensor.relative_l2, 0x1p-8) << tensor.path;
  // And back into float32: nothing more is lost.
  options.precision = DType::float32;
  Log log;
  const ConvertedStep wide = convert_step(made.directory, "pp=2", place("wide"), log, options);
  EXPECT_TRUE(diff_steps(made.directory, wide.directory, {.parameters_only = true, .widen = true}).equal());
  EXPECT_FALSE(diff_steps(made.directory, wide.directory, {.parameters_only = true}).equal());
}

// Ranks of the target read their own files alone where nothing is held twice: here all but norms and shared KV heads.
TEST_F(Convert, MomentsOfDividedRanksLieInTheirOwnFiles) {
  const ConvertedStep made = to("dp=2,zero=1,bucket_elements=300", "converted");
  int ranks = 0;
  const RunConfig config = config_with_layout(config_, parse_layout("dp=2,zero=1,bucket_elements=300"), ranks);
  const Manifest manifest = read_manifest(made.directory);
  run_thread_ranks(ranks, [&](HostCommunicator& world) {
    RankTrainer rank(config, world);
    const std::string own = rank_file_name(world.rank());
    load_parameters(made.directory, rank.trainer->engine().parameters(),
                    {.with_moments = true, .at_read = [&](const ManifestFile& file, uint64_t byte_offset, uint64_t) {
                       if (file.name == own) return;
                       for (const ManifestBox& box : manifest.boxes) {
                         if (manifest.files[static_cast<size_t>(box.file)].name != file.name) continue;
                         if (byte_offset < box.byte_offset || byte_offset >= box.byte_offset + box.bytes) continue;
                         EXPECT_EQ(manifest.tensors[static_cast<size_t>(box.tensor)].group, TensorGroup::parameters);
                       }
                     }});
  });
}

}  // namespace
}  // namespace shiftron::testing

// Falling back, refusing, distinguishing models.
#include <nlohmann/json.hpp>
#include <utility>

#include "checkpoint/digest.h"
#include "checkpoint/fixture.h"
#include "checkpoint/steps.h"
#include "checkpoint/verify.h"
#include "few_files.h"

namespace shiftron {
namespace {

using namespace shiftron::testing;
using ::testing::AllOf;
using ::testing::HasSubstr;

const ParallelLayout kRestoreWriter{.tp = 2};
const ParallelLayout kRestoreReader{.tp = 2, .pp = 2};

int64_t load(const std::string& directory, std::optional<int64_t> which = {}, const FakeModel& model = kSmallModel,
             const ParallelLayout& layout = kRestoreReader, const std::string& log_file = "") {
  int64_t wrong = 0;
  const int64_t step = load_state(directory, model, layout, salt_of_step, &wrong, which, log_file);
  EXPECT_EQ(wrong, 0);
  return step;
}

class Restore : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const int64_t step : {10, 20, 30}) {
      ASSERT_TRUE(save_state(directory_.path(), kSmallModel, kRestoreWriter, step, salt_of_step(step)).saved);
    }
  }
  // Flips a byte in the middle of the named dataset's elements.
  void damage(int64_t step, const std::string& dataset) {
    const std::string path = directory_.path() + "/" + step_name(step);
    const Manifest manifest = read_manifest(path);
    for (const ManifestBox& box : manifest.boxes) {
      if (manifest.dataset(box) != dataset) continue;
      std::fstream file(path + "/" + manifest.files[static_cast<size_t>(box.file)].name,
                        std::ios::in | std::ios::out | std::ios::binary);
      const auto at = static_cast<int64_t>(box.byte_offset + box.bytes / 2);
      file.seekg(at);
      const int byte = file.get();
      file.seekp(at);
      file.put(static_cast<char>(byte ^ 0x10));
      return;
    }
    FAIL() << "no " << dataset;
  }
  TemporaryDirectory directory_;
};

TEST_F(Restore, NewestIsTakenAndAnExplicitStepIsObeyed) {
  EXPECT_EQ(load(directory_.path()), 30);
  EXPECT_EQ(load(directory_.path(), 20), 20);
  const Error error = error_of([&] { load(directory_.path(), 25); });
  EXPECT_EQ(error.code(), ExitCode::bad_input);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("step 25 is not in"), HasSubstr("30, 20, 10")));
}

TEST_F(Restore, NothingThereIsNoError) {
  EXPECT_EQ(load(directory_.path() + "/none"), -1);
  EXPECT_THAT(error_of([&] { load(directory_.path() + "/none", 3); }).what(), HasSubstr("available steps: none"));
}

// The damaged block is read by one stage only: all ranks must go to the older step together.
TEST_F(Restore, ADamagedBlockOfOneRankMakesAllFallBack) {
  damage(30, "second_moment/layers.1.attention.query.weight@6,0,0");
  const std::string log_file = directory_.path() + "/log";
  EXPECT_EQ(load(directory_.path(), {}, kSmallModel, kRestoreReader, log_file), 20);
  EXPECT_THAT(read_file(log_file), AllOf(HasSubstr("step 30 cannot be used: rank "), HasSubstr("rank-00001.h5"),
                                         HasSubstr("second_moment/layers.1.attention.query.weight@6,0,0")));
  const Error error = error_of([&] { load(directory_.path(), 30); });
  EXPECT_EQ(error.code(), ExitCode::no_checkpoint);
}

TEST_F(Restore, WithoutAnyValidStepEveryFaultIsNamedAndNothingWritten) {
  fs::remove(directory_.path() + "/step-00000030/manifest.json");
  fs::remove(directory_.path() + "/step-00000020/rank-00001.h5");
  damage(10, "parameters/layers.0.mlp.down.weight@0,18");
  const auto before = names_in(directory_.path());
  const Error error = error_of([&] { load(directory_.path()); });
  EXPECT_EQ(error.code(), ExitCode::no_checkpoint);
  EXPECT_THAT(error.what(),
              AllOf(HasSubstr("step 30"), HasSubstr("manifest.json"), HasSubstr("step 20"), HasSubstr("rank-00001.h5"),
                    HasSubstr("step 10"), HasSubstr("parameters/layers.0.mlp.down.weight@0,18")));
  EXPECT_EQ(names_in(directory_.path()), before);
}

TEST_F(Restore, ADamagedTokenizerIsAFault) {
  write_text(directory_.path() + "/step-00000030/tokenizer.model", std::string("tokenizer\0modem", 15));
  EXPECT_EQ(load(directory_.path()), 20);
  EXPECT_EQ(error_of([&] { read_content(directory_.path() + "/step-00000030"); }).code(), ExitCode::no_checkpoint);
  EXPECT_EQ(read_content(directory_.path() + "/step-00000020").tokenizer.file.bytes, content_at(20).tokenizer.file.bytes);
}

// `change` to a step's manifest, with the hash of what it is then.
void rewrite(const std::string& step, const std::function<void(nlohmann::json&)>& change) {
  nlohmann::json root = nlohmann::json::parse(read_file(step + "/manifest.json"));
  root.erase("xxh3_128");
  change(root);
  const std::string body = root.dump().substr(1) + "\n";
  write_text(step + "/manifest.json", "{\"xxh3_128\":\"" + to_hex(xxh3_128(body)) + "\",\n" + body);
}

TEST_F(Restore, ATokenizerOfAnySizeIsRefusedBeforeItIsAllocated) {
  const std::string step = directory_.path() + "/step-00000030";
  rewrite(step, [](nlohmann::json& root) {
    for (auto& file : root["files"]) {
      if (file["name"] == "tokenizer.model") file["bytes"] = uint64_t{1} << 61;
    }
  });
  const Error stated = error_of([&] { read_content(step); });
  EXPECT_EQ(stated.code(), ExitCode::no_checkpoint);
  EXPECT_THAT(stated.what(), AllOf(HasSubstr("tokenizer.model has 15 bytes"), HasSubstr("states 2305843009213693952")));
  EXPECT_EQ(load(directory_.path()), 20);

  const uint64_t huge = uint64_t{1} << 42;  // a sparse file of that size
  std::error_code error;
  fs::resize_file(step + "/tokenizer.model", huge, error);
  if (error) GTEST_SKIP() << "no files of that size here";
  rewrite(step, [&](nlohmann::json& root) {
    for (auto& file : root["files"]) {
      if (file["name"] == "tokenizer.model") file["bytes"] = huge;
    }
  });
  EXPECT_THAT(error_of([&] { read_content(step); }).what(), HasSubstr("tokenizer.model is too large"));
}

TEST_F(Restore, AStateWithoutItsPartsIsNamed) {
  const std::string step = directory_.path() + "/step-00000030";
  for (const char* key : {"configuration", "trainer"}) {
    const std::string whole = read_file(step + "/manifest.json");
    rewrite(step, [&](nlohmann::json& root) { root["state"].erase(key); });
    EXPECT_THAT(verify_step(step), ::testing::ElementsAre(HasSubstr("state." + std::string(key) + " is missing")));
    EXPECT_EQ(error_of([&] { read_content(step); }).code(), ExitCode::no_checkpoint);
    EXPECT_EQ(load(directory_.path()), 20);
    write_text(step + "/manifest.json", whole);
    rewrite(step, [&](nlohmann::json& root) { root["state"][key] = 3; });
    EXPECT_THAT(verify_step(step),
                ::testing::ElementsAre(HasSubstr("state." + std::string(key) + " is not an object")));
    write_text(step + "/manifest.json", whole);
  }
}

TEST_F(Restore, AnotherModelIsNotDamage) {
  const auto refused = [&](const FakeModel& model) {
    const Error error = error_of([&] { load(directory_.path(), {}, model); });
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    return std::string(error.what());
  };
  FakeModel other = kSmallModel;
  other.precise = true;
  EXPECT_THAT(refused(other), HasSubstr("tensors are float32 in the checkpoint, but float64 in this run"));
  other = kSmallModel;
  other.layers = 3;
  EXPECT_THAT(refused(other), HasSubstr("parameters/layers.2.attention.key.weight is missing in the checkpoint"));
  other = kSmallModel;
  other.tied = true;
  EXPECT_THAT(refused(other), HasSubstr("parameters/head.weight is in the checkpoint, but not in this model"));
  other = kSmallModel;
  other.ffn = 12;
  EXPECT_THAT(refused(other), HasSubstr("parameters/layers.0.mlp.down.weight is [24, 36] in the checkpoint, but [24, 12]"));
}

TEST_F(Restore, ParametersAloneForEvaluation) {
  const std::string path = directory_.path() + "/step-00000020";
  const ParallelLayout layout{.tp = 3};
  FakeModel model = kSmallModel;
  for (int rank = 0; rank < 3; ++rank) {
    Ledger ledger;
    ParameterSet set = make_set(model, layout, rank, ledger, false);
    load_parameters(path, set);
    EXPECT_EQ(count_wrong(model, set, 20), 0);
    ParameterSet training = make_set(model, layout, rank, ledger, true);
    load_parameters(path, training, {.with_moments = true});
    EXPECT_EQ(count_wrong(model, training, 20), 0);
  }
  model.layers = 1;
  Ledger ledger;
  ParameterSet set = make_set(model, {}, 0, ledger, false);
  EXPECT_THAT(error_of([&] { load_parameters(path, set); }).what(),
              HasSubstr("layers.1.mlp.down.weight is in the checkpoint"));
}

TEST_F(Restore, DigestsAndDifferences) {
  ASSERT_TRUE(save_state(directory_.path() + "/other", kSmallModel, {.tp = 3, .pp = 2}, 20, 20).saved);
  const std::string a = directory_.path() + "/step-00000020", b = directory_.path() + "/other/step-00000020";
  const auto left = digest_step(a), right = digest_step(b);
  ASSERT_EQ(left.tensors.size(), right.tensors.size());
  for (size_t i = 0; i < left.tensors.size(); ++i) {
    EXPECT_EQ(left.tensors[i].tensor, right.tensors[i].tensor);
    EXPECT_EQ(left.tensors[i].hash, right.tensors[i].hash) << left.tensors[i].tensor.path();
  }
  EXPECT_TRUE(diff_steps(a, b).equal());
  const StepDifference found = diff_steps(a, directory_.path() + "/step-00000030");
  EXPECT_FALSE(found.equal());
  EXPECT_EQ(found.state_equal, false);
  for (const TensorDifference& tensor : found.tensors) {
    EXPECT_GT(tensor.unequal, tensor.count * 9 / 10) << tensor.path;
    EXPECT_LT(tensor.max_absolute, 1);
    EXPECT_GT(tensor.relative_l2, 0.1);
  }
}

// One element changed by a known amount.
TEST_F(Restore, DifferenceOfOneElement) {
  Ledger ledger;
  Log log;
  const auto world = make_single_world();
  ParameterSet set = make_set(kSmallModel, {}, 0, ledger);
  load_parameters(directory_.path() + "/step-00000020", set, {.with_moments = true});
  set.find("final_norm.weight")->first_moment.data<float>()[3] += 0.25f;
  ASSERT_TRUE(save_checkpoint(directory_.path() + "/b", content_at(20), set, *world, {}, log).saved);
  const StepDifference found = diff_steps(directory_.path() + "/step-00000020", directory_.path() + "/b/step-00000020");
  for (const TensorDifference& tensor : found.tensors) {
    EXPECT_EQ(tensor.unequal, tensor.path == "first_moment/final_norm.weight" ? 1 : 0) << tensor.path;
    if (tensor.unequal > 0) {
      EXPECT_NEAR(tensor.max_absolute, 0.25, 1e-6);
    }
  }
}

// Four ranks read two files each.
TEST_F(Restore, TooManyOpenFilesRejectNoStep) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP()
      << "UndefinedBehaviorSanitizer itself opens a pipe to look at an object, and calls it broken where it cannot";
#endif
  const TemporaryDirectory logs;
  const auto before = names_in(directory_.path());
  for (int files = 0; files < 4; ++files) {
    const std::string log_file = logs.path() + "/" + std::to_string(files);
    const Error error = error_of([&] {
      const FewFiles few(1 + files);  // the log is one
      load(directory_.path(), {}, kSmallModel, kRestoreReader, log_file);
    });
    EXPECT_THAT(read_file(log_file), ::testing::Not(HasSubstr("cannot be used"))) << files;
    EXPECT_EQ(error.code(), ExitCode::crash) << files << ": " << error.what();
    EXPECT_THAT(error.what(), AllOf(HasSubstr("Too many open files"), HasSubstr("ulimit -n"))) << files;
    EXPECT_THAT(error.what(), ::testing::Not(HasSubstr("no valid checkpoint"))) << files;
  }
  const std::string step = directory_.path() + "/step-00000030";
  for (const std::function<void()>& reads :
       {std::function<void()>([&] { check_step(step); }), std::function<void()>([&] { verify_step(step); }),
        std::function<void()>([&] { read_content(step); })}) {
    const Error error = error_of([&] {
      const FewFiles few(0);
      reads();
    });
    EXPECT_EQ(error.code(), ExitCode::crash) << error.what();
  }
  EXPECT_EQ(names_in(directory_.path()), before);
  EXPECT_EQ(load(directory_.path()), 30);
}

// As `mv` and `ln -s` leave an archived step, and DVC or git-annex its files.
TEST_F(Restore, LinkedStepsAndFilesAreRead) {
  const TemporaryDirectory archive;
  const std::string step = directory_.path() + "/step-00000030";
  fs::rename(step, archive.path() + "/thirty");
  fs::create_directory_symlink(archive.path() + "/thirty", step);
  EXPECT_EQ(load(directory_.path()), 30);
  for (const std::string& name : names_in(archive.path() + "/thirty")) {
    fs::rename(archive.path() + "/thirty/" + name, archive.path() + "/" + name);
    fs::create_symlink("../" + name, archive.path() + "/thirty/" + name);
  }
  EXPECT_EQ(load(directory_.path()), 30);
  EXPECT_THAT(verify_step(step), ::testing::IsEmpty());
  EXPECT_EQ(read_content(step).tokenizer.file.bytes, content_at(30).tokenizer.file.bytes);
}

// What a link leads to may come back with its mount: no older step is taken in its place, and nothing is called
// damaged.
TEST_F(Restore, ALinkThatLeadsNowhereStopsTheStart) {
  const TemporaryDirectory archive;
  const std::string step = directory_.path() + "/step-00000030";
  const auto expect_refused = [&](const std::string& link) {
    const auto before = names_in(directory_.path());
    for (const std::function<void()>& reads :
         {std::function<void()>([&] { load(directory_.path()); }), std::function<void()>([&] { check_step(step); }),
          std::function<void()>([&] { verify_step(step); }), std::function<void()>([&] { read_content(step); })}) {
      const Error error = error_of(reads);
      EXPECT_EQ(error.code(), ExitCode::crash) << error.what();
      EXPECT_THAT(error.what(), AllOf(HasSubstr(link + " is a symbolic link to " + archive.path()),
                                      HasSubstr("which does not exist"), ::testing::Not(HasSubstr("lost"))));
    }
    EXPECT_EQ(names_in(directory_.path()), before);
  };
  fs::rename(step, archive.path() + "/moved");
  fs::create_directory_symlink(archive.path() + "/absent", step);
  expect_refused(step);
  fs::remove(step);
  fs::rename(archive.path() + "/moved", step);
  for (const std::string name : {"rank-00001.h5", "tokenizer.model", "manifest.json"}) {
    fs::rename(step + "/" + name, archive.path() + "/kept");
    fs::create_symlink(archive.path() + "/absent", step + "/" + name);
    if (name != "tokenizer.model" && name != "manifest.json") {
      const Error error = error_of([&] { load(directory_.path()); });
      EXPECT_EQ(error.code(), ExitCode::crash) << error.what();
      EXPECT_THAT(error_of([&] { verify_step(step); }).what(), HasSubstr("which does not exist"));
    } else {
      expect_refused(step + "/" + name);
    }
    fs::remove(step + "/" + name);
    fs::rename(archive.path() + "/kept", step + "/" + name);
  }
  EXPECT_EQ(load(directory_.path()), 30);
}

// As the retention of a running training does it: a rename, then the files go.
TEST_F(Restore, AStepThatRetentionRemovesIsNamedAsRemoved) {
  const TemporaryDirectory copies;
  int number = 0;
  const auto expect_removed =
      [&](const std::function<void(const std::string& step, const std::function<void()>& remove)>& work) {
        const std::string run = copies.path() + "/" + std::to_string(number++);
        fs::copy(directory_.path(), run, fs::copy_options::recursive);
        const std::string step = run + "/step-00000010";
        const Error error = error_of([&] { work(step, [&] { remove_step({10, step}); }); });
        EXPECT_EQ(error.code(), ExitCode::no_checkpoint) << error.what();
        EXPECT_THAT(error.what(),
                    AllOf(HasSubstr(step + " does not exist, or no longer"), HasSubstr("checkpoint.keep"),
                          ::testing::Not(HasSubstr("lost")), ::testing::Not(HasSubstr("check the path"))));
        EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
      };
  expect_removed([](const std::string& step, const auto& remove) {
    remove();
    check_step(step);
  });
  expect_removed([](const std::string& step, const auto& remove) {
    remove();
    verify_step(step);
  });
  expect_removed([](const std::string& step, const auto& remove) {  // between the manifest and a file
    const Manifest manifest = check_step(step);
    remove();
    first_file_fault(step, manifest);
  });
  expect_removed([](const std::string& step, const auto& remove) {
    const Manifest manifest = check_step(step);
    remove();
    read_content(step, manifest);
  });
  expect_removed([](const std::string& step, const auto& remove) {  // between two files
    Ledger ledger;
    ParameterSet set = make_set(kSmallModel, {}, 0, ledger, false);
    bool removed = false;
    load_parameters(step, set, {.at_read = [&](const auto&, uint64_t, uint64_t) {
                      if (!std::exchange(removed, true)) remove();
                    }});
  });
  expect_removed([](const std::string& step, const auto& remove) {  // while bytes are compared
    bool removed = false;
    verify_step(step, [&](uint64_t, uint64_t) {
      if (!std::exchange(removed, true)) remove();
    });
  });
}

}  // namespace
}  // namespace shiftron

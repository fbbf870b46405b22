// Which steps are kept, over many states of a directory.
#include <chrono>
#include <ctime>
#include <random>
#include <set>

#include "checkpoint/fixture.h"
#include "without_rights.h"

namespace shiftron {
namespace {

using namespace shiftron::testing;
using ::testing::ElementsAre;

const FakeModel kRetainedModel{.layers = 1, .hidden = 4, .heads = 1, .head_dim = 1, .ffn = 4, .vocab = 3};

// A directory with one saved step to copy from: making steps by saving them all would take minutes.
class Retained : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int64_t step = 0; step < 12; ++step) {
      ASSERT_TRUE(save_state(source_.path(), kRetainedModel, {}, step, 1).saved);
    }
  }
  void add(const std::string& directory, int64_t step) {
    fs::copy(source_.path() + "/" + step_name(step), directory + "/" + step_name(step), fs::copy_options::recursive);
  }
  TemporaryDirectory source_;
  Log log_;
};

TEST_F(Retained, ThreeHundredDirectoryStates) {
  std::mt19937_64 random(5);
  for (int trial = 0; trial < 300; ++trial) {
    const TemporaryDirectory place;
    const std::string& directory = place.path();
    const Retention keep{.keep = 1 + static_cast<int64_t>(random() % 3),
                         .keep_every = static_cast<int64_t>(random() % 5)};
    std::set<int64_t> valid, broken;
    std::set<std::string> others;
    for (int64_t step = 0; step < 12; ++step) {
      const uint64_t kind = random() % 4;
      if (kind == 0) continue;
      add(directory, step);
      const std::string path = directory + "/" + step_name(step);
      if (kind == 1) {
        broken.insert(step);
        if (random() % 2 == 0) {
          fs::remove(path + "/manifest.json");
        } else {
          fs::resize_file(path + "/rank-00000.h5", fs::file_size(path + "/rank-00000.h5") - 1);
        }
      } else {
        valid.insert(step);
      }
    }
    for (const std::string name : {"step-00000013.tmp", "superseded-step-00000020", "broken-step-00000003", "notes"}) {
      if (random() % 2 == 0) continue;
      fs::create_directory(directory + "/" + name);
      others.insert(name);
    }
    if (valid.empty()) continue;
    // The step just saved is nearly always the newest.
    const int64_t saved = random() % 8 == 0 ? *valid.begin() : *valid.rbegin();

    std::set<int64_t> expected = {saved};
    int64_t counted = 0;
    for (auto step = valid.rbegin(); step != valid.rend(); ++step) {
      if (counted < keep.keep || (keep.keep_every > 0 && *step % keep.keep_every == 0)) expected.insert(*step);
      ++counted;
    }
    apply_retention(directory, keep, saved, log_);
    std::set<std::string> names = others;
    for (const int64_t step : expected) names.insert(step_name(step));
    for (const int64_t step : broken) names.insert(step_name(step));
    EXPECT_THAT(names_in(directory), ::testing::ElementsAreArray(names)) << "trial " << trial;
    for (const int64_t step : expected) EXPECT_NO_THROW(check_step(directory + "/" + step_name(step)));
  }
}

TEST_F(Retained, SavingKeepsTheNewestAndEveryTenth) {
  const TemporaryDirectory place;
  for (int64_t step = 0; step <= 45; step += 5) {
    ASSERT_TRUE(save_state(place.path(), kRetainedModel, {}, step, 1, {.keep = 2, .keep_every = 20}).saved);
  }
  EXPECT_THAT(names_in(place.path()), ElementsAre("step-00000000", "step-00000020", "step-00000040", "step-00000045"));
}

// Where more are to stay than there are, which is how all are kept: of large models a manifest takes seconds.
TEST_F(Retained, NoStepIsReadWhereNoneCanGo) {
  const auto seconds = [](const auto& work) {
    const std::clock_t begin = std::clock();
    for (int i = 0; i < 20; ++i) work();
    return static_cast<double>(std::clock() - begin);
  };
  const double one = seconds([&] { check_step(source_.path() + "/" + step_name(3)); });
  const double all = seconds([&] { EXPECT_TRUE(superfluous_steps(source_.path(), {.keep = 12}, 11).empty()); });
  EXPECT_LT(all, 3 * one) << "of 12 steps";
}

// Nor one twice, as long as it stays as it is.
TEST_F(Retained, AStepIsReadOnce) {
  const TemporaryDirectory place;
  const std::string& directory = place.path();
  const auto before = fs::file_time_type::clock::now() - std::chrono::hours(1);  // of times that tell changes
  for (int64_t step = 0; step < 12; ++step) {
    add(directory, step);
    const std::string path = directory + "/" + step_name(step);
    for (const std::string& name : {path + "/manifest.json", path}) fs::last_write_time(name, before);
  }
  KnownSteps known;
  int read = 0;
  Retention keep{.keep = 6, .known = &known};
  keep.promised_to_keep = [&](const Manifest& manifest) {
    ++read;
    return manifest.step % 4 == 0;
  };
  const auto doomed = [&](int64_t saved) {
    read = 0;
    std::vector<int64_t> steps;
    for (const StepDirectory& entry : superfluous_steps(directory, keep, saved)) steps.push_back(entry.step);
    return steps;
  };
  EXPECT_THAT(doomed(11), ElementsAre(5, 3, 2, 1));
  EXPECT_EQ(read, 11);  // that which has just been verified is not
  EXPECT_THAT(doomed(11), ElementsAre(5, 3, 2, 1));
  EXPECT_EQ(read, 0);
  EXPECT_THAT(doomed(-1), ElementsAre(5, 3, 2, 1));
  EXPECT_EQ(read, 1);

  fs::last_write_time(directory + "/" + step_name(9) + "/manifest.json", before + std::chrono::seconds(1));
  EXPECT_THAT(doomed(11), ElementsAre(5, 3, 2, 1));
  EXPECT_EQ(read, 1);
  fs::remove(directory + "/" + step_name(10) + "/rank-00000.h5");
  EXPECT_THAT(doomed(11), ElementsAre(3, 2, 1));  // one less counts
  EXPECT_EQ(read, 0);
}

// A step that somebody protected, or that another user copied there: its name goes, its files cannot.
TEST_F(Retained, WhatCannotBeRemovedStopsNoSave) {
  const TemporaryDirectory place;
  const std::string& directory = place.path();
  for (const int64_t step : {1, 2, 3}) add(directory, step);
  open_to_all(directory, true);
  for (const int64_t step : {1, 3}) open_to_all(directory + "/" + step_name(step), true);
  open_to_all(directory + "/" + step_name(2), false);
  {
    const WithoutRights somebody;
    ASSERT_TRUE(somebody.holds());
    apply_retention(directory, {.keep = 1}, 3, log_);
    EXPECT_THAT(names_in(directory), ElementsAre("step-00000003", "trash-step-00000002"));
    EXPECT_TRUE(save_state(directory, kRetainedModel, {}, 4, 1, {.keep = 1}).saved);
    EXPECT_THAT(names_in(directory), ElementsAre("step-00000004", "trash-step-00000002"));
    sweep_temporaries(directory, log_);
  }
  fs::rename(directory + "/trash-step-00000002", directory + "/step-00000005.tmp");
  {
    const WithoutRights somebody;
    const SaveResult result = save_state(directory, kRetainedModel, {}, 5, 1, {.keep = 1});
    EXPECT_FALSE(result.saved);
    EXPECT_THAT(result.reason,
                ::testing::HasSubstr("step-00000005.tmp, left by an interrupted save, cannot be removed"));
  }
  EXPECT_THAT(names_in(directory), ElementsAre("step-00000004", "step-00000005.tmp"));
  open_to_all(directory + "/step-00000005.tmp", true);  // for its removal
}

// Of a step that lies elsewhere the link goes, and of files that do.
TEST_F(Retained, WhatALinkLeadsToStays) {
  const TemporaryDirectory place, archive;
  const std::string& directory = place.path();
  for (const int64_t step : {1, 2, 3, 4}) add(directory, step);
  fs::rename(directory + "/step-00000001", archive.path() + "/one");
  fs::create_directory_symlink(archive.path() + "/one", directory + "/step-00000001");
  fs::rename(directory + "/step-00000002/rank-00000.h5", archive.path() + "/two.h5");
  fs::create_symlink(archive.path() + "/two.h5", directory + "/step-00000002/rank-00000.h5");
  apply_retention(directory, {.keep = 2}, 4, log_);
  EXPECT_THAT(names_in(directory), ElementsAre("step-00000003", "step-00000004"));
  EXPECT_THAT(names_in(archive.path()), ElementsAre("one", "two.h5"));
  EXPECT_THAT(names_in(archive.path() + "/one"), ElementsAre("manifest.json", "rank-00000.h5", "tokenizer.model"));

  fs::create_directory_symlink(archive.path() + "/one",
                               directory + "/step-00000005");  // what a save left, and a later step
  fs::create_directory_symlink(archive.path() + "/one", directory + "/step-00000006.tmp");
  EXPECT_THAT(supersede_later_steps(directory, 4, log_), ElementsAre(5));
  EXPECT_TRUE(fs::is_symlink(directory + "/superseded-step-00000005"));
  EXPECT_TRUE(save_state(directory, kRetainedModel, {}, 6, 1, {.keep = 9}).saved);
  EXPECT_FALSE(fs::is_symlink(directory + "/step-00000006"));
  EXPECT_THAT(names_in(archive.path() + "/one"), ElementsAre("manifest.json", "rank-00000.h5", "tokenizer.model"));
}

TEST_F(Retained, LaterStepsAreSupersededNotDeleted) {
  const TemporaryDirectory place;
  for (const int64_t step : {1, 2, 3}) add(place.path(), step);
  fs::create_directory(place.path() + "/superseded-step-00000003");
  EXPECT_THAT(supersede_later_steps(place.path(), 1, log_), ElementsAre(3, 2));
  EXPECT_THAT(names_in(place.path()), ElementsAre("step-00000001", "superseded-step-00000002",
                                                  "superseded-step-00000003", "superseded-step-00000003.2"));
  EXPECT_NO_THROW(check_step(place.path() + "/superseded-step-00000003.2"));
  EXPECT_THAT(supersede_later_steps(place.path(), 1, log_), ElementsAre());
}

TEST_F(Retained, OnlyExactNamesAreSteps) {
  const TemporaryDirectory place;
  for (const std::string name : {"step-5", "step-0000000a", "step-000000001", "step-00000001.tmp", "xstep-00000001",
                                 "step-", "step-99999999999999999999"}) {
    fs::create_directory(place.path() + "/" + name);
  }
  add(place.path(), 7);
  ASSERT_EQ(list_steps(place.path()).size(), 1u);
  EXPECT_EQ(list_steps(place.path())[0].step, 7);
  EXPECT_EQ(step_name(123456789), "step-123456789");
  fs::rename(place.path() + "/step-00000007", place.path() + "/step-00000008");
  EXPECT_THAT(error_of([&] { check_step(place.path() + "/step-00000008"); }).what(),
              ::testing::HasSubstr("holds step 7, but its directory is named for step 8"));
}

}  // namespace
}  // namespace shiftron

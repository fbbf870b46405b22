// Builds killed before and after every rename: the next one succeeds, or finds the dataset finished.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "data/verify.h"
#include "expect_error.h"
#include "fixture.h"

namespace {

int kill_at = -1;  // renames are counted from 0; two moments each, before and after it

void pass_moment() {
  if (kill_at-- == 0) ::kill(::getpid(), SIGKILL);
}

}  // namespace

// The C library's, as this program links it.
extern "C" int rename(const char* from, const char* to) noexcept {
  pass_moment();
  const int result = ::renameat(AT_FDCWD, from, AT_FDCWD, to);
  pass_moment();
  return result;
}

namespace shiftron {
namespace {

namespace fs = std::filesystem;

// Whether it was killed; else it has ended well.
bool is_killed(const BuildOptions& options, int moment) {
  const pid_t child = ::fork();
  if (child == 0) {
    kill_at = moment;
    try {
      build_dataset(options);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      ::_exit(1);
    }
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
  return WIFSIGNALED(status);
}

void expect_whole(const BuildResult& built, const std::string& output, int moment) {
  for (const BuiltDataset& dataset : built.datasets) {
    EXPECT_EQ(Dataset(dataset.directory).fingerprint(), dataset.fingerprint) << moment;
    EXPECT_TRUE(verify_dataset(dataset.directory).faults.empty()) << moment;
  }
  for (const auto& entry : fs::recursive_directory_iterator(output)) {
    const std::string name = entry.path().filename();
    EXPECT_TRUE(entry.is_directory() ? name == "train" || name == "validation"
                                     : name == "dataset.json" || name == "tokenizer.model" || name.ends_with(".h5"))
        << entry.path() << " at moment " << moment;
  }
}

void kill_everywhere(double validation_fraction) {
  const Scratch scratch;
  std::vector<std::string> documents = example_documents(40);
  documents.insert(documents.begin() + 3, "");
  BuildOptions options = example_build(scratch, documents, "example");
  options.validation_fraction = validation_fraction;
  const size_t parts = validation_fraction > 0 ? 2 : 1;
  int moment = 0, found = 0;
  for (;; ++moment) {
    options.output = scratch / ("dataset" + std::to_string(moment));
    if (!is_killed(options, moment)) break;
    const BuildResult built = build_dataset(options);
    EXPECT_EQ(built.datasets.size(), parts) << moment;
    EXPECT_EQ(built.empty_documents, 1) << moment;
    found += built.was_there ? 1 : 0;
    expect_whole(built, options.output, moment);
    if (::testing::Test::HasFailure()) FAIL() << "moment " << moment;
  }
  EXPECT_GE(moment, static_cast<int>(parts * 6));  // a shard, the tokenizer and dataset.json
  EXPECT_EQ(found, 1);                             // after the last rename
}

TEST(KilledBuild, OfOneDatasetCanBeGivenAgain) {
  kill_everywhere(0);
}

TEST(KilledBuild, OfTwoDatasetsCanBeGivenAgain) {
  kill_everywhere(0.3);
}

// Killed when everything was in place, and before that was reported.
TEST(KilledBuild, WhatIsWholeIsTakenForTheSameRequestAlone) {
  const Scratch scratch;
  std::vector<std::string> documents = example_documents(40);
  documents.push_back(documents[3]);
  BuildOptions options = example_build(scratch, documents);
  options.deduplicate = true;
  const auto build_killed = [&] {
    fs::remove_all(options.output);
    const pid_t child = ::fork();
    if (child == 0) build_dataset(options, {}, [](const BuildResult&) { ::kill(::getpid(), SIGKILL); });
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status));
    return Dataset(options.output).fingerprint();
  };
  const std::string fingerprint = build_killed();
  const BuildResult built = build_dataset(options);
  EXPECT_TRUE(built.was_there);
  EXPECT_EQ(built.datasets.at(0).fingerprint, fingerprint);
  EXPECT_EQ(built.datasets.at(0).documents, 40);
  EXPECT_EQ(built.duplicates, 1);
  EXPECT_ERROR(build_dataset(options), ExitCode::bad_input,
               "already holds a dataset");  // after one that had reported it

  BuildOptions other = options;
  other.seed = 1;
  build_killed();
  EXPECT_ERROR(build_dataset(other), ExitCode::bad_input, "already holds a dataset");
  build_killed();
  scratch.write("dataset.txt", Scratch::read(options.inputs[0]) + "more");
  EXPECT_ERROR(build_dataset(options), ExitCode::bad_input, "already holds a dataset");
  EXPECT_EQ(Dataset(options.output).fingerprint(), fingerprint);
}

// A dataset that was built next to the remains, into one of their folders, does not count as remains.
TEST(KilledBuild, WhatAnotherBuildMadeStays) {
  const Scratch scratch;
  BuildOptions options = example_build(scratch, example_documents(40));
  options.validation_fraction = 0.3;
  ASSERT_TRUE(is_killed(options, 0));
  BuildOptions other = options;
  other.validation_fraction = 0;
  other.output = options.output + "/other";
  const std::string fingerprint = build_dataset(other).datasets[0].fingerprint;
  fs::remove_all(options.output + "/train");
  fs::rename(other.output, options.output + "/train");
  EXPECT_ERROR(build_dataset(options), ExitCode::bad_input, "train already holds a dataset");
  EXPECT_EQ(Dataset(options.output + "/train").fingerprint(), fingerprint);
}

}  // namespace
}  // namespace shiftron

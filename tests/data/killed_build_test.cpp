// Builds killed at renames and between documents: the next one succeeds, continues, or finds the dataset finished.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <sstream>

#include "data/build_directory.h"
#include "data/verify.h"
#include "expect_error.h"
#include "fixture.h"
#include "packing.h"

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

// Whether it was killed; else it has ended well. with_progress: moments are also those at which progress is reported,
// which is after each document.
bool is_killed(const BuildOptions& options, int moment, bool with_progress = false) {
  const pid_t child = ::fork();
  if (child == 0) {
    kill_at = moment;
    std::ostringstream lines;
    const auto seconds = [with_progress] {
      if (with_progress) pass_moment();
      return 0.0;
    };
    try {
      build_dataset(options, {&lines, false, seconds});
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
  EXPECT_GT(found, 1);                             // what is about to be moved is moved
}

TEST(KilledBuild, OfOneDatasetCanBeGivenAgain) {
  kill_everywhere(0);
}

TEST(KilledBuild, OfTwoDatasetsCanBeGivenAgain) {
  kill_everywhere(0.3);
}

// The bytes of each file below `directory`.
std::map<std::string, std::string> files_in(const std::string& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file()) files[fs::relative(entry.path(), directory)] = Scratch::read(entry.path());
  }
  return files;
}

// As a killed build may leave them.
void append_to_buckets(const std::string& output) {
  for (const auto& entry : fs::recursive_directory_iterator(output)) {
    if (!entry.path().filename().string().starts_with("bucket-")) continue;
    FileDescriptor file = FileDescriptor::open_for_appending(entry.path());
    file.append("not saved", 9);
  }
}

// Kills the build again and again, until some of its shards are complete. Then it must end with the bytes and the
// counts of an uninterrupted one.
void kill_and_continue(BuildOptions options, const std::string& output) {
  options.output = output + "-whole";
  const BuildResult whole = build_dataset(options);
  options.output = output;
  options.save_seconds = 0;
  const std::string journal = output + "/.building/train/sealed-shards";
  for (int moment = 9; !fs::exists(journal) || fs::file_size(journal) == 0; moment += 5) {
    ASSERT_TRUE(is_killed(options, moment, true)) << moment;
    append_to_buckets(output);
  }
  std::ostringstream lines;
  const BuildResult built = build_dataset(options, {&lines, false, [] { return 0.0; }});
  EXPECT_TRUE(built.was_there || lines.str().find("writing shards: resumes; ") != std::string::npos) << lines.str();
  EXPECT_EQ(built.bad_lines, whole.bad_lines);
  EXPECT_TRUE(built.was_there || built.first_bad == whole.first_bad);
  EXPECT_EQ(built.duplicates, whole.duplicates);
  EXPECT_EQ(built.empty_documents, whole.empty_documents);
  EXPECT_EQ(built.foreign_bytes, whole.foreign_bytes);
  EXPECT_EQ(files_in(output), files_in(output + "-whole"));
}

TEST(KilledBuild, OfTextFilesContinues) {
  const Scratch scratch;
  BuildOptions options = example_build(scratch, example_documents(30));
  std::vector<std::string> more = example_documents(12);
  more[3] = "";
  more[4] = "\xFF";
  options.inputs.push_back(scratch.write("more.txt", "\xEF\xBB\xBF" + joined(more, "\x1E")));
  options.inputs.push_back(scratch.write("last.txt", "a document"));
  options.deduplicate = true;
  options.shard_tokens = 100;
  options.validation_fraction = 0.3;
  kill_and_continue(options, scratch / "dataset");
}

TEST(KilledBuild, OfPackedLinesContinues) {
  const Scratch scratch;
  BuildOptions options = example_build(scratch, {});
  std::string lines;
  for (int i = 0; i < 30; ++i) {
    const std::string word = "token " + std::to_string(i % 20);
    lines += R"({"prompt": ")" + word + R"(", "completion": ")" + word + " " + word + "\"}\n" +
             (i % 5 == 0 ? "broken\n" : "") + (i % 7 == 0 ? "\n" : "");
  }
  options.document_separator = "";
  options.inputs = {scratch.write("lines.jsonl.gz", packed(Packing::gzip, lines))};
  options.validation_inputs = {scratch.write("held-out.jsonl", R"({"prompt": "a", "completion": "b"})")};
  options.skip_bad = 6;
  options.deduplicate = true;
  options.pack = 64;
  options.shard_tokens = 100;
  options.threads = 3;
  kill_and_continue(options, scratch / "dataset");
}

TEST(KilledBuild, OfOtherInputsOrOptionsIsRefused) {
  const Scratch scratch;
  BuildOptions options = example_build(scratch, example_documents(20));
  options.save_seconds = 0;
  ASSERT_TRUE(is_killed(options, 9));
  const auto expect_refused = [&](const BuildOptions& other, const std::string& change) {
    EXPECT_ERROR(build_dataset(other), ExitCode::bad_input, "changed are " + change + "; repeat the earlier command");
  };
  BuildOptions other = options;
  other.seed = 3;
  other.deduplicate = true;
  expect_refused(other, "--deduplicate (was not given, is given), --seed (was 0, is 3)");
  other = options;
  other.inputs.push_back(scratch.write("new.txt", "new"));
  expect_refused(other, "--input " + other.inputs[1] + " (new)");
  EXPECT_TRUE(is_killed(options, 3));  // it is still there
  scratch.write("dataset.txt", "another text");
  expect_refused(options, "--input " + options.inputs[0]);
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

TEST(FailedBuild, RemovesOnlyWhatItMade) {
  const Scratch scratch;
  const BuildOptions options = example_build(scratch, example_documents(40));
  BuildOptions inner = options;
  inner.output = options.output + "/validation";
  {
    const BuildDirectory failed(options.output, {""}, {});
    build_dataset(inner);  // meanwhile
  }
  EXPECT_TRUE(verify_dataset(inner.output).faults.empty());

  BuildOptions other = options;
  other.output = scratch / "other";
  fs::create_directories(other.output + "/.building");  // of a build that was killed at its start
  const std::string own = scratch.write("other/tokenizer.model", "the user's");
  EXPECT_ERROR(build_dataset(other), ExitCode::bad_input, "is not empty (tokenizer.model)");
  EXPECT_EQ(Scratch::read(own), "the user's");
}

TEST(FailedBuild, AnInputThatChangesMeanwhileIsRefused) {
  const Scratch scratch;
  const BuildOptions options = example_build(scratch, example_documents(40));
  std::ostringstream lines;
  const auto change = [&] {
    fs::last_write_time(options.inputs[0], fs::file_time_type::clock::now() + std::chrono::seconds(5));
    return 0.0;
  };
  EXPECT_ERROR(build_dataset(options, {&lines, false, change}), ExitCode::bad_input,
               options.inputs[0] + " changed while it was read");
  EXPECT_FALSE(fs::exists(options.output));
}

// Not one text of all lines.
TEST(FailedBuild, ABrokenFirstLineIsABrokenLine) {
  const Scratch scratch;
  BuildOptions options = example_build(scratch, example_documents(1));
  options.document_separator = "";
  options.inputs = {scratch.write("lines", "{\"text\":\"a\n{\"text\":\"b\"}\n")};
  EXPECT_ERROR(build_dataset(options), ExitCode::bad_input, "lines:1");
  options.skip_bad = 1;
  const BuildResult built = build_dataset(options);
  EXPECT_EQ(built.bad_lines, 1U);
  EXPECT_EQ(built.datasets.at(0).documents, 1);
  options.output = scratch / "nothing";
  options.inputs = {scratch.write("lines", "{\"text\":\"a\n")};
  EXPECT_ERROR(build_dataset(options), ExitCode::bad_input, "1 broken line was left out; no document with text");
}

}  // namespace
}  // namespace shiftron

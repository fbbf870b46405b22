// Builds of text as people have it: packed, with duplicates, with broken lines, with a validation part of its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "core/hash.h"
#include "data/buckets.h"
#include "data/build.h"
#include "data/duplicates.h"
#include "data/verify.h"
#include "expect_error.h"
#include "fixture.h"
#include "packing.h"

namespace shiftron {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> in_order(std::vector<std::string> documents) {
  std::sort(documents.begin(), documents.end());
  return documents;
}

TEST(Build, ValidationInputsAreHeldOut) {
  const Scratch scratch;
  std::vector<std::string> documents = example_documents(40);
  BuildOptions options = example_build(scratch, {documents.begin(), documents.begin() + 30});
  options.validation_inputs = {scratch.write("held.txt", joined({documents.begin() + 30, documents.end()}, "\x1E"))};
  const BuildResult result = build_dataset(options);
  ASSERT_EQ(result.datasets.size(), 2u);
  EXPECT_EQ(in_order(all_documents(options.output + "/train")), in_order({documents.begin(), documents.begin() + 30}));
  EXPECT_EQ(in_order(all_documents(options.output + "/validation")),
            in_order({documents.begin() + 30, documents.end()}));
  options.output = scratch / "none";
  scratch.write("held.txt", "");
  EXPECT_ERROR(
      build_dataset(options), ExitCode::bad_input,
      "none of the 30 documents is in the validation part; give other files with --input and --validation-input");
  EXPECT_FALSE(fs::exists(options.output));
}

TEST(Build, OfEqualDocumentsTheFirstIsKept) {
  const Scratch scratch;
  const std::vector<std::string> documents = example_documents(30);
  std::vector<std::string> repeated;
  for (int i = 0; i < 30; ++i) repeated.push_back(documents[static_cast<size_t>(i * i % 30)]);
  const std::set<std::string> different(repeated.begin(), repeated.end());
  std::vector<std::string> expected(different.begin(), different.end());
  BuildOptions options = example_build(scratch, repeated);
  options.deduplicate = true;
  options.shard_tokens = 300;
  const BuildResult one = build_dataset(options);
  EXPECT_EQ(one.duplicates, static_cast<int64_t>(30 - different.size()));
  EXPECT_EQ(in_order(all_documents(options.output)), expected);
  EXPECT_TRUE(verify_dataset(options.output).faults.empty());
  options.threads = 5;
  options.output = scratch / "threads";
  EXPECT_EQ(build_dataset(options).datasets[0].fingerprint, one.datasets[0].fingerprint);
  // The validation part comes first: what is held out is not learned.
  options.validation_inputs = {scratch.write("held.txt", repeated[1] + "\x1E" + "new")};
  options.output = scratch / "held";
  EXPECT_EQ(build_dataset(options).duplicates, static_cast<int64_t>(31 - different.size()));
  EXPECT_EQ(in_order(all_documents(scratch / "held/validation")), in_order({repeated[1], "new"}));
  std::erase(expected, repeated[1]);
  EXPECT_EQ(in_order(all_documents(scratch / "held/train")), expected);
}

TEST(Build, PromptsOrIdsAreEqualOnlyAsAWhole) {
  const Scratch scratch;
  BuildOptions options = example_build(scratch, {});
  options.document_separator = "";
  options.deduplicate = true;
  options.inputs = {scratch.write("pairs.jsonl",
                                  "{\"prompt\": \"ab\", \"completion\": \"c\"}\n"
                                  "{\"prompt\": \"a\", \"completion\": \"bc\"}\n"
                                  "{\"completion\": \"c\", \"prompt\": \"ab\"}\n")};
  EXPECT_EQ(build_dataset(options).duplicates, 1);
  options.inputs = {scratch.write("ids.jsonl",
                                  "{\"ids\": [5, 6], \"targets\": [6, 7]}\n"
                                  "{\"ids\": [5, 6], \"targets\": [6, null]}\n"
                                  "{\"ids\": [5, 6], \"targets\": [6, 7]}\n")};
  options.ids = true;
  options.output = scratch / "ids";
  EXPECT_EQ(build_dataset(options).duplicates, 1);
}

TEST(Build, BrokenLinesOfIdsAreLeftOut) {
  const Scratch scratch;
  BuildOptions options = example_build(scratch, {});
  options.ids = true;
  options.threads = 3;
  const std::string good = "{\"ids\": [5, 6], \"n\": NaN}\n", bad = "{\"ids\": [5.5]}\n{\"ids\": [\n";
  const std::string foreign = "{\"ids\": [9999]}\n{\"ids\": [5], \"targets\": [9999]}\n";
  const std::string other_form = "{\"ids\": [5], \"targets\": [6]}\n";
  options.inputs = {scratch.write("ids.jsonl", good + bad + good + bad + foreign + other_form)};
  options.skip_bad = 6;
  EXPECT_ERROR(build_dataset(options), ExitCode::bad_input, "leave them out with --skip-bad 7");
  EXPECT_FALSE(fs::exists(options.output));
  options.skip_bad = 7;
  const BuildResult result = build_dataset(options);
  EXPECT_EQ(result.bad_lines, 7u);
  ASSERT_EQ(result.first_bad.size(), 7u);
  EXPECT_THAT(result.first_bad[2], ::testing::HasSubstr("ids.jsonl:5: "));
  EXPECT_EQ(result.datasets[0].documents, 2);
}

TEST(Build, DamagedFilesLeaveNothing) {
  const Scratch scratch;
  BuildOptions options = example_build(scratch, example_documents(200));
  const std::string whole = packed(Packing::gzip, Scratch::read(options.inputs[0]));
  options.inputs = {scratch.write("packed.txt.gz", whole)};
  EXPECT_EQ(in_order(all_documents(build_dataset(options).datasets[0].directory)), in_order(example_documents(200)));
  options.inputs = {scratch.write("cut.txt.gz", whole.substr(0, whole.size() - 9))};
  options.output = scratch / "cut";
  EXPECT_ERROR(build_dataset(options), ExitCode::bad_input, "cut.txt.gz is damaged: it is cut off at byte ");
  EXPECT_FALSE(fs::exists(options.output));
}

// Each content has its own documents with it, wherever they are kept.
TEST(Duplicates, AreFoundInEveryBucket) {
  for (const size_t count : {1, 3, 16}) {
    const Scratch scratch;
    DuplicateFinder finder(scratch.path(), count);
    for (uint64_t i = 500; i-- > 0;) finder.add(xxh3_128(std::to_string(i % 200)), {i, 1, 2, i + 7});
    std::set<uint64_t> found;
    EXPECT_EQ(finder.find([&](const DuplicateFinder::Document& document) {
      found.insert(document.number);
      EXPECT_EQ(document.part, 1u);
      EXPECT_EQ(document.bucket, 2u);
      EXPECT_EQ(document.first, document.number + 7);
    }),
              300);
    EXPECT_EQ(found.size(), 300u);
    EXPECT_EQ(*found.begin(), 200u);  // the first 200 are kept, in whatever order they were added
  }
}

TEST(Buckets, WhatIsLeftOutIsGone) {
  const Scratch scratch;
  DocumentBuckets buckets(scratch.path(), 4);
  std::vector<DocumentBuckets::Place> places;
  for (uint64_t i = 0; i < 100; ++i) places.push_back(buckets.add(xxh3_64(&i, 8), {static_cast<int32_t>(i), 7}, 3));
  buckets.finish();
  for (size_t i = 100; i-- > 10;) buckets.leave_out(places[i]);
  buckets.finish_leaving_out();
  EXPECT_EQ(buckets.documents(), 10);
  EXPECT_EQ(buckets.tokens(), 20);
  EXPECT_EQ(buckets.text_bytes(), 30);
  std::set<int32_t> left;
  for (size_t bucket = 0; bucket < buckets.buckets(); ++bucket) {
    const std::vector<int32_t> tokens = buckets.tokens_of(bucket);
    for (const auto& document : buckets.sorted(bucket)) left.insert(tokens[document.first]);
  }
  EXPECT_EQ(left, (std::set<int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

}  // namespace
}  // namespace shiftron

// Building and verifying datasets: nothing lost, repeatable, clear faults, no remains.
#include "data/build.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <utility>

#include "core/hash.h"
#include "core/hdf5_file.h"
#include "data/buckets.h"
#include "data/document_samples.h"
#include "data/verify.h"
#include "expect_error.h"
#include "few_files.h"
#include "fixture.h"
#include "small_disk.h"

namespace shiftron {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> sorted(std::vector<std::string> documents) {
  std::sort(documents.begin(), documents.end());
  return documents;
}

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

TEST(Build, KeepsEveryDocumentAndByte) {
  const Scratch scratch;
  std::vector<std::string> documents = example_documents(50);
  documents.push_back(std::string("\0\xFF </s> \xE2\x96\x81", 12));
  documents.push_back("é");
  BuildOptions options = example_build(scratch, documents);
  options.shard_tokens = 500;
  const BuildResult result = build_dataset(options);
  ASSERT_EQ(result.datasets.size(), 1u);
  const BuiltDataset& built = result.datasets[0];
  EXPECT_EQ(built.directory, options.output);
  EXPECT_EQ(built.documents, 52);
  int64_t bytes = 0;
  for (const std::string& document : documents) bytes += static_cast<int64_t>(document.size());
  EXPECT_EQ(built.text_bytes, bytes);
  EXPECT_EQ(built.tokens, static_cast<int64_t>(all_tokens(built.directory).size()));
  EXPECT_GT(built.shards, 3);
  EXPECT_EQ(built.fingerprint, Dataset(built.directory).fingerprint());
  EXPECT_EQ(sorted(all_documents(built.directory)), sorted(documents));
  EXPECT_NE(all_documents(built.directory), documents);  // shuffled
  EXPECT_TRUE(verify_dataset(built.directory).faults.empty());
  for (const std::string& name : names_in(built.directory)) {
    EXPECT_TRUE(name == "dataset.json" || name == "tokenizer.model" || name.compare(0, 6, "shard-") == 0) << name;
  }
}

TEST(Build, ShardsFollowTheFormat) {
  const Scratch scratch;
  const BuildOptions options = example_build(scratch, example_documents(20));
  build_dataset(options);
  const DatasetDescription description = Dataset(options.output).description();
  ASSERT_EQ(description.shards.size(), 1u);
  const ShardRecord& shard = description.shards[0];
  const Hdf5File file = Hdf5File::open(options.output + "/" + shard.file);
  EXPECT_EQ(file.datasets(), (std::vector<std::string>{"block_hash", "doc_bytes", "doc_start", "tokens"}));
  EXPECT_EQ(file.info("tokens").type, Hdf5Type::u16);
  EXPECT_EQ(file.info("tokens").byte_offset, shard.tokens_offset);
  EXPECT_EQ(shard.tokens_offset % 4096, 0u);
  EXPECT_EQ(file.integer_attribute("/", "n_docs"), 20);
  EXPECT_EQ(file.integer_attribute("/", "n_tokens"), shard.tokens);
  EXPECT_EQ(file.integer_attribute("/", "vocab_size"), 330);
  EXPECT_EQ(file.integer_attribute("/", "eod_id"), 1);
  EXPECT_EQ(file.text_attribute("/", "dtype"), "u16");
  EXPECT_EQ(file.text_attribute("/", "tokenizer_hash"), to_hex(xxh3_128(example_model())));
  EXPECT_EQ(file.text_attribute("/", "source"), "dataset.txt");
  const auto starts = file.read_all<uint64_t>("doc_start", Hdf5Type::u64);
  const auto bytes = file.read_all<uint64_t>("doc_bytes", Hdf5Type::u64);
  const std::vector<std::string> documents = all_documents(options.output);
  ASSERT_EQ(starts.size(), 21u);
  for (size_t i = 0; i < documents.size(); ++i) EXPECT_EQ(bytes[i + 1] - bytes[i], documents[i].size());
  EXPECT_EQ(static_cast<int64_t>(bytes.back()), description.text_bytes);
  EXPECT_EQ(to_hex(xxh3_128(Scratch::read(file.path()))), shard.xxh3_128);
}

TEST(Build, IsRepeatableAndSeeded) {
  const Scratch scratch;
  const std::vector<std::string> documents = example_documents(30);
  BuildOptions options = example_build(scratch, documents);
  const std::string first = build_dataset(options).datasets[0].fingerprint;
  options.output = scratch / "again";
  EXPECT_EQ(build_dataset(options).datasets[0].fingerprint, first);
  options.output = scratch / "other";
  options.seed = 1;
  EXPECT_NE(build_dataset(options).datasets[0].fingerprint, first);
  EXPECT_EQ(sorted(all_documents(scratch / "other")), sorted(documents));
}

TEST(Build, ThreadsCannotBeSeen) {
  const Scratch scratch;
  std::vector<std::string> documents = example_documents(60);
  documents[7] = "\xff no UTF-8";
  documents[9] = "";
  BuildOptions options = example_build(scratch, documents);
  options.validation_fraction = 0.2;
  const BuildResult one = build_dataset(options);
  EXPECT_EQ(one.empty_documents, 1);
  EXPECT_EQ(one.foreign_bytes, 1u);
  for (const int threads : {2, 7}) {
    options.output = scratch / std::to_string(threads);
    options.threads = threads;
    const BuildResult several = build_dataset(options);
    EXPECT_EQ(several.datasets[0].fingerprint, one.datasets[0].fingerprint) << threads;
    EXPECT_EQ(several.datasets[1].fingerprint, one.datasets[1].fingerprint) << threads;
    EXPECT_EQ(several.empty_documents, 1) << threads;
    EXPECT_EQ(several.foreign_bytes, 1u) << threads;
  }
}

// Else threads would wait for each other more than they work.
TEST(Build, ShortDocumentsAreHandedOverTogether) {
  const Scratch scratch;
  constexpr int kDocuments = 50000;
  BuildOptions options = example_build(scratch, {"a"});
  std::string lines;
  for (int i = 0; i < kDocuments; ++i) lines += "{\"text\":\"\"}\n";
  options.inputs.push_back(scratch.write("short.jsonl", lines));
  options.threads = 2;
  const auto waits = [] {
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    return used.ru_nvcsw;
  };
  const int64_t before = waits();
  EXPECT_EQ(build_dataset(options).empty_documents, kDocuments);
  EXPECT_LT(waits() - before, kDocuments / 50);
}

TEST(Build, WideVocabulariesUseFourBytes) {
  EXPECT_EQ((ShardHeader{65536, 0, "", ""}.token_type()), Hdf5Type::u16);
  EXPECT_EQ((ShardHeader{65537, 0, "", ""}.token_type()), Hdf5Type::u32);
  const Scratch scratch;
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 200000; ++i) tokens.push_back(i % 99999);
  tokens.push_back(3);
  DatasetDescription description{{100000, 3, to_hex(xxh3_128("model")), "test"}, 0, {}};
  ShardWriter writer(scratch / "wide.h5", description.header, static_cast<int64_t>(tokens.size()), 1);
  writer.append(tokens.data(), static_cast<int64_t>(tokens.size()), 5);
  description.shards.push_back(writer.finish());
  scratch.write("tokenizer.model", "model");
  scratch.write("dataset.json", description.to_text());
  EXPECT_EQ(all_tokens(scratch.path() + "").size(), tokens.size());
  EXPECT_EQ(all_tokens(scratch.path()), tokens);
}

TEST(Build, ValidationIsSplitByDocument) {
  const Scratch scratch;
  const std::vector<std::string> documents = example_documents(200);
  BuildOptions options = example_build(scratch, documents);
  options.validation_fraction = 0.2;
  const BuildResult result = build_dataset(options);
  ASSERT_EQ(result.datasets.size(), 2u);
  EXPECT_EQ(names_in(options.output), (std::vector<std::string>{"train", "validation"}));
  std::vector<std::string> train = all_documents(options.output + "/train");
  const std::vector<std::string> validation = all_documents(options.output + "/validation");
  EXPECT_NEAR(static_cast<double>(validation.size()), 40, 20);
  train.insert(train.end(), validation.begin(), validation.end());
  EXPECT_EQ(sorted(train), sorted(documents));
  EXPECT_TRUE(verify_dataset(options.output + "/train").faults.empty());
  EXPECT_TRUE(verify_dataset(options.output + "/validation").faults.empty());

  // The same document falls to the same part, whatever stands around it and whatever the seed.
  BuildOptions half = example_build(scratch, {documents.begin() + 100, documents.end()}, "half");
  half.validation_fraction = 0.2;
  half.seed = 9;
  build_dataset(half);
  for (const std::string& document : all_documents(half.output + "/validation")) {
    EXPECT_NE(std::find(validation.begin(), validation.end(), document), validation.end());
  }
}

TEST(Build, JsonLinesAndTextTogether) {
  const Scratch scratch;
  BuildOptions options;
  options.inputs = {scratch.write("a.jsonl", "{\"text\": \"the token\"}\n{\"text\": \"\"}\n{\"text\": \"a key\"}\n"),
                    scratch.write("b.txt", "the\n\nwindow\n")};
  options.tokenizer = scratch.write("tokenizer.model", example_model());
  options.output = scratch / "deep/below/dataset";
  EXPECT_EQ(build_dataset(options).empty_documents, 1);
  EXPECT_EQ(sorted(all_documents(options.output)), (std::vector<std::string>{"a key", "the\n\nwindow\n", "the token"}));
}

// Lines at every look, by a clock that runs fast.
Progress::Output fast_clock(std::ostream& stream) {
  return {&stream, false, [now = 0.0]() mutable { return now += 10; }};
}

TEST(Build, ALongDocumentShowsHowFarItIs) {
  const Scratch scratch;
  BuildOptions options = example_build(scratch, {example_text(200)});
  options.document_separator = "";
  std::ostringstream lines;
  build_dataset(options, fast_clock(lines));
  for (const char* share : {"tokenizing: ", "(25 %)", "(50 %)", "(75 %)", "(100 %)"}) {
    EXPECT_THAT(lines.str(), ::testing::HasSubstr(share));
  }
}

// Where each lies within what was read at once is not known.
TEST(Build, ShortDocumentsAreNoMoreThanAll) {
  const Scratch scratch;
  std::string text;
  for (int i = 0; i < 200; ++i) text += "{\"text\": \"the token over the window\"}\n";
  BuildOptions options = example_build(scratch, {});
  options.inputs = {scratch.write("short.jsonl", text)};
  options.document_separator = "";
  std::ostringstream lines;
  build_dataset(options, fast_clock(lines));
  EXPECT_THAT(lines.str(), ::testing::HasSubstr("(100 %)"));
  EXPECT_THAT(lines.str(), ::testing::Not(::testing::ContainsRegex("\\((1[0-9][1-9]|1[1-9][0-9]|[2-9][0-9][0-9]) %")));
}

TEST(Build, FaultsOfTheInputAreNamedAndLeaveNothing) {
  const Scratch scratch;
  const BuildOptions good = example_build(scratch, example_documents(3));
  const auto expect_fault = [&](BuildOptions options, const std::string& reason) {
    EXPECT_ERROR(build_dataset(options), ExitCode::bad_input, reason);
    EXPECT_FALSE(fs::exists(scratch / "dataset"));
  };
  BuildOptions bad = good;
  bad.inputs = {scratch / "missing.txt"};
  expect_fault(bad, "missing.txt: No such file");
  bad.inputs = {scratch.write("empty.txt", "")};
  expect_fault(bad, "no document with text in " + bad.inputs[0]);
  bad.inputs = {good.inputs[0], scratch.write("bad.jsonl", "{\"text\": \"a\"}\nnonsense\n")};
  expect_fault(bad, "bad.jsonl:2: not JSON");
  bad = good;
  bad.tokenizer = scratch / "none.model";
  expect_fault(bad, "none.model");
  bad.tokenizer = good.inputs[0];
  expect_fault(bad, "is not a SentencePiece model");
  bad = good;
  bad.validation_fraction = 1;
  expect_fault(bad, "validation fraction 1");
  bad.validation_fraction = 1e-9;
  expect_fault(bad,
               "none of the 3 documents falls into the validation part at --validation-fraction 1e-09; change it, or");
  bad = good;
  bad.text_key = "body";
  expect_fault(bad, "every input is text");
  bad = good;
  bad.inputs = {scratch.write("lines.jsonl", "{\"text\": \"a\"}\n")};
  expect_fault(bad, "every input is JSONL");
  bad = good;
  bad.shard_tokens = 0;
  expect_fault(bad, "shard tokens 0");
}

// Every command would refuse its dataset.json.
TEST(Build, MoreShardsThanADescriptionHoldsAreRefused) {
  const Scratch scratch;
  BuildOptions options = example_build(scratch, {});
  options.document_separator = BuildOptions().document_separator;
  const size_t most = most_described_shards({330, 1, to_hex(xxh3_128("model")), "lines.jsonl"});
  std::string lines;
  for (size_t i = 0; i <= most; ++i) lines += "{\"text\":\"a\"}\n";
  options.inputs = {scratch.write("lines.jsonl", lines)};
  options.shard_tokens = 1;
  std::ostringstream lines_shown;
  double now = 0;
  bool wrote = false;
  const auto clock = [&] {  // so many shards would take minutes
    const bool writes = lines_shown.str().starts_with("writing shards");
    lines_shown.str("");
    if (writes && !std::exchange(wrote, true)) throw std::runtime_error("shards are written");
    return now += 10;
  };
  EXPECT_ERROR(build_dataset(options, {&lines_shown, false, clock}), ExitCode::bad_input,
               "--shard-tokens 1 makes more than the " + std::to_string(most) +
                   " shards that dataset.json can hold; give --shard-tokens ");
  EXPECT_FALSE(fs::exists(options.output));
}

// The widest that may be stated of each of them.
TEST(Build, ADescriptionHoldsAsManyShardsAsItSays) {
  DatasetDescription description{{100000, 3, to_hex(xxh3_128("model")), "test"}, INT64_MAX, {}};
  const std::string hash = to_hex(xxh3_128("shard"));
  const size_t most = most_described_shards(description.header);
  description.shards.assign(
      most, {shard_name(most), INT64_MAX, int64_t{1} << 33, int64_t{1} << 33, INT64_MAX, INT64_MAX, hash, hash});
  const size_t bytes = description.to_text().size();
  EXPECT_LE(bytes, kLargestDescription);
  EXPECT_GT(bytes, kLargestDescription / 8 * 7);
  EXPECT_LE(most, kMostShards);
  EXPECT_GT(most, kMostShards / 8);
}

TEST(Build, NothingIsOverwritten) {
  const Scratch scratch;
  const BuildOptions options = example_build(scratch, example_documents(3));
  const std::string fingerprint = build_dataset(options).datasets[0].fingerprint;
  EXPECT_ERROR(build_dataset(options), ExitCode::bad_input, "already holds a dataset");
  BuildOptions split = options;
  split.validation_fraction = 0.5;
  EXPECT_ERROR(build_dataset(split), ExitCode::bad_input, "already holds a dataset");
  EXPECT_EQ(Dataset(options.output).fingerprint(), fingerprint);
  EXPECT_TRUE(verify_dataset(options.output).faults.empty());
  BuildOptions full = options;
  full.output = scratch.path();  // holds the inputs
  EXPECT_ERROR(build_dataset(full), ExitCode::bad_input, "is not empty");
  EXPECT_TRUE(fs::exists(options.inputs[0]));
  full.output = options.inputs[0];
  EXPECT_ERROR(build_dataset(full), ExitCode::bad_input, "not a directory");
  fs::create_directory(scratch / "empty");
  full.output = scratch / "empty";
  EXPECT_EQ(build_dataset(full).datasets[0].fingerprint, fingerprint);
}

TEST(Build, WhatIsNoDatasetLeadsToOne) {
  const Scratch scratch;
  BuildOptions options = example_build(scratch, example_documents(40));
  options.validation_fraction = 0.3;
  build_dataset(options);
  EXPECT_ERROR(Dataset{options.output}, ExitCode::bad_input,
               "name " + options.output + "/train or " + options.output + "/validation");
  fs::remove(options.output + "/train/dataset.json");
  EXPECT_ERROR(Dataset{options.output}, ExitCode::bad_input, "name " + options.output + "/validation");
  fs::create_directory(options.output + "/.building");
  for (const std::string& directory : {options.output, options.output + "/train"}) {
    EXPECT_ERROR(Dataset{directory}, ExitCode::bad_input, "its build is still running or was interrupted");
  }
  EXPECT_ERROR(Dataset{scratch / "none"}, ExitCode::bad_input, "`shiftron data build` creates one");
}

// What a killed build leaves does not hinder the next one.
TEST(Build, RemainsOfAKilledBuildAreCleared) {
  const Scratch scratch;
  const BuildOptions options = example_build(scratch, example_documents(3));
  fs::create_directories(options.output + "/.building");
  fs::create_directories(options.output + "/train");
  scratch.write("dataset/.building/bucket-0.tokens", "old");
  scratch.write("dataset/.building/published", "0123\nrequest 0123\nnote \n");  // it was moving its files
  scratch.write("dataset/shard-00007.h5", "old");
  scratch.write("dataset/dataset.json.temporary-123", "old");
  scratch.write("dataset/train/dataset.json.temporary-123", "old");
  scratch.write("dataset/train/shard-00000.h5", "old");
  build_dataset(options);
  EXPECT_EQ(names_in(options.output), (std::vector<std::string>{"dataset.json", "shard-00000.h5", "tokenizer.model"}));
  EXPECT_TRUE(verify_dataset(options.output).faults.empty());
}

TEST(Build, OfManyAtOnceOneBuildsAndTheOthersAreRefused) {
  constexpr int kBuilds = 6, kRounds = 12;
  for (int round = 0; round < kRounds; ++round) {
    const Scratch scratch;
    std::vector<BuildOptions> builds;  // of different lengths, so that some look while others finish
    for (int i = 0; i < kBuilds; ++i) {
      builds.push_back(example_build(scratch, example_documents(1 + 20 * i), "texts" + std::to_string(i)));
      builds.back().output = scratch / "dataset";
    }
    std::atomic<int> ready = 0;
    std::vector<std::string> fingerprints;
    std::mutex mutex;
    std::vector<std::thread> threads;
    for (const BuildOptions& build : builds) {
      threads.emplace_back([&] {
        ++ready;
        while (ready < kBuilds) std::this_thread::yield();
        try {
          const BuildResult result = build_dataset(build);
          const std::lock_guard lock(mutex);
          fingerprints.push_back(result.datasets.at(0).fingerprint);
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ExitCode::bad_input) << error.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(fingerprints.size(), 1u) << "round " << round;
    EXPECT_EQ(Dataset(scratch / "dataset").fingerprint(), fingerprints[0]);
    EXPECT_TRUE(verify_dataset(scratch / "dataset").faults.empty());
    EXPECT_FALSE(fs::exists(scratch / "dataset/.lock"));
  }
}

TEST(Build, AFullDiskIsReportedAndCleared) {
  const SmallDisk disk;
  if (!disk.mounted()) GTEST_SKIP() << "cannot mount a small file system here";
  const Scratch scratch;
  for (const int count : {3000, 8000}) {  // the disk fills up with shards, or with buckets already
    BuildOptions options = example_build(scratch, example_documents(count));
    options.output = disk / "dataset";
    EXPECT_ERROR(build_dataset(options), ExitCode::crash, disk / "dataset");
    EXPECT_TRUE(names_in(disk.path()).empty());
  }
}

TEST(Build, AnUnwritablePlaceIsReported) {
  const Scratch scratch;
  BuildOptions options = example_build(scratch, example_documents(3));
  for (const std::string& output : {std::string("/proc/nowhere/dataset"), options.inputs[0] + "/below"}) {
    options.output = output;
    EXPECT_ERROR(build_dataset(options), ExitCode::bad_input,
                 "--output " + output + " cannot be written (cannot write " + output);
  }
}

TEST(Buckets, AnIndexThatWasWrittenIntoIsTold) {
  using Document = DocumentBuckets::Document;
  for (const Document& spoiled : {Document{1, 0, 4, 1}, Document{1, 3, 1, 1}, Document{1, UINT64_MAX, 1, 1},
                                  Document{1, 0, -1, 1}, Document{1, 1, 2, 1}}) {
    const Scratch scratch;
    DocumentBuckets buckets(scratch.path(), 1);
    buckets.add(1, {5, 6, 7}, 1);
    buckets.finish();
    const std::string index = scratch.path() + "/bucket-0.index";
    std::fstream(index, std::ios::in | std::ios::out | std::ios::binary)
        .write(reinterpret_cast<const char*>(&spoiled), sizeof spoiled);
    if (spoiled.first == 1) {
      EXPECT_EQ(buckets.sorted(0).front().tokens, 2);
    } else {
      EXPECT_ERROR(buckets.sorted(0), ExitCode::crash, index + " has changed since it was written");
    }
  }
}

TEST(Buckets, OrderDoesNotDependOnTheirNumber) {
  std::vector<std::vector<uint64_t>> orders;
  for (const size_t count : {1, 3, 16}) {
    const Scratch scratch;
    DocumentBuckets buckets(scratch.path(), count);
    for (uint64_t i = 0; i < 500; ++i) {
      buckets.add(xxh3_64(&i, 8), {static_cast<int32_t>(i), 7}, 1);
    }
    buckets.finish();
    EXPECT_EQ(buckets.documents(), 500);
    EXPECT_EQ(buckets.tokens(), 1000);
    orders.emplace_back();
    for (size_t bucket = 0; bucket < buckets.buckets(); ++bucket) {
      const std::vector<int32_t> tokens = buckets.tokens_of(bucket);
      for (const auto& document : buckets.sorted(bucket)) {
        orders.back().push_back(static_cast<uint64_t>(tokens[document.first]));
      }
    }
  }
  EXPECT_EQ(orders[1], orders[0]);
  EXPECT_EQ(orders[2], orders[0]);
  std::vector<uint64_t> all = orders[0];
  std::sort(all.begin(), all.end());
  for (uint64_t i = 0; i < 500; ++i) EXPECT_EQ(all[i], i);
}

class Verify : public ::testing::Test {
 protected:
  Verify() {
    BuildOptions options = example_build(scratch_, example_documents(40));
    options.shard_tokens = 800;
    build_dataset(options);
    directory_ = options.output;
    shard_ = Dataset(directory_).description().shards[1];
    path_ = directory_ + "/" + shard_.file;
  }
  void overwrite(uint64_t offset, const void* data, size_t count) {
    std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(offset));
    file.write(static_cast<const char*>(data), static_cast<std::streamsize>(count));
  }
  void expect_fault(const std::string& reason) {
    const VerifyResult result = verify_dataset(directory_);
    std::string all;
    for (const std::string& fault : result.faults) {
      EXPECT_THAT(fault, ::testing::HasSubstr(path_));
      EXPECT_THAT(fault, ::testing::HasSubstr("restore this file"));
      all += fault + "\n";
    }
    EXPECT_THAT(all, ::testing::HasSubstr(reason));
  }
  // Writes the shard again with other tokens, and describes it faithfully.
  void rewrite(const std::vector<std::vector<int32_t>>& documents, const std::vector<int64_t>& bytes) {
    DatasetDescription description = Dataset(directory_).description();
    const auto bytes_before = Hdf5File::open(path_).read_all<uint64_t>("doc_bytes", Hdf5Type::u64);
    description.text_bytes += std::accumulate(bytes.begin(), bytes.end(), -static_cast<int64_t>(bytes_before.back()));
    int64_t count = 0;
    for (const auto& document : documents) count += static_cast<int64_t>(document.size());
    fs::remove(path_);
    ShardWriter writer(path_, description.header, count, static_cast<int64_t>(documents.size()));
    for (size_t i = 0; i < documents.size(); ++i) {
      writer.append(documents[i].data(), static_cast<int64_t>(documents[i].size()), bytes[i]);
    }
    description.shards[1] = writer.finish();
    scratch_.write("dataset/dataset.json", description.to_text());
  }

  Scratch scratch_;
  std::string directory_;
  ShardRecord shard_;
  std::string path_;
};

// It says nothing of the shard.
TEST_F(Verify, WhatTheMachineRefusesIsNoFault) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP()
      << "UndefinedBehaviorSanitizer itself opens a pipe to look at an object, and calls it broken where it cannot";
#endif
  std::ostringstream told;
  std::optional<FewFiles> none;  // when dataset.json and the tokenizer have been read
  const auto seconds = [&] {
    if (!none) none.emplace(0);
    return 0.0;
  };
  EXPECT_ERROR(verify_dataset(directory_, {.stream = &told, .seconds = seconds}), ExitCode::crash, "ulimit -n");
}

// It ends a search that has found nothing; what was found is reported.
TEST_F(Verify, WhatTheMachineRefusesHidesNoFault) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "as above";
#endif
  fs::remove(directory_ + "/" + Dataset(directory_).description().shards[0].file);
  std::ostringstream told;
  std::optional<FewFiles> none;
  int looks = 0;
  const auto seconds = [&] {
    if (++looks == 2) none.emplace(0);  // after the first shard
    return 0.0;
  };
  const VerifyResult result = verify_dataset(directory_, {.stream = &told, .seconds = seconds});
  ASSERT_GT(result.faults.size(), 1u);
  EXPECT_THAT(result.faults.front(), ::testing::HasSubstr("No such file"));
  EXPECT_THAT(result.faults.back(), ::testing::HasSubstr("ulimit -n"));
  EXPECT_THAT(result.faults.back(), ::testing::EndsWith("this shard was not verified"));
}

TEST_F(Verify, AWholeDataset) {
  const VerifyResult result = verify_dataset(directory_);
  EXPECT_TRUE(result.faults.empty());
  EXPECT_EQ(result.documents, 40);
  EXPECT_GT(result.shards, 2);
}

TEST_F(Verify, LengthsAndSamplesOfDocuments) {
  Dataset dataset(directory_);
  const std::vector<std::string> documents = all_documents(directory_);
  const std::unique_ptr<const Tokenizer> tokenizer = load_tokenizer(directory_ + "/tokenizer.model");
  const DocumentLengths lengths = document_lengths(dataset);
  std::vector<int64_t> sizes;
  for (const std::string& document : documents) sizes.push_back(std::ssize(tokenizer->encode(document)) + 1);
  EXPECT_EQ(lengths.documents, 40);
  EXPECT_EQ(lengths.shortest, *std::min_element(sizes.begin(), sizes.end()));
  EXPECT_EQ(lengths.longest, *std::max_element(sizes.begin(), sizes.end()));
  for (size_t i = 0; i < lengths.counts.size(); ++i) {
    const int64_t low = int64_t{1} << i;
    const auto within = [&](int64_t size) { return size >= low && size / 2 < low; };
    EXPECT_EQ(lengths.counts[i], std::count_if(sizes.begin(), sizes.end(), within)) << i;
  }
  const std::vector<DocumentSample> samples = sample_documents(dataset, 8, 1000),
                                    all = sample_documents(dataset, 99, 3);
  ASSERT_EQ(samples.size(), 8u);
  for (size_t i = 0; i < samples.size(); ++i) {
    EXPECT_EQ(samples[i].number, static_cast<int64_t>(5 * i + 2));
    EXPECT_EQ(samples[i].length, sizes[5 * i + 2]);
    EXPECT_EQ(tokenizer->decode(samples[i].tokens), documents[5 * i + 2]);
  }
  ASSERT_EQ(all.size(), 40u);
  EXPECT_EQ(all[39].number, 39);
  EXPECT_EQ(all[39].tokens.size(), 3u);
}

TEST_F(Verify, EveryFlippedBitIsFound) {
  const uint64_t size = fs::file_size(path_);
  for (uint64_t place = 0; place < size; place += 97) {
    const std::string before = Scratch::read(path_);
    const char byte = static_cast<char>(before[place] ^ 4);
    overwrite(place, &byte, 1);
    EXPECT_FALSE(verify_dataset(directory_).faults.empty()) << place;
    overwrite(place, &before[place], 1);
  }
  EXPECT_TRUE(verify_dataset(directory_).faults.empty());
}

TEST_F(Verify, DamageIsNamed) {
  const std::string before = Scratch::read(path_);
  const char byte = static_cast<char>(before[shard_.tokens_offset + 40] ^ 1);
  overwrite(shard_.tokens_offset + 40, &byte, 1);
  expect_fault("block 0 of /tokens");
  expect_fault("the file's hash is");
  fs::resize_file(path_, before.size() - 10);
  expect_fault("bytes, but dataset.json says");
  fs::remove(path_);
  expect_fault("No such file");
  const std::string fault = verify_dataset(directory_).faults.at(0);
  EXPECT_EQ(fault.find(path_), fault.rfind(path_)) << fault;  // once
}

TEST_F(Verify, ShardsMadeWrongAreFound) {
  const int32_t end = Dataset(directory_).description().header.end_of_document;
  rewrite({{40, 41, end}, {42, end}}, {0, 0});
  expect_fault("does not have the number of bytes that /doc_bytes says");
  rewrite({{40, end, 41, end}}, {0});
  expect_fault("document 0 ends at token 4 according to /doc_start");
}

TEST_F(Verify, HashesOfOtherBlocksAreFound) {
  DatasetDescription description = Dataset(directory_).description();
  description.shards[1].block_hash_xxh3_128 = description.shards[0].block_hash_xxh3_128;
  scratch_.write("dataset/dataset.json", description.to_text());
  expect_fault("its /block_hash does not match dataset.json");  // training refuses it too
}

TEST_F(Verify, AWrongSumOfTextIsFound) {
  DatasetDescription description = Dataset(directory_).description();
  description.text_bytes += 7;
  scratch_.write("dataset/dataset.json", description.to_text());
  const VerifyResult result = verify_dataset(directory_);
  ASSERT_EQ(result.faults.size(), 1u);
  EXPECT_THAT(result.faults[0],
              ::testing::HasSubstr("dataset.json: text_bytes " + std::to_string(description.text_bytes) +
                                   ", but its shards hold " + std::to_string(description.text_bytes - 7)));
}

// Of each shard its hash, then its one block of tokens.
TEST_F(Verify, ShowsHowFarItIs) {
  std::ostringstream lines;
  const VerifyResult result = verify_dataset(directory_, fast_clock(lines));
  const std::string text = lines.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2 * result.shards + 1) << text;
  EXPECT_THAT(text, ::testing::HasSubstr("(100 %), "));
}

TEST_F(Verify, AForeignTokenizerIsFound) {
  scratch_.write("dataset/tokenizer.model", "other");
  EXPECT_ERROR(verify_dataset(directory_), ExitCode::bad_input, "tokenizer.model has hash");
}

}  // namespace
}  // namespace shiftron

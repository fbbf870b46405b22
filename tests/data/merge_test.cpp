// Merged and split datasets hold the documents of their sources, whole and in order.
#include "data/merge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <numeric>

#include "data/verify.h"
#include "expect_error.h"
#include "fixture.h"
#include "small_disk.h"

namespace shiftron {
namespace {

constexpr int32_t kVocabulary = 10, kEnd = 9;

struct Source {
  std::vector<TokenDocument> documents;
  int64_t pack = 0;
  StoredTokenizer tokenizer{};
};

// A document that ends with its end token, whose own target is counted.
TokenDocument closed(std::vector<int32_t> ids, bool with_targets = false) {
  TokenDocument document;
  document.text_bytes = std::ssize(ids);
  ids.push_back(kEnd);
  if (with_targets) {
    for (size_t i = 0; i < ids.size(); ++i) document.targets.push_back(i % 2 == 0 ? kNotCounted : ids[i] % 3);
    document.targets.back() = 4;
  }
  document.ids = std::move(ids);
  return document;
}

std::string write(const Scratch& scratch, const std::string& name, const Source& source) {
  DatasetOutput options;
  options.output = scratch / name;
  options.pack = source.pack;
  options.shard_tokens = 300'000;
  DatasetWriter writer(options, {kVocabulary, kEnd, source.tokenizer}, {}, name, 0, std::ssize(source.documents));
  for (TokenDocument document : source.documents) {
    if (source.pack > 0) {
      document.ids.pop_back();
      document.targets.clear();
      writer.close(document);
    }
    writer.add(document);
  }
  writer.finish({.nothing = ""}, {});
  writer.commit();
  return options.output;
}

std::vector<int32_t> all_targets(const std::string& directory) {
  Dataset dataset(directory);
  std::vector<int32_t> targets(static_cast<size_t>(dataset.tokens()));
  dataset.read_targets(0, dataset.tokens(), targets.data(), true);
  return targets;
}

std::vector<int32_t> joined(std::vector<int32_t> one, const std::vector<int32_t>& other) {
  one.insert(one.end(), other.begin(), other.end());
  return one;
}

void expect_valid(const std::string& directory) {
  EXPECT_EQ(verify_dataset(directory).faults, std::vector<std::string>()) << directory;
}

std::vector<TokenDocument> documents_of_lengths(int count, bool with_targets = false) {
  std::vector<TokenDocument> documents;
  for (int i = 0; i < count; ++i) {
    documents.push_back(closed(std::vector<int32_t>(static_cast<size_t>(1 + i % 7), i % 9), with_targets));
  }
  return documents;
}

TEST(Merge, KeepsTokensTargetsAndSizesInOrder) {
  const Scratch scratch;
  for (const bool with_targets : {false, true}) {
    const std::string label = with_targets ? "-targets" : "";
    Source small{documents_of_lengths(5, with_targets)}, large{documents_of_lengths(70'000, with_targets)};
    std::vector<int32_t> ids(400'000);
    std::iota(ids.begin(), ids.end(), 0);
    for (int32_t& id : ids) id %= kEnd;
    large.documents[10] = closed(ids, with_targets);
    const std::string one = write(scratch, "small" + label, small), other = write(scratch, "large" + label, large);
    DatasetMerge merge{{one, other, one}, scratch / ("merged" + label)};
    const BuiltDataset merged = merge_datasets(merge).datasets.at(0);
    expect_valid(merge.output);
    EXPECT_EQ(all_tokens(merge.output), joined(joined(all_tokens(one), all_tokens(other)), all_tokens(one)));
    if (with_targets) {
      EXPECT_EQ(all_targets(merge.output), joined(joined(all_targets(one), all_targets(other)), all_targets(one)));
    }
    const DatasetDescription a = Dataset(one).description(), b = Dataset(other).description();
    EXPECT_EQ(merged.text_bytes, 2 * a.text_bytes + b.text_bytes);
    EXPECT_EQ(merged.documents, 2 * a.documents() + b.documents());
    EXPECT_EQ(Dataset(merge.output).description().header.source, "small" + label + " large" + label);
    EXPECT_EQ(merged.fingerprint, Dataset(merge.output).fingerprint());
    EXPECT_ERROR(merge_datasets(merge), ExitCode::bad_input, "already holds a dataset");
    const DatasetSplit split{
        .dataset = merge.output, .output = scratch / ("parts" + label), .documents = 7, .shard_tokens = 100'000};
    const std::vector<BuiltDataset> parts = split_dataset(split).datasets;
    for (const BuiltDataset& part : parts) expect_valid(part.directory);
    EXPECT_EQ(parts.at(1).documents, 7);
    EXPECT_EQ(parts[0].documents + parts[1].documents, merged.documents);
    EXPECT_EQ(parts[0].tokens + parts[1].tokens, merged.tokens);
    EXPECT_EQ(parts[0].text_bytes + parts[1].text_bytes, merged.text_bytes);
    EXPECT_EQ(parts[0].counted_targets + parts[1].counted_targets, merged.counted_targets);
  }
}

TEST(Merge, PackedDataStaysPacked) {
  const Scratch scratch;
  const std::string one = write(scratch, "one", {documents_of_lengths(9), 16});
  const std::string other = write(scratch, "other", {documents_of_lengths(40), 16});
  const std::string merged = scratch / "merged", parts = scratch / "parts";
  merge_datasets({{one, other}, merged});
  expect_valid(merged);
  EXPECT_EQ(all_tokens(merged), joined(all_tokens(one), all_tokens(other)));
  split_dataset({.dataset = merged, .output = parts, .documents = 11, .shard_tokens = 50});
  for (const std::string part : {"/train", "/validation"}) {
    expect_valid(parts + part);
    EXPECT_EQ(Dataset(parts + part).tokens() % 16, 0);
  }
}

TEST(Merge, RefusesDatasetsThatDiffer) {
  const Scratch scratch;
  const std::string plain = write(scratch, "plain", {documents_of_lengths(5)});
  const auto expect_refused = [&](const std::string& other, const std::string& what) {
    EXPECT_ERROR(merge_datasets({{plain, other}, scratch / "merged"}), ExitCode::bad_input,
                 plain + " and " + other + " cannot be one dataset: they have " + what);
    EXPECT_FALSE(std::filesystem::exists(scratch / "merged"));
  };
  expect_refused(write(scratch, "targets", {documents_of_lengths(5, true)}), "no targets and targets");
  expect_refused(write(scratch, "tokenizer", {documents_of_lengths(5), 0, {{"tokenizer.model", "x"}}}),
                 "no tokenizer and tokenizer.model with hash ");
  DatasetOutput options;
  options.output = scratch / "wide";
  DatasetWriter writer(options, {11, kEnd}, {}, "wide", 0);
  writer.add(closed({1, 2}));
  writer.finish({.nothing = ""}, {});
  writer.commit();
  expect_refused(options.output, "vocab_size 10 and vocab_size 11");
}

// A shard that cannot be linked stays where it is, and its relative path leads there.
TEST(Merge, NamesShardsOfOtherFileSystemsByTheirPaths) {
  const SmallDisk disk;
  if (!disk.mounted()) GTEST_SKIP() << "cannot mount a small file system here";
  const Scratch scratch;
  const std::string near = write(scratch, "near", {documents_of_lengths(5)}), far = disk / "far data";
  std::filesystem::copy(near, far);
  const std::string merged = scratch / "merged", again = scratch / "again";
  merge_datasets({{near, far}, merged});
  merge_datasets({{merged, near}, again});
  EXPECT_EQ(std::filesystem::hard_link_count(near + "/shard-00000.h5"), 4u);
  for (const std::string& directory : {merged, again}) {
    expect_valid(directory);
    EXPECT_NE(Scratch::read(directory + "/dataset.json").find("/far data/shard-00000.h5"), std::string::npos);
  }
  EXPECT_EQ(all_tokens(again), joined(joined(all_tokens(near), all_tokens(far)), all_tokens(near)));
  std::filesystem::rename(far, disk / "elsewhere");
  EXPECT_ERROR(Dataset(again).require_shards(), ExitCode::bad_input,
               "was merged from datasets that must stay where they are; move them back, or merge them again");
}

// Otherwise the copy would get valid hashes of damaged tokens.
TEST(Split, FindsDamage) {
  const Scratch scratch;
  const std::string source = write(scratch, "source", {documents_of_lengths(70'000)});
  const ShardRecord shard = Dataset(source).description().shards.at(0);
  std::fstream file(source + "/" + shard.file, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(shard.tokens_offset + 2 * static_cast<uint64_t>(shard.tokens / 2)));
  file.put('\7');
  file.close();
  EXPECT_ERROR(split_dataset({.dataset = source, .output = scratch / "parts", .documents = 1}), ExitCode::bad_input,
               "does not match its hash");
}

TEST(Split, ChoosesWholeDocumentsBySeed) {
  const Scratch scratch;
  std::vector<TokenDocument> documents;
  for (int i = 0; i < 64; ++i) documents.push_back(closed({i / 8, i % 8}));
  const std::string source = write(scratch, "source", {documents});
  const auto numbers_in = [&](const std::string& directory) {
    const std::vector<int32_t> tokens = all_tokens(directory);
    std::vector<int32_t> numbers;
    for (size_t i = 0; i < tokens.size(); i += 3) {
      EXPECT_EQ(tokens[i + 2], kEnd);
      numbers.push_back(8 * tokens[i] + tokens[i + 1]);
    }
    return numbers;
  };
  std::vector<std::vector<int32_t>> chosen;
  for (DatasetSplit split :
       {DatasetSplit{.documents = 16}, DatasetSplit{.fraction = 0.25}, DatasetSplit{.documents = 16, .seed = 1}}) {
    split.dataset = source;
    split.output = scratch / ("parts" + std::to_string(chosen.size()));
    const RewrittenDatasets made = split_dataset(split);
    const std::vector<int32_t> train = numbers_in(split.output + "/train");
    chosen.push_back(numbers_in(split.output + "/validation"));
    EXPECT_EQ(made.datasets.at(1).documents, 16);
    EXPECT_TRUE(std::ranges::is_sorted(train));
    EXPECT_TRUE(std::ranges::is_sorted(chosen.back()));
    std::vector<int32_t> all = joined(train, chosen.back());
    std::ranges::sort(all);
    std::vector<int32_t> expected(64);
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(all, expected);
  }
  EXPECT_EQ(chosen[0], chosen[1]);
  EXPECT_NE(chosen[0], chosen[2]);
  EXPECT_ERROR(split_dataset({.dataset = source, .output = scratch / "none", .fraction = 0.001}), ExitCode::bad_input,
               "0 of the 64 documents");
  EXPECT_ERROR(split_dataset({.dataset = source, .output = scratch / "none", .documents = 64}), ExitCode::bad_input,
               "64 of the 64 documents");
}

}  // namespace
}  // namespace shiftron

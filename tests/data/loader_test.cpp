// Samples compared with a plain reading of the same tokens; damage found while reading.
#include "data/loader.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "core/hash.h"
#include "data/verify.h"
#include "expect_error.h"
#include "few_files.h"
#include "fixture.h"

namespace shiftron {
namespace {

struct Sample {
  std::vector<int32_t> ids;
  std::vector<int32_t> targets;
  std::vector<uint8_t> starts;
  bool operator==(const Sample&) const = default;
};

Sample read_samples(Loader& loader, int64_t first, int64_t count, int64_t length) {
  const auto size = static_cast<size_t>(count * length);
  Sample sample{std::vector<int32_t>(size), std::vector<int32_t>(size), std::vector<uint8_t>(size)};
  loader.read(first, count, sample.ids.data(), sample.targets.data(), sample.starts.data());
  return sample;
}

// Window `window` cut from the whole row of tokens, by the definition.
Sample window_of(const std::vector<int32_t>& tokens, int32_t end, int64_t window, int64_t length, bool reset) {
  Sample sample;
  for (int64_t row = 0; row < length; ++row) {
    const auto at = static_cast<size_t>(window * length + row);
    sample.ids.push_back(tokens[at]);
    sample.targets.push_back(reset && tokens[at] == end ? -1 : tokens[at + 1]);
    sample.starts.push_back(at == 0 || tokens[at - 1] == end ? 1 : 0);
  }
  return sample;
}

std::vector<char> bytes_at(const std::string& path, uint64_t offset, size_t count) {
  std::ifstream file(path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(offset));
  std::vector<char> bytes(count);
  file.read(bytes.data(), static_cast<std::streamsize>(count));
  return bytes;
}

void overwrite(const std::string& path, uint64_t offset, const void* data, size_t count) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(offset));
  file.write(static_cast<const char*>(data), static_cast<std::streamsize>(count));
}

// Makes dataset.json what older versions made.
void drop_block_hash_hashes(const std::string& directory) {
  DatasetDescription description = Dataset(directory).description();
  for (ShardRecord& shard : description.shards) shard.block_hash_xxh3_128.clear();
  std::ofstream(directory + "/dataset.json") << description.to_text();
}

class LoaderTest : public ::testing::Test {
 protected:
  // Several shards, so that windows cross from one to the next.
  std::string build(int documents = 60, const std::string& name = "dataset", int64_t shard_tokens = 700) {
    BuildOptions options = example_build(scratch_, example_documents(documents), name);
    options.shard_tokens = shard_tokens;
    build_dataset(options);
    return options.output;
  }
  Loader loader(const std::string& directory, int64_t length, bool reset = true, bool shuffle = false) const {
    return Loader({{directory, 0}}, length, 1, reset, shuffle);
  }
  Scratch scratch_;
};

TEST_F(LoaderTest, WindowsInOrderAreTheTokensInOrder) {
  const std::string directory = build();
  const std::vector<int32_t> tokens = all_tokens(directory);
  ASSERT_GT(Dataset(directory).description().shards.size(), 3u);
  for (const int64_t length : {1, 7, 64, 1000}) {
    for (const bool reset : {true, false}) {
      Loader in_order = loader(directory, length, reset);
      const int64_t windows = (static_cast<int64_t>(tokens.size()) - 1) / length;
      EXPECT_EQ(in_order.windows(), windows);
      EXPECT_EQ(in_order.dropped_tokens(), static_cast<int64_t>(tokens.size()) - windows * length - 1);
      for (int64_t window = 0; window < windows; window += std::max<int64_t>(1, windows / 200)) {
        const Sample expected = window_of(tokens, in_order.end_of_document(), window, length, reset);
        ASSERT_EQ(read_samples(in_order, window, 1, length), expected) << window << " of length " << length;
        ASSERT_EQ(read_samples(in_order, window + windows, 1, length), expected);  // the next round
      }
    }
  }
}

TEST_F(LoaderTest, DocumentBorders) {
  const std::string directory = build(3);
  Loader with_reset = loader(directory, 10);
  const int32_t end = with_reset.end_of_document();
  const int64_t windows = with_reset.windows();
  const Sample all = read_samples(with_reset, 0, windows, 10);
  int64_t not_counted = 0;
  int64_t end_targets = 0;
  for (size_t i = 0; i < all.ids.size(); ++i) {
    EXPECT_EQ(all.targets[i] == -1, all.ids[i] == end);
    EXPECT_EQ(all.starts[i] == 1, i == 0 || all.ids[i - 1] == end);
    not_counted += all.targets[i] == -1 ? 1 : 0;
    end_targets += all.targets[i] == end ? 1 : 0;
  }
  EXPECT_GE(not_counted, 2);
  EXPECT_GE(end_targets, 2);  // the end itself is learnt
  Loader without_reset = loader(directory, 10, false);
  const Sample counted = read_samples(without_reset, 0, windows, 10);
  EXPECT_EQ(std::count(counted.targets.begin(), counted.targets.end(), -1), 0);
  EXPECT_EQ(counted.starts, all.starts);
}

TEST_F(LoaderTest, ShuffledEpochsHoldEveryWindowOnce) {
  const std::string directory = build();
  Loader in_order = loader(directory, 16);
  Loader shuffled = loader(directory, 16, true, true);
  std::multiset<std::vector<int32_t>> expected;
  std::multiset<std::vector<int32_t>> found;
  bool moved = false;
  for (int64_t i = 0; i < shuffled.windows(); ++i) {
    const Sample a = read_samples(in_order, i, 1, 16);
    const Sample b = read_samples(shuffled, i, 1, 16);
    moved |= a != b;
    expected.insert(a.ids);
    found.insert(b.ids);
  }
  EXPECT_TRUE(moved);
  EXPECT_EQ(found, expected);
}

// However a step's samples are cut into ranks and microbatches, and wherever a run resumes.
TEST_F(LoaderTest, ASampleIsAFunctionOfItsNumber) {
  const std::string directory = build();
  Loader whole = loader(directory, 16, true, true);
  const Sample all = read_samples(whole, 1000, 12, 16);
  for (const int64_t piece : {1, 2, 3, 4, 6}) {
    Loader other = loader(directory, 16, true, true);
    Sample pieces;
    for (int64_t at = 0; at < 12; at += piece) {
      const Sample part = read_samples(other, 1000 + at, piece, 16);
      pieces.ids.insert(pieces.ids.end(), part.ids.begin(), part.ids.end());
      pieces.targets.insert(pieces.targets.end(), part.targets.begin(), part.targets.end());
      pieces.starts.insert(pieces.starts.end(), part.starts.begin(), part.starts.end());
    }
    EXPECT_EQ(pieces, all) << piece;
  }
}

TEST_F(LoaderTest, BlendedSourcesKeepTheirShares) {
  const std::string first = build(60, "first");
  const BuildOptions other =
      example_build(scratch_, {std::string(3000, '\x07')}, "second");  // one token, again and again
  build_dataset(other);
  const std::string second = other.output;
  Loader blend({{first, 3}, {second, 1}}, 16, 5, true, true);
  const Sample block = read_samples(blend, 0, 65536, 16);
  const std::vector<int32_t> bell = SentencePieceTokenizer(example_model(), "example").encode("\x07");
  int from_second = 0;
  for (size_t row = 0; row < block.ids.size(); row += 16) from_second += block.ids[row] == bell.at(0) ? 1 : 0;
  EXPECT_EQ(from_second, 16384);
  Loader only_first = loader(first, 16);
  EXPECT_NE(blend.fingerprint(), Loader({{first, 2}, {second, 1}}, 16, 5, true, true).fingerprint());
  EXPECT_EQ(blend.fingerprint(), Loader({{first, 3}, {second, 1}}, 32, 6, true, true).fingerprint());
  EXPECT_EQ(only_first.fingerprint(), Dataset(first).fingerprint());
  const Loader in_order({{first, 0}, {second, 0}}, 16, 5, true, false);  // where weights decide nothing
  const Loader with_weights({{first, 3}, {second, 1}}, 16, 5, true, false);
  EXPECT_EQ(with_weights.fingerprint(), in_order.fingerprint());
  EXPECT_EQ(with_weights.fingerprint_with_weights(), blend.fingerprint());
  EXPECT_NE(in_order.fingerprint(), Loader({{second, 0}, {first, 0}}, 16, 5, true, false).fingerprint());
}

TEST_F(LoaderTest, PassesThroughEachSourceAreByItsShare) {
  const std::string a = build(60, "first"), b = build(3, "second");
  const Loader alone({{a, 0}}, 16, 1, true, true);
  EXPECT_DOUBLE_EQ(alone.passes(3 * alone.windows())[0], 3);
  const Loader blend({{a, 3}, {b, 1}}, 16, 1, true, true);
  const std::vector<double> passes = blend.passes(1000);
  EXPECT_DOUBLE_EQ(passes[0] * static_cast<double>(blend.windows_of_sources()[0]), 750);
  EXPECT_DOUBLE_EQ(passes[1] * static_cast<double>(blend.windows_of_sources()[1]), 250);
  EXPECT_EQ(blend.fingerprints_of_sources()[0], alone.fingerprint());
  EXPECT_NE(blend.fingerprints_of_sources()[1], alone.fingerprint());
}

TEST_F(LoaderTest, UnfitSourcesAreRefused) {
  const std::string directory = build(5);
  EXPECT_ERROR(loader(scratch_ / "missing", 16), ExitCode::bad_input, "missing is not a dataset");
  EXPECT_ERROR(loader(directory, 1000000), ExitCode::bad_input, "fewer than one window of 1000001");
  EXPECT_ERROR(Loader({}, 16, 0, true, true), ExitCode::bad_input, "no data source");
  EXPECT_ERROR(Loader({{directory, 1}, {directory, 0}}, 16, 0, true, true), ExitCode::bad_input, "or none");
}

TEST_F(LoaderTest, SourcesThatWouldNeverBeReadAreNamed) {
  const BuildOptions large = example_build(scratch_, {std::string(200000, '\x07')}, "large");
  const BuildOptions small = example_build(scratch_, {"\x07"}, "small");
  build_dataset(large);
  build_dataset(small);
  const std::vector<DataSource> sources = {{large.output}, {small.output}};
  EXPECT_ERROR(Loader(sources, 1, 0, true, true), ExitCode::bad_input,
               "data source " + small.output +
                   " has 1 of 200001 windows, less than one sample in 65536; give every "
                   "source a weight (" +
                   small.output + ":WEIGHT) or leave it out");
  EXPECT_ERROR(Loader({{large.output, 1}, {small.output, 1e-9}}, 1, 0, true, true), ExitCode::bad_input,
               "weight 1e-09 of data source " + small.output + " is less than one sample in 65536");
  EXPECT_EQ(Loader({{large.output, 1}, {small.output, 1e-3}}, 1, 0, true, true).windows(), 200001);
  EXPECT_EQ(Loader(sources, 1, 0, true, false).windows(), 200001);  // one after the other
}

TEST_F(LoaderTest, DifferentTokenizersAreRefused) {
  const std::string first = build(5, "first");
  TokenizerTraining training;
  training.files = {scratch_.write("other.txt", example_text(399))};
  training.vocab = 330;  // as large, but not the same
  BuildOptions options = example_build(scratch_, example_documents(5), "second");
  options.tokenizer = scratch_.write("other.model", train_tokenizer(training));
  build_dataset(options);
  EXPECT_ERROR(Loader({{first, 1}, {options.output, 1}}, 16, 0, true, true), ExitCode::bad_input,
               "different tokenizers: " + first + " (330 tokens");
  // The model in the directory must be the one that the data were made with.
  scratch_.write("first/tokenizer.model", Scratch::read(options.tokenizer));
  EXPECT_ERROR(loader(first, 16), ExitCode::bad_input, "first/tokenizer.model has hash");
}

TEST_F(LoaderTest, ATruncatedShardIsRefused) {
  const std::string directory = build();
  const std::string shard = directory + "/shard-00001.h5";
  std::filesystem::resize_file(shard, std::filesystem::file_size(shard) - 1);
  Loader broken = loader(directory, 64);  // only dataset.json is read at the start
  EXPECT_ERROR(read_samples(broken, 0, broken.windows(), 64), ExitCode::bad_input, "bytes, but dataset.json says");
  std::filesystem::remove(shard);
  EXPECT_ERROR(read_samples(broken, 0, broken.windows(), 64), ExitCode::bad_input, "shard-00001.h5: No such file");
}

// Shards of one block each: the block sampled at the first touch is the damaged one.
TEST_F(LoaderTest, AFlippedBitIsFoundAtTheFirstTouch) {
  const std::string directory = build();
  const ShardRecord shard = Dataset(directory).description().shards[2];
  const std::string path = directory + "/" + shard.file;
  const uint64_t place = shard.tokens_offset + 100;
  char byte = bytes_at(path, place, 1)[0];
  byte = static_cast<char>(byte ^ 1);
  overwrite(path, place, &byte, 1);
  Loader broken = loader(directory, 64);
  EXPECT_ERROR(read_samples(broken, 0, broken.windows(), 64), ExitCode::bad_input, shard.file + ": block 0 of /tokens");
}

// Whole in itself, and of the same size: the same texts in another order.
TEST_F(LoaderTest, AShardOfAnotherBuildIsRefused) {
  const std::string directory = build(60, "dataset", 1 << 20);
  BuildOptions reordered = example_build(scratch_, example_documents(60), "reordered");
  reordered.seed = 1;
  build_dataset(reordered);
  const std::string name = "/shard-00000.h5";
  ASSERT_EQ(std::filesystem::file_size(reordered.output + name), std::filesystem::file_size(directory + name));
  ASSERT_NE(all_tokens(reordered.output), all_tokens(directory));
  std::filesystem::copy(reordered.output + name, directory + name, std::filesystem::copy_options::overwrite_existing);
  Loader mixed = loader(directory, 64);
  EXPECT_ERROR(read_samples(mixed, 0, 1, 64), ExitCode::bad_input,
               directory + name + ": its /block_hash does not match dataset.json");
  drop_block_hash_hashes(directory);  // as older builds
  EXPECT_EQ(all_tokens(directory), all_tokens(reordered.output));
}

TEST_F(LoaderTest, BlocksAreCheckedWhenAskedFor) {
  const std::string directory = build(4000, "large", 1 << 28);
  const ShardRecord shard = Dataset(directory).description().shards[0];
  ASSERT_GE(block_count(shard.tokens, Hdf5Type::u16), 2);
  const int64_t sampled =
      static_cast<int64_t>(xxh3_64(shard.file) % static_cast<uint64_t>(block_count(shard.tokens, Hdf5Type::u16)));
  const int64_t damaged = sampled == 0 ? 1 : 0;  // not the one of the first touch
  const uint64_t place = shard.tokens_offset + static_cast<uint64_t>(damaged) * kBlockBytes;
  char byte = bytes_at(directory + "/" + shard.file, place, 1)[0];
  byte = static_cast<char>(byte ^ 1);
  overwrite(directory + "/" + shard.file, place, &byte, 1);
  Dataset dataset(directory);
  const int64_t first = damaged * static_cast<int64_t>(kBlockBytes / 2) + 10;
  std::vector<int32_t> tokens(10);
  dataset.read(first, 10, tokens.data(), false);
  EXPECT_ERROR(dataset.read(first, 10, tokens.data(), true), ExitCode::bad_input,
               "block " + std::to_string(damaged) + " of /tokens");
  // One window in a thousand is checked: reading all of them meets the block more than once.
  Loader all = loader(directory, 16);
  EXPECT_ERROR(read_samples(all, 0, all.windows(), 16), ExitCode::bad_input, "does not match its hash");
}

TEST_F(LoaderTest, ATokenOutsideTheVocabularyIsRefused) {
  const std::string directory = build();
  const ShardRecord shard = Dataset(directory).description().shards[0];
  const std::string path = directory + "/" + shard.file;
  const uint16_t token = 330;
  overwrite(path, shard.tokens_offset + 2 * 50, &token, 2);
  const std::vector<char> block = bytes_at(path, shard.tokens_offset, static_cast<size_t>(shard.tokens) * 2);
  const uint64_t hash = xxh3_64(block.data(), block.size());
  overwrite(path, shard.block_hash_offset, &hash, 8);  // hashes agree: the shard was made wrong
  drop_block_hash_hashes(directory);
  Loader broken = loader(directory, 16);
  read_samples(broken, 0, 2, 16);
  EXPECT_ERROR(read_samples(broken, 3, 1, 16), ExitCode::bad_input,
               "token 330 at position 50 is not within the vocabulary of 330");
}

TEST_F(LoaderTest, OpenFilesAreLimited) {
  const std::string directory = build(60, "many", 50);
  const auto open = std::make_shared<OpenShards>(3);
  Dataset limited(directory, open), other(build(60, "more", 50), open);
  ASSERT_GT(limited.description().shards.size(), 20u);
  std::vector<int32_t> tokens(static_cast<size_t>(limited.tokens()));
  limited.read(0, limited.tokens(), tokens.data(), false);
  EXPECT_EQ(tokens, all_tokens(directory));
  other.read(0, other.tokens(), tokens.data(), false);
  EXPECT_EQ(tokens, all_tokens(directory));
  EXPECT_EQ(open->size(), 3u);
}

TEST_F(LoaderTest, AQuarterOfTheFilesThatMayBeOpenAreShards) {
  const std::string file = scratch_.write("shard", "");
  for (const int most : {50, 300}) {
    std::optional<FewFiles> few(std::in_place, 4 * most);
    OpenShards open;
    few.reset();
    for (int links = 0; links < 400; ++links) {  // to as many names
      open.add(
          FileDescriptor::open_for_reading(scratch_.path() + std::string(static_cast<size_t>(links), '/') + "/shard"));
    }
    EXPECT_GE(open.size(), static_cast<size_t>(most));
    EXPECT_LT(open.size(), static_cast<size_t>(most) + 20);
  }
}

TEST_F(LoaderTest, MoreSourcesThanFilesMayBeOpen) {
  const std::string first = build(10, "first");
  std::vector<DataSource> sources;
  for (int i = 0; i < 300; ++i) {
    sources.push_back({scratch_ / ("source-" + std::to_string(i)), 1});
    std::filesystem::copy(first, sources.back().directory,
                          std::filesystem::copy_options::create_hard_links | std::filesystem::copy_options::recursive);
  }
  const FewFiles few(280);
  Loader all(sources, 16, 1, true, true);
  EXPECT_NO_THROW(read_samples(all, 0, 3000, 16));
}

// Else a sample of few bytes costs a block's.
TEST_F(LoaderTest, AShardIsSampledOnce) {
  const std::string directory = build();
  const DatasetDescription description = Dataset(directory).description();
  const ShardRecord& shard = description.shards[0];
  Dataset dataset(directory, std::make_shared<OpenShards>(1));
  std::vector<int32_t> tokens(1);
  dataset.read(0, 1, tokens.data(), false);
  const uint64_t hash = 0;
  overwrite(directory + "/" + shard.file, shard.block_hash_offset, &hash, sizeof hash);
  dataset.read(shard.tokens, 1, tokens.data(), false);  // of the next shard, which closes the first
  dataset.read(0, 1, tokens.data(), false);
  EXPECT_ERROR(dataset.read(0, 1, tokens.data(), true), ExitCode::bad_input, "block 0 of /tokens");
}

// As the caches of Hugging Face, DVC and git-annex keep files.
TEST_F(LoaderTest, LinkedFilesAreRead) {
  const std::string directory = build();
  Loader plain = loader(directory, 64);
  const Sample expected = read_samples(plain, 0, plain.windows(), 64);
  std::filesystem::create_directory(scratch_ / "blobs");
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) names.push_back(entry.path().filename());
  for (const std::string& name : names) {
    std::filesystem::rename(directory + "/" + name, scratch_ / "blobs/" + name);
    std::filesystem::create_symlink("../blobs/" + name, directory + "/" + name);
  }
  Loader linked = loader(directory, 64);
  EXPECT_EQ(read_samples(linked, 0, linked.windows(), 64), expected);
  EXPECT_TRUE(verify_dataset(directory).faults.empty());

  std::filesystem::remove(scratch_ / "blobs/shard-00001.h5");  // as `git annex drop` does
  Loader dropped = loader(directory, 64);
  const std::string told = "shard-00001.h5 is a symbolic link to ../blobs/shard-00001.h5, which does not exist";
  EXPECT_ERROR(read_samples(dropped, 0, dropped.windows(), 64), ExitCode::crash, told);
  EXPECT_ERROR(verify_dataset(directory), ExitCode::crash, told);
  EXPECT_ERROR(dropped.require_shards(), ExitCode::crash, told);
  std::filesystem::remove(scratch_ / "blobs/dataset.json");
  EXPECT_ERROR(loader(directory, 64), ExitCode::crash, "dataset.json is a symbolic link to ../blobs/dataset.json");
}

// Before a run writes anything.
TEST_F(LoaderTest, ShardsThatAreNotThereAreFoundAtTheStart) {
  const std::string directory = build();
  const Loader whole = loader(directory, 64);
  EXPECT_NO_THROW(whole.require_shards());
  const std::string shard = directory + "/shard-00002.h5";
  std::filesystem::resize_file(shard, std::filesystem::file_size(shard) - 1);
  EXPECT_ERROR(whole.require_shards(), ExitCode::bad_input, "shard-00002.h5: ");
  std::filesystem::remove(shard);
  EXPECT_ERROR(whole.require_shards(), ExitCode::bad_input, "shard-00002.h5: No such file");
}

// It says nothing of the data, and the next start may read them.
TEST_F(LoaderTest, WhatTheMachineRefusesIsNoDamage) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP()
      << "UndefinedBehaviorSanitizer itself opens a pipe to look at an object, and calls it broken where it cannot";
#endif
  const std::string directory = build();
  Loader there = loader(directory, 16);
  const auto error_of = [](const auto& work) {
    const FewFiles none(0);
    try {
      work();
    } catch (const Error& error) {
      return error;
    }
    return Error("", ExitCode::done);
  };
  for (const Error& error :
       {error_of([&] { read_samples(there, 0, 1, 16); }), error_of([&] { loader(directory, 16); })}) {
    EXPECT_EQ(error.code(), ExitCode::crash) << error.what();
    EXPECT_NE(std::string(error.what()).find("ulimit -n"), std::string::npos) << error.what();
    EXPECT_EQ(std::string(error.what()).find("build"), std::string::npos) << error.what();
  }
  EXPECT_NO_THROW(read_samples(there, 0, 1, 16));
}

// Root may read all.
TEST_F(LoaderTest, WhatOneMayNotReadIsNotToBeBuilt) {
  const std::string directory = build();
  const uid_t user = ::geteuid();
  ASSERT_EQ(::chmod(directory.c_str(), 0), 0);
  if (::seteuid(user == 0 ? 65534 : user) != 0) {  // a namespace of one user
    ::chmod(directory.c_str(), 0700);
    GTEST_SKIP() << "no other user";
  }
  std::string told;
  ExitCode code = ExitCode::done;
  try {
    Dataset there(directory);
  } catch (const Error& error) {
    told = error.what();
    code = error.code();
  }
  ASSERT_EQ(::seteuid(user), 0);
  ASSERT_EQ(::chmod(directory.c_str(), 0700), 0);
  EXPECT_EQ(code, ExitCode::crash);
  EXPECT_EQ(told, "cannot open " + directory +
                      "/dataset.json: Permission denied; change its permissions, or choose another place");
}

TEST(DatasetDescription, DamagedDescriptionsAreRefused) {
  const Scratch scratch;
  const BuildOptions options = example_build(scratch, example_documents(5));
  build_dataset(options);
  const std::string path = options.output + "/dataset.json";
  const std::string good = Scratch::read(path);
  EXPECT_EQ(DatasetDescription::parse(good, path).to_text(), good);
  const auto expect_fault = [&](const std::string& from, const std::string& to, const std::string& reason) {
    std::string text = good;
    ASSERT_NE(text.find(from), std::string::npos) << from;
    text.replace(text.find(from), from.size(), to);
    EXPECT_ERROR(DatasetDescription::parse(text, "dataset.json"), ExitCode::bad_input, reason);
  };
  expect_fault("{", "[", "is not JSON");
  expect_fault("shiftron dataset", "other", "does not describe");
  expect_fault("\"version\": 1", "\"version\": 2", "no key \"targets\"");
  expect_fault("\"version\": 1", "\"version\": 2, \"targets\": 1", "\"targets\" is a number, not true or false");
  expect_fault("\"version\": 1", "\"version\": 2, \"targets\": false, \"pack\": 8", "\"pack\" without targets");
  expect_fault("\"version\": 1", "\"version\": 2, \"targets\": true", "no key \"counted_targets\"");
  expect_fault("\"version\": 1", "\"version\": 4",
               "has format version 4, but this program reads versions 1 to 3; use a newer shiftron");
  expect_fault("\"vocab_size\": 330", "\"vocab_size\": -1", "\"vocab_size\" is -1");
  expect_fault("\"vocab_size\": 330", "\"vocab_size\": 70000", "token_type is not u32");
  expect_fault("shard-00000.h5", "/shard-00000.h5", "nor a relative path to one");
  expect_fault("shard-00000.h5", "../..", "nor a relative path to one");
  expect_fault("\"tokens_offset\": ", "\"tokens_offset\": 9", "is outside the file");
  expect_fault("\"block_hash_offset\": ", "\"block_hash_offset\": 99", "is outside the file");
  expect_fault("\"documents\": 5", "\"documents\": 4", "\"documents\" is 4");
  expect_fault("\"shards\"", "\"pieces\"", "no key \"shards\"");
  expect_fault("\"bytes\": ", "\"bytes\": 0.", "whole number");
  expect_fault("\"block_hash_xxh3_128\": ", "\"block_hash_xxh3_128\": 7, \"other\": ", "is a number, not a string");
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');  // no recursion ends on it
  expect_fault("\"version\": 1", "\"version\": " + deep, "nested deeper than 8");
  expect_fault("\"version\": 1", "\"version\": [1]", "\"version\" is array");
}

}  // namespace
}  // namespace shiftron

// Imports of token files: documents, masks, order and bytes are compared with plain definitions; what is exported is
// what was imported.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "data/loader.h"
#include "data/token_files/megatron_export.h"
#include "expect_error.h"
#include "token_fixture.h"

namespace shiftron {
namespace {

TokenImport raw_import(const Scratch& scratch, const Row& ids, TokenElement element = TokenElement::u16) {
  TokenImport options = token_import(scratch, {scratch.write("raw.bin", stored(element, ids))});
  options.format = "raw";
  options.element = element;
  return options;
}

// Ids of documents of various lengths, some of them empty, more than the buffers hold at once.
Row many_ids(size_t count) {
  Row ids;
  uint32_t state = 1;
  while (ids.size() < count) {
    state = state * 1664525u + 1013904223u;
    const bool is_long = (state >> 8) % 50 == 0;
    const size_t length = (state >> 16) % (is_long ? 100'000 : 700);
    for (size_t i = 0; i < length; ++i) ids.push_back(static_cast<int32_t>(((state >> 7) + i * i) % kLast));
    ids.push_back(kLast);
  }
  ids.resize(count);
  return ids;
}

// By the definition: an end token closes a document, empty ones are left out, and the last one gets an end token.
std::vector<Row> documents_in(const Row& ids) {
  std::vector<Row> documents(1);
  for (const int32_t id : ids) {
    if (id != kLast) {
      documents.back().push_back(id);
    } else if (!documents.back().empty()) {
      documents.back().push_back(kLast);
      documents.emplace_back();
    }
  }
  if (documents.back().empty()) {
    documents.pop_back();
  } else {
    documents.back().push_back(kLast);
  }
  return documents;
}

std::vector<Row> documents_of(const std::string& directory) {
  return documents_in(all_tokens(directory));
}

TEST(TokenImport, DocumentsOfAnyLengthKeepTheirOrder) {
  const Scratch scratch;
  const Row ids = many_ids(1'300'000);
  TokenImport options = raw_import(scratch, ids);
  options.shard_tokens = 90'000;
  TokenImportResult result;
  EXPECT_EQ(imported(options, &result), joined(documents_in(ids)));
  EXPECT_GT(result.datasets[0].shards, 8);
  EXPECT_EQ(result.datasets[0].documents, std::ssize(documents_in(ids)));
  EXPECT_EQ(result.counts.open, 1);
  EXPECT_GT(result.counts.empty, 0);
}

TEST(TokenImport, FillsShardsToTheLastToken) {
  const Scratch scratch;
  TokenImport options = raw_import(scratch, {1, 2, kLast, 3, kLast, 4, 5, kLast});
  options.shard_tokens = 5;
  imported(options);
  const std::vector<ShardRecord> shards = Dataset(options.output).description().shards;
  ASSERT_EQ(shards.size(), 2u);
  EXPECT_EQ(shards[0].tokens, 5);
}

// The importer writes shards at once, other builders through buckets.
TEST(TokenImport, GivesTheBytesOfOtherBuilders) {
  const Scratch scratch;
  const Row ids = many_ids(200'000);
  TokenImport options = raw_import(scratch, ids);
  options.shard_tokens = 70'000;
  imported(options);
  const std::vector<Row> documents = documents_in(ids);
  DatasetOutput other;
  other.output = scratch / "other";
  other.shard_tokens = options.shard_tokens;
  DatasetWriter writer(other, options.vocabulary, {}, "raw.bin", 1, std::ssize(documents));
  for (const Row& document : documents) {
    TokenDocument added;
    added.ids.assign(document.begin(), document.end() - 1);
    writer.close(added);
    writer.add(added);
  }
  writer.finish({.nothing = ""}, {});
  writer.commit();
  for (const char* name : {"dataset.json", "shard-00000.h5", "shard-00002.h5"}) {
    EXPECT_EQ(Scratch::read(options.output + "/" + name), Scratch::read(other.output + "/" + name)) << name;
  }
}

TEST(TokenImport, AnIndexAndEndTokensEndDocuments) {
  const Scratch scratch;
  const std::string prefix = write_megatron(
      scratch, "x", {{{1, 2}}, {}, {{kLast}}, {{3, kLast, 4, kLast, 5, kLast}}, {{6, kLast, kLast}}, {{7}}});
  TokenImportResult result;
  EXPECT_EQ(imported(token_import(scratch, {prefix, prefix}), &result),
            joined({{1, 2, kLast, 3, kLast, 4, kLast, 5, kLast, 6, kLast, 7, kLast},
                    {1, 2, kLast, 3, kLast, 4, kLast, 5, kLast, 6, kLast, 7, kLast}}));
  EXPECT_EQ(result.datasets[0].documents, 12);
  EXPECT_EQ(result.counts.empty, 2 * 3);  // {}, {end}, and the second end token of {6, end, end}
  EXPECT_EQ(result.counts.split, 2 * 2);
  EXPECT_EQ(result.counts.open, 2 * 2);
}

TEST(TokenImport, RefusesIdsOutsideTheVocabulary) {
  const Scratch scratch;
  for (const size_t at : {size_t{0}, size_t{5}, size_t{600'000}}) {
    Row ids = many_ids(700'000);
    ids[at] = 10;
    TokenImport options = raw_import(scratch, ids);
    EXPECT_ERROR(import_tokens(options), ExitCode::bad_input,
                 "raw.bin: 10 at position " + std::to_string(at) + " is not within the vocabulary of 10");
    EXPECT_FALSE(std::filesystem::exists(options.output));
  }
  TokenImport empty = raw_import(scratch, {kLast, kLast});
  EXPECT_ERROR(import_tokens(empty), ExitCode::bad_input, "no document with tokens in raw.bin");
}

// A mask says which tokens are learned, that is, predicted from the tokens before them.
TEST(TokenImport, MasksBecomeTargets) {
  const Scratch scratch;
  const Row ids = {1, 2, 3, kLast, 4, 5, kLast, 6, 7};
  const std::string mask("\0\1\0\1\1\0\0\0\1", 9);
  TokenImport options = raw_import(scratch, ids);
  options.masks = {scratch.write("mask.npy", npy_mask(mask))};
  TokenImportResult result;
  EXPECT_EQ(imported(options, &result), (Row{1, 2, 3, kLast, 4, 5, kLast, 6, 7, kLast}));
  EXPECT_EQ(all_targets(options.output), (Row{2, -1, kLast, -1, -1, -1, -1, 7, kLast, -1}));
  EXPECT_EQ(result.datasets[0].counted_targets, 4);
}

TEST(TokenImport, LongMasks) {
  const Scratch scratch;
  const Row ids = many_ids(1'200'000);
  std::string mask;
  for (size_t i = 0; i < ids.size(); ++i) mask += static_cast<char>((i * i / 7 + i) % 3 == 0);
  TokenImport options = raw_import(scratch, ids, TokenElement::u32);
  options.shard_tokens = 200'000;
  options.masks = {scratch.write("mask.npy", npy_mask(mask))};
  Row expected;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] == kLast) continue;
    const bool is_last = i + 1 == ids.size();
    expected.push_back(mask[is_last ? i : i + 1] == 1 ? is_last ? kLast : ids[i + 1] : -1);
    if (is_last || ids[i + 1] == kLast) expected.push_back(-1);
  }
  imported(options);
  EXPECT_EQ(all_targets(options.output), expected);
}

TEST(TokenImport, RefusesMasksThatDoNotFit) {
  const Scratch scratch;
  TokenImport options = raw_import(scratch, {1, 2, kLast});
  const auto refused = [&](const std::string& mask, const std::string& part) {
    options.masks = {scratch.write("mask.npy", mask)};
    EXPECT_ERROR(import_tokens(options), ExitCode::bad_input, part);
  };
  refused(npy_mask("\1\1"), "a mask of 2 tokens, but its file of tokens has 3");
  refused(npy_mask(std::string("\0\2\1", 3)), "2 at position 1; a mask holds 1");
  refused(npy("<u2", "(3,)", "123456"), "a mask is an array of bool");
  refused(npy("|b1", "(3,)", "\1"), "not the 3 numbers of 1 bytes");
  refused(npy_mask(std::string(3, '\0')), "nothing to learn");
  options.inputs.push_back(options.inputs[0]);
  EXPECT_ERROR(import_tokens(options), ExitCode::bad_input, "1 masks for 2 files");
  options = token_import(scratch, {scratch.write("x.ds", stored(TokenElement::u16, {1, kLast}))});
  scratch.write("x.ds.index", packed(uint64_t{2}));
  scratch.write("x.ds.loss", "\1");
  EXPECT_ERROR(import_tokens(options), ExitCode::bad_input, "1 bytes for 2 tokens");
  scratch.write("x.ds.loss", "\1\1");
  options.masks = {scratch.write("mask.npy", npy_mask("\1\1"))};
  EXPECT_ERROR(import_tokens(options), ExitCode::bad_input, "has its own mask");
  options.masks.clear();
  options.inputs.push_back(write_megatron(scratch, "m", {{{1, kLast}}}));
  EXPECT_ERROR(import_tokens(options), ExitCode::bad_input, "has a mask, but " + scratch / "m.bin");
}

TEST(TokenImport, DatatrovesMaskIsRead) {
  const Scratch scratch;
  const std::string path = scratch.write("x.ds", stored(TokenElement::u16, {1, 2, 3, kLast}));
  scratch.write("x.ds.index", packed(uint64_t{4}));
  scratch.write("x.ds.loss", std::string("\0\0\1\1", 4));
  const TokenImport options = token_import(scratch, {path});
  imported(options);
  EXPECT_EQ(all_targets(options.output), (Row{-1, 3, kLast, -1}));
}

TEST(TokenImport, ShufflesAndSplitsByItsOptions) {
  const Scratch scratch;
  const Row ids = many_ids(60'000);
  const std::vector<Row> all = documents_in(ids);
  TokenImport options = raw_import(scratch, ids);
  options.shuffle = true;
  options.seed = 5;
  imported(options);
  const std::vector<Row> shuffled = documents_of(options.output);
  EXPECT_NE(shuffled, all);
  EXPECT_EQ(std::multiset<Row>(shuffled.begin(), shuffled.end()), std::multiset<Row>(all.begin(), all.end()));
  options.output = scratch / "parts";
  options.shuffle = false;
  options.validation_fraction = 0.3;
  import_tokens(options);
  const std::vector<Row> train = documents_of(options.output + "/train");
  const std::vector<Row> validation = documents_of(options.output + "/validation");
  EXPECT_GT(train.size(), validation.size());
  EXPECT_GT(validation.size(), 5u);
  // Both keep the order, so that merging them by the original order gives all documents.
  size_t in_train = 0, in_validation = 0;
  for (const Row& document : all) {
    if (in_train < train.size() && train[in_train] == document) {
      ++in_train;
    } else {
      ASSERT_LT(in_validation, validation.size());
      EXPECT_EQ(validation[in_validation++], document);
    }
  }
}

TEST(TokenImport, Packs) {
  const Scratch scratch;
  TokenImport options = raw_import(scratch, {1, 2, 3, kLast, 4, 5, 6, kLast, 7, kLast});
  options.pack = 6;
  EXPECT_EQ(imported(options), (Row{1, 2, 3, kLast, kLast, kLast, 4, 5, 6, kLast, 7, kLast}));
  EXPECT_EQ(all_targets(options.output), (Row{2, 3, kLast, -1, -1, -1, 5, 6, kLast, -1, kLast, -1}));
}

TEST(TokenImport, CountsTheTextOfATokenizer) {
  const Scratch scratch;
  TokenImport options = raw_import(scratch, {3, 4, 5});
  options.tokenizer = scratch.write("tokenizer.model", example_model());
  const std::unique_ptr<const Tokenizer> tokenizer = load_tokenizer(options.tokenizer);
  Row ids = tokenizer->encode("the tensor runs");
  ids.push_back(tokenizer->end_of_document());
  scratch.write("raw.bin", stored(TokenElement::u16, ids));
  TokenImportResult result;
  EXPECT_EQ(imported(options, &result), ids);
  EXPECT_EQ(result.datasets[0].text_bytes, 15);
  EXPECT_EQ(all_documents(options.output), std::vector<std::string>{"the tensor runs"});
}

TEST(MegatronExport, GivesBackWhatWasImported) {
  const Scratch scratch;
  std::vector<Sequences> documents;
  for (const Row& document : documents_in(many_ids(150'000))) documents.push_back({document});
  for (const TokenElement element : {TokenElement::u16, TokenElement::i32, TokenElement::i64}) {
    const std::string name = to_string(element), prefix = write_megatron(scratch, name, documents, element);
    TokenImport options = token_import(scratch, {prefix}, name + "-dataset");
    options.shard_tokens = 40'000;
    imported(options);
    const MegatronExport made = export_megatron(options.output, scratch / name + "-back", element);
    EXPECT_EQ(made.documents, std::ssize(documents));
    for (const char* ending : {".bin", ".idx"}) {
      EXPECT_EQ(Scratch::read(prefix + ending), Scratch::read(prefix + "-back" + ending)) << name << ending;
    }
  }
}

// More than are read from the dataset at once.
TEST(MegatronExport, ManyDocuments) {
  const Scratch scratch;
  const std::vector<Sequences> documents(300'000, {{1, kLast}});
  TokenImport options = token_import(scratch, {write_megatron(scratch, "x", documents)});
  imported(options);
  export_megatron(options.output, scratch / "back");
  EXPECT_EQ(Scratch::read(scratch / "x.idx"), Scratch::read(scratch / "back.idx"));
}

TEST(MegatronExport, ChoosesTheTypeAsMegatronDoes) {
  const Scratch scratch;
  for (const auto& [vocabulary, element] :
       {std::pair(65'499, TokenElement::u16), std::pair(65'500, TokenElement::i32)}) {
    TokenImport options = raw_import(scratch, {1, 2, kLast});
    options.output = scratch / std::to_string(vocabulary);
    options.vocabulary.size = vocabulary;
    imported(options);
    EXPECT_EQ(export_megatron(options.output, options.output + "-x").element, element);
    EXPECT_ERROR(export_megatron(options.output, options.output + "-x"), ExitCode::bad_input, "-x.bin exists");
    EXPECT_ERROR(export_megatron(options.output, scratch / "y", TokenElement::i16), ExitCode::bad_input,
                 "holds ids up to 32767");
    EXPECT_ERROR(export_megatron(options.output, scratch / "y", TokenElement::u32), ExitCode::bad_input,
                 "no type of Megatron-LM's");
  }
}

TEST(MegatronExport, LeavesNothingOfADamagedDataset) {
  const Scratch scratch;
  const TokenImport options = raw_import(scratch, many_ids(100'000));
  imported(options);
  const std::string shard = options.output + "/shard-00000.h5";
  std::string bytes = Scratch::read(shard);
  bytes[bytes.size() / 2] ^= 1;
  std::ofstream(shard, std::ios::binary) << bytes;
  EXPECT_ERROR(export_megatron(options.output, scratch / "x"), ExitCode::bad_input, "shard-00000.h5");
  for (const auto& entry : std::filesystem::directory_iterator(scratch.path())) {
    EXPECT_NE(entry.path().filename().string()[0], 'x') << entry.path();
  }
}

}  // namespace
}  // namespace shiftron

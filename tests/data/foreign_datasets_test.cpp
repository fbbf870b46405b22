// Datasets that other programs wrote: without a tokenizer, with one that this program cannot use, without end tokens.
#include <gtest/gtest.h>

#include <fstream>

#include "data/dataset_writer.h"
#include "data/loader.h"
#include "data/verify.h"
#include "expect_error.h"
#include "fixture.h"

namespace shiftron {
namespace {

// One document of ids 1, 2, 3, of 7 bytes of text.
std::string small_dataset(const Scratch& scratch, const std::string& tokenizer) {
  DatasetOutput options;
  options.output = scratch / "dataset";
  DatasetWriter writer(options, {.size = 10, .end_of_document = 9, .tokenizer = {{"tokenizer.model", tokenizer}}}, {}, "x", 1);
  TokenDocument document;
  document.ids = {1, 2, 3};
  document.text_bytes = 7;
  writer.close(document);
  writer.add(document);
  writer.finish({.nothing = ""}, {});
  writer.commit();
  return options.output;
}

// Their writers may know how long a text is, or state the hash of an empty tokenizer.
TEST(ForeignDatasets, NeedNoTokenizer) {
  const Scratch scratch;
  const std::string directory = small_dataset(scratch, ""), description = directory + "/dataset.json";
  EXPECT_EQ(Dataset(directory).description().text_bytes, 7);
  EXPECT_EQ(verify_dataset(directory).faults, std::vector<std::string>());
  std::string text = Scratch::read(description);
  text.insert(text.find('{') + 1, "\"tokenizer_hash\": \"99aa06d3014798d86001c324468d497f\",");
  std::ofstream(description) << text;
  const Dataset dataset(directory);
  EXPECT_EQ(dataset.description().header.tokenizer_hash, "");
  EXPECT_EQ(dataset.tokenizer().file.bytes, "");
  EXPECT_EQ(verify_dataset(directory).faults, std::vector<std::string>());
}

TEST(ForeignDatasets, TokenizersOfOtherProgramsAreNoFault) {
  const Scratch scratch;
  const VerifyResult result = verify_dataset(small_dataset(scratch, "{\"version\": \"1.0\"}"));
  EXPECT_EQ(result.faults, std::vector<std::string>());
  ASSERT_EQ(result.notes.size(), 1u);
  EXPECT_THAT(result.notes[0], ::testing::HasSubstr("lengths of texts were not checked"));
}

// Training sees borders only by end tokens, so documents without them would silently be joined.
TEST(ForeignDatasets, DocumentsWithoutEndTokensAreRefused) {
  const Scratch scratch;
  const std::string directory = small_dataset(scratch, "");
  const ShardRecord shard = Dataset(directory).description().shards[0];
  std::fstream file(directory + "/" + shard.file, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(shard.tokens_offset) + 3 * 2);
  file.put(4);
  file.close();
  const Loader loader({{directory}}, 2, 1, true, true);
  EXPECT_ERROR(loader.require_shards(), ExitCode::bad_input,
               "its last document ends with token 4, not with the end_of_document 9");
}

}  // namespace
}  // namespace shiftron

// A dataset holds its tokenizer, whatever its kind, and what was chosen about it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "core/file.h"
#include "data/loader.h"
#include "data/verify.h"
#include "expect_error.h"
#include "fixture.h"

namespace shiftron {
namespace {

using nlohmann::json;
constexpr int32_t kBeginText = 0, kEndText = 1,
                  kEndTurn = 2;  // of the family below: <|begin_of_text|>, <|end_of_text|>, <|eot_id|>

class StoredTokenizers : public ::testing::Test {
 protected:
  // A byte-level tokenizer that begins and ends documents, with ends of turns.
  BuildOptions options(const std::vector<std::string>& documents, const std::string& name = "dataset") {
    const std::string cases = std::string(SHIFTRON_SOURCE_DIR) + "/tests/tokenizer/cases/llama_3.json";
    BuildOptions build = example_build(scratch_, documents, name);
    build.tokenizer = scratch_.write("tokenizer.json", json::parse(read_file(cases))["tokenizer"].dump());
    build.tokenizer_choice.end_of_document = "<|end_of_text|>";
    return build;
  }
  std::vector<std::vector<int32_t>> documents_of(const std::string& directory) {
    std::vector<std::vector<int32_t>> documents(1);
    for (const int32_t token : all_tokens(directory)) {
      documents.back().push_back(token);
      if (token == kEndText) documents.emplace_back();
    }
    documents.pop_back();
    return documents;
  }
  json description() const { return json::parse(Scratch::read(scratch_ / "dataset/dataset.json")); }
  Scratch scratch_;
};

TEST_F(StoredTokenizers, EachDocumentBeginsAndEndsAsTheTokenizerSays) {
  build_dataset(options({"one <|eot_id|> text", "\xC3 another"}));
  const Dataset dataset(scratch_ / "dataset");
  EXPECT_EQ(description()["version"], 3);
  EXPECT_EQ(dataset.tokenizer_path(), scratch_ / "dataset/tokenizer.json");
  EXPECT_EQ(dataset.tokenizer().file.name, "tokenizer.json");
  EXPECT_EQ(dataset.tokenizer().file.bytes, Scratch::read(scratch_ / "tokenizer.json"));
  EXPECT_EQ(dataset.tokenizer().settings, (TokenizerSettings{kEndText, kBeginText, false}));
  const auto tokenizer = make_tokenizer(dataset.tokenizer(), "T");
  std::set<std::string> texts;
  for (const auto& ids : documents_of(scratch_ / "dataset")) {
    EXPECT_EQ(ids.front(), kBeginText);
    EXPECT_EQ(std::ranges::count(ids, kBeginText) + std::ranges::count(ids, kEndTurn), 1);
    texts.insert(tokenizer->decode(ids));
  }
  EXPECT_EQ(texts, (std::set<std::string>{"one <|eot_id|> text", "\xC3 another"}));
  EXPECT_EQ(verify_dataset(scratch_ / "dataset").faults, std::vector<std::string>());
}

// Lengths of texts are those of the tokens: a token in place of its name adds nothing.
TEST_F(StoredTokenizers, NamesBecomeTokensAndBeginningsAreLeftOutOnRequest) {
  BuildOptions build = options({"one<|eot_id|>two", "<|begin_of_text|>three"});
  build.tokenizer_choice.special_text = true;
  build.tokenizer_choice.beginning_of_document = kNoToken;
  build_dataset(build);
  const Dataset dataset(scratch_ / "dataset");
  EXPECT_EQ(dataset.tokenizer().settings, (TokenizerSettings{kEndText, -1, true}));
  EXPECT_FALSE(description().contains("beginning_of_document"));
  EXPECT_EQ(description()["text_bytes"], 6 + 5);
  int turns = 0, beginnings = 0;
  for (const auto& ids : documents_of(scratch_ / "dataset")) {
    turns += static_cast<int>(std::ranges::count(ids, kEndTurn));
    beginnings += static_cast<int>(std::ranges::count(ids, kBeginText));
  }
  EXPECT_EQ(turns, 1);
  EXPECT_EQ(beginnings, 1);
  EXPECT_EQ(verify_dataset(scratch_ / "dataset").faults, std::vector<std::string>());
}

TEST_F(StoredTokenizers, IdsThatHaveTheirBeginningKeepIt) {
  BuildOptions build = options({});
  build.inputs = {scratch_.write("ids.jsonl", R"({"ids": [0, 9], "targets": [9, null]})"
                                              "\n"
                                              R"({"ids": [8], "targets": [8]})"
                                              "\n")};
  build.document_separator = "";
  build.ids = true;
  build_dataset(build);
  const auto documents = documents_of(build.output);
  EXPECT_THAT(documents, ::testing::UnorderedElementsAre(std::vector<int32_t>{kBeginText, 9, kEndText},
                                                         std::vector<int32_t>{kBeginText, 8, kEndText}));
  Dataset dataset(build.output);
  std::vector<int32_t> targets(6);
  dataset.read_targets(0, 6, targets.data(), true);
  const bool first = documents[0][1] == 9;
  const std::vector<int32_t> nine = {9, kNotCounted, kNotCounted}, eight = {kNotCounted, 8, kNotCounted};
  std::vector<int32_t> expected = first ? nine : eight;
  expected.insert(expected.end(), (first ? eight : nine).begin(), (first ? eight : nine).end());
  EXPECT_EQ(targets, expected);
}

TEST_F(StoredTokenizers, OneTokenDoesNotBothBeginAndEndDocuments) {
  BuildOptions build = options({"one"});
  build.tokenizer_choice.beginning_of_document = "<|end_of_text|>";
  EXPECT_ERROR(build_dataset(build), ExitCode::bad_input, "give --beginning-of-document none");
}

// What a SentencePiece model states itself is not stored again: older versions read such datasets.
TEST_F(StoredTokenizers, AChoiceThatTheFileStatesChangesNoByte) {
  BuildOptions build = example_build(scratch_, {"one", "two"});
  build_dataset(build);
  const std::string before = Scratch::read(scratch_ / "dataset/dataset.json");
  EXPECT_EQ(description()["version"], 1);
  build.tokenizer_choice.end_of_document = "</s>";
  build.output = scratch_ / "again";
  build_dataset(build);
  EXPECT_EQ(Scratch::read(scratch_ / "again/dataset.json"), before);
}

TEST_F(StoredTokenizers, ABlendUsesOneTokenizerInOneWay) {
  build_dataset(options({"one text", "another"}));
  BuildOptions other = options({"one text", "another"}, "other");
  other.tokenizer_choice.beginning_of_document = kNoToken;
  build_dataset(other);
  const std::vector<DataSource> sources = {{.directory = scratch_ / "dataset", .weight = 0},
                                           {.directory = scratch_ / "other", .weight = 0}};
  EXPECT_ERROR(Loader(sources, 4, 1, true, true), ExitCode::bad_input,
               "token 1 ends a document, token 0 begins it, names of special tokens are text");
}

TEST_F(StoredTokenizers, FaultyDescriptionsAreRefused) {
  build_dataset(options({"one text"}));
  const auto refuses = [&](const std::string& words, const std::function<void(json&)>& change) {
    json changed = description();
    change(changed);
    EXPECT_ERROR(DatasetDescription::parse(changed.dump(), "D"), ExitCode::bad_input, words);
  };
  refuses("is not a plain file name", [](json& j) { j["tokenizer_file"] = "../tokenizer.json"; });
  refuses("no key \"tokenizer_file\"", [](json& j) { j.erase("tokenizer_file"); });
  refuses("\"tokenizer_hash\" is missing", [](json& j) { j.erase("tokenizer_hash"); });
  refuses("\"beginning_of_document\" is 450", [](json& j) { j["beginning_of_document"] = 450; });
  refuses("is also \"end_of_document\"", [](json& j) { j["beginning_of_document"] = kEndText; });
  refuses("\"special_text\" is a number", [](json& j) { j["special_text"] = 0; });
}

TEST_F(StoredTokenizers, ShardsOfAnotherChoiceAreFaults) {
  build_dataset(options({"one text"}));
  for (const auto& change : std::vector<std::function<void(json&)>>{
           [](json& j) { j["beginning_of_document"] = kEndTurn; }, [](json& j) { j["special_text"] = true; }}) {
    json changed = description();
    change(changed);
    std::filesystem::create_directory(scratch_ / "copy");
    scratch_.write("copy/dataset.json", changed.dump());
    for (const std::string name : {"tokenizer.json", "shard-00000.h5"})
      scratch_.write("copy/" + name, Scratch::read(scratch_ / ("dataset/" + name)));
    EXPECT_THAT(verify_dataset(scratch_ / "copy").faults,
                ::testing::Contains(::testing::HasSubstr("a different tokenizer than dataset.json says")));
  }
}

}  // namespace
}  // namespace shiftron

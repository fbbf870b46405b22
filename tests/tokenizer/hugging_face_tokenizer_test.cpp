// tokenizer.json: what has no counterpart in the package, and what is refused.
#include "tokenizer/hugging_face/hugging_face_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <random>

#include "core/file.h"
#include "expect_error.h"
#include "scratch.h"
#include "time_scale.h"
#include "tokenizer/known_words.h"
#include "tokenizer/load_tokenizer.h"

namespace shiftron {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;

json family(const std::string& name) {
  return json::parse(
      read_file(std::string(SHIFTRON_SOURCE_DIR) + "/tests/tokenizer/cases/" + name + ".json"))["tokenizer"];
}

int32_t id_of(const json& file, const std::string& text) {
  for (const json& token : file.at("added_tokens")) {
    if (token.at("content") == text) return token.at("id");
  }
  return file.at("model").at("vocab").at(text);
}

std::unique_ptr<Tokenizer> made(const json& file, const std::string& end, bool special_text = false) {
  return make_tokenizer({"tokenizer.json", file.dump()},
                        {.end_of_document = id_of(file, end), .special_text = special_text}, "T");
}

// A directory with tokenizer.json and, unless it is null, tokenizer_config.json.
std::string write_directory(const Scratch& scratch, const json& file, const json& configuration) {
  std::filesystem::remove_all(scratch / "d");
  std::filesystem::create_directory(scratch / "d");
  scratch.write("d/tokenizer.json", file.dump());
  if (!configuration.is_null()) scratch.write("d/tokenizer_config.json", configuration.dump());
  return scratch / "d";
}

TEST(HuggingFace, BytesThatAreNotUtf8AreKept) {
  std::mt19937 random(1);
  for (const std::string name : {"gpt_2", "gemma", "falcon", "llama_3"}) {
    const json file = family(name);
    const auto tokenizer = made(file, file["added_tokens"].back()["content"]);
    for (int i = 0; i < 2000; ++i) {
      std::string text(random() % 30, '\0');
      const std::string alphabet = "ab \n\xC3\xA9\xE2\x96\xFF\xF0\x9F";
      for (char& byte : text) byte = i % 2 == 0 ? static_cast<char>(random()) : alphabet[random() % alphabet.size()];
      const Ids ids = tokenizer->encode(text);
      ASSERT_EQ(tokenizer->decode(ids), text) << name;
      std::string pieces;
      for (const int32_t id : ids) pieces += tokenizer->text_of(id);
      ASSERT_EQ(pieces, text) << name;
    }
  }
}

// Nothing is put in front of what follows such bytes.
TEST(HuggingFace, BytesDoNotSpoilTheirSurroundings) {
  for (const std::string name : {"llama_2", "metaspace", "roberta"}) {
    const json file = family(name);
    const auto tokenizer = made(file, "</s>");
    EXPECT_EQ(tokenizer->decode(tokenizer->encode("caf\xE9 au\xFFlait")),
              tokenizer->decode(tokenizer->encode("caf")) + "\xE9 au\xFFlait")
        << name;
  }
}

TEST(HuggingFace, BytesWithoutTokensAreReplaced) {
  const json file = family("words");
  const auto tokenizer = made(file, "[EOS]");
  EXPECT_EQ(tokenizer->encode("a\xFF\xE2\x96z"), tokenizer->encode("a\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBDz"));
}

// The package writes the character that stands for the byte in bytes: U+010A for the newline.
TEST(HuggingFace, CharactersThatAreLeftOutAreAnnounced) {
  json file = family("words");
  const std::string unknown = file["model"]["unk_token"];
  EXPECT_FALSE(made(file, unknown)->loses_characters());
  file["model"]["unk_token"] = nullptr;
  const auto without = made(file, unknown);
  EXPECT_TRUE(without->loses_characters());
  EXPECT_EQ(without->encode("\xE2\x98\x83"), Ids());
  json bytes = family("gpt_2");
  EXPECT_FALSE(made(bytes, bytes["added_tokens"].back()["content"])->loses_characters());
}

TEST(HuggingFace, ByteLevelModelsFallBackOnlyWherePiecesAreMissing) {
  const std::string end = "<|endoftext|>", text = "a\n\xE6\x97\xA5 b";
  json file = family("gpt_2");
  const Ids plain = made(file, end)->encode(text);
  file["model"]["byte_fallback"] = true;
  EXPECT_EQ(made(file, end)->encode(text), plain);
  json& vocabulary = file["model"]["vocab"];
  vocabulary["<0xC4>"] = 2000;
  vocabulary["<0x8A>"] = 2001;
  EXPECT_EQ(made(file, end)->encode(text), plain);
  const std::string newline = "\xC4\x8A";
  vocabulary["unused"] = vocabulary[newline];
  vocabulary.erase(newline);
  file["model"]["merges"] = json::array();
  EXPECT_EQ(made(file, end)->encode("a\nb"), (Ids{id_of(file, "a"), 2000, 2001, id_of(file, "b")}));
}

TEST(HuggingFace, NamesOfSpecialTokensAreText) {
  json file = family("llama_3");
  const std::string end = "<|end_of_text|>";
  EXPECT_EQ(made(file, end, true)->encode(end), Ids{id_of(file, end)});
  // Even if the model has a merge or a whole word for it.
  file["model"]["merges"].push_back({"<", "|"});
  file["model"]["vocab"]["<|"] = 5000;
  file["added_tokens"].push_back({{"id", 5000}, {"content", "<|"}, {"special", true}});
  for (const bool ignores : {true, false}) {
    file["model"]["ignore_merges"] = ignores;
    const auto tokenizer = made(file, end);
    for (const std::string& text : {end, std::string("<|"), std::string("a<|end_of_text|><|eot_id|>")}) {
      for (const int32_t id : tokenizer->encode(text)) EXPECT_FALSE(tokenizer->is_special(id)) << tokenizer->piece(id);
      EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
    }
  }
}

TEST(HuggingFace, SpecialTokensOfUnigramModelsAreNoPieces) {
  const json file = family("unigram");
  const auto tokenizer = made(file, "</s>");
  for (const int32_t id : tokenizer->encode("a</s>b")) EXPECT_FALSE(tokenizer->is_special(id));
}

TEST(HuggingFace, LongWordsTakeLinearTime) {
  std::mt19937 random(1);
  std::string text(1000000, 'a');
  for (char& letter : text) letter = static_cast<char>('a' + random() % 8);
  for (const std::string name : {"gpt_2", "llama_2", "unigram"}) {
    const json file = family(name);
    const auto tokenizer = made(file, file["added_tokens"].back()["content"]);
    const auto begin = std::chrono::steady_clock::now();
    tokenizer->encode(text);
    tokenizer->encode(std::string(1000000, ' '));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::duration<double>(scaled(20))) << name;
  }
}

TEST(HuggingFace, ReportsBytesWhileItEncodes) {
  const json file = family("gpt_2");
  const auto tokenizer = made(file, "<|endoftext|>");
  std::string text;
  while (text.size() < 400000) text += "some words ";
  std::vector<size_t> told;
  tokenizer->encode(text, [&](size_t done) { told.push_back(done); });
  EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
  EXPECT_GE(told.size(), 5u);
  EXPECT_LE(told.back(), text.size());
}

TEST(HuggingFace, TheEndOfDocumentsIsFoundInTheFiles) {
  const Scratch scratch;
  const json qwen = family("qwen_2"), llama = family("llama_3");
  const auto end_of = [&](const json& file, const json& configuration, const TokenizerChoice& choice = {}) {
    const auto tokenizer = load_tokenizer(write_directory(scratch, file, configuration), choice);
    return tokenizer->piece(tokenizer->end_of_document());
  };
  EXPECT_EQ(end_of(qwen, {}), "<|endoftext|>");  // the only well-known name
  EXPECT_EQ(end_of(qwen, {{"eos_token", "<|im_end|>"}}), "<|im_end|>");
  EXPECT_EQ(end_of(qwen, {{"eos_token", {{"content", "<|im_end|>"}}}}), "<|im_end|>");
  EXPECT_EQ(end_of(qwen, {{"eos_token", "<|im_end|>"}}, {.end_of_document = "<|im_start|>"}), "<|im_start|>");
  EXPECT_ERROR(end_of(qwen, {{"eos_token", "</s>"}}), ExitCode::bad_input,
               "tokenizer_config.json: eos_token is \"</s>\", but");
  EXPECT_ERROR(end_of(qwen, {}, {.end_of_document = "!"}), ExitCode::bad_input, "--end-of-document is \"!\", but");
  json template_with_end = llama;
  template_with_end["post_processor"]["single"].push_back({{"SpecialToken", {{"id", "<|eot_id|>"}, {"type_id", 0}}}});
  template_with_end["post_processor"]["special_tokens"]["<|eot_id|>"] = {{"ids", {id_of(llama, "<|eot_id|>")}}};
  EXPECT_EQ(end_of(template_with_end, {}), "<|eot_id|>");
  json two = qwen;
  two["added_tokens"].push_back({{"id", 9000}, {"content", "</s>"}, {"special", true}});
  EXPECT_ERROR(end_of(two, {}), ExitCode::bad_input,
               "choose one with --end-of-document TOKEN, for example of <|endoftext|>, </s>");
}

TEST(HuggingFace, TheBeginningOfDocumentsIsFoundInTheFiles) {
  const Scratch scratch;
  const json qwen = family("qwen_2"), llama = family("llama_3");
  const auto beginning_of = [&](const json& file, const json& configuration, const TokenizerChoice& choice = {}) {
    const auto tokenizer = load_tokenizer(write_directory(scratch, file, configuration), choice);
    return tokenizer->beginning_of_document() < 0 ? "" : tokenizer->piece(tokenizer->beginning_of_document());
  };
  const std::string begin = "<|begin_of_text|>";
  EXPECT_EQ(beginning_of(llama, {}), begin);
  EXPECT_EQ(beginning_of(llama, {{"add_bos_token", true}, {"bos_token", begin}}), begin);
  EXPECT_EQ(beginning_of(qwen, {}), "");
  EXPECT_EQ(beginning_of(llama, {}, {.beginning_of_document = kNoToken}), "");
  EXPECT_EQ(beginning_of(qwen, {}, {.beginning_of_document = "<|im_start|>"}), "<|im_start|>");
  EXPECT_ERROR(
      beginning_of(llama, {{"add_bos_token", false}, {"bos_token", begin}}), ExitCode::bad_input,
      "tokenizer_config.json: add_bos_token says no token; choose with --beginning-of-document TOKEN, or none");
}

// A fault of a file is named by the file and the key.
TEST(HuggingFace, RefusalsNameTheKey) {
  const json gpt = family("gpt_2"), unigram = family("unigram");
  const auto expect = [](const json& file, const std::string& words) {
    EXPECT_ERROR(make_tokenizer({"tokenizer.json", file.dump()}, {.end_of_document = 0}, "dir/T"), ExitCode::bad_input,
                 words);
  };
  const auto changed = [](json file, const std::string& pointer, const json& value) {
    file[json::json_pointer(pointer)] = value;
    return file;
  };
  expect(changed(gpt, "/model/type", "WordPiece"),
         "dir/T: model: the type WordPiece is not supported; these are: BPE, Unigram");
  expect(changed(gpt, "/normalizer",
                 {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, {{"type", "Precompiled"}}}}}),
         "dir/T: normalizer.normalizers[1]: the type Precompiled is not supported");
  expect(changed(gpt, "/pre_tokenizer/type", "BertPreTokenizer"),
         "pre_tokenizer: the type BertPreTokenizer is not supported");
  expect(changed(gpt, "/decoder/type", "CTC"), "decoder: the type CTC is not supported");
  expect(changed(gpt, "/model/continuing_subword_prefix", "##"), "model.continuing_subword_prefix: is not supported");
  expect(changed(gpt, "/model/end_of_word_suffix", "</w>"), "model.end_of_word_suffix: is not supported");
  expect(changed(gpt, "/model/dropout", 0.1), "model.dropout: is not supported, because it makes ids random");
  expect(changed(gpt, "/model/merges", {"a b c"}), "model.merges: entry 0 \"a b c\" is not two pieces");
  expect(changed(gpt, "/model/merges", {"a \u4e2d"}), "model.merges: entry 0: \"a\u4e2d\" is not in the vocabulary");
  expect(changed(gpt, "/model/vocab/a", 1), "two pieces have the id 1");
  expect(changed(gpt, "/model/vocab/a", -1), "the id of \"a\" is -1; it must be between 0 and");
  expect(changed(gpt, "/added_tokens/0/id", 77),
         "added_tokens: \"<|endoftext|>\" has the id 77, but in the model's vocabulary it has another one");
  expect(
      changed(gpt, "/pre_tokenizer", {{"type", "Split"}, {"pattern", {{"Regex", "(a)\\1"}}}, {"behavior", "Isolated"}}),
      "pre_tokenizer.pattern.Regex: the regular expression has \\1, which is not supported: (a)\\1");
  expect(changed(gpt, "/pre_tokenizer", {{"type", "Split"}, {"pattern", {{"String", " "}}}, {"behavior", "Merged"}}),
         "pre_tokenizer.behavior: \"Merged\" is unknown");
  expect(changed(unigram, "/model/unk_id", nullptr), "model.unk_id: is not an integer");
  expect(changed(unigram, "/model/vocab/3/1", "x"), "model.vocab[3][1]: is not a number");
  EXPECT_ERROR(make_tokenizer({"tokenizer.json", "{\"model\""}, {.end_of_document = 0}, "T"), ExitCode::bad_input,
               "T is not JSON");
  EXPECT_ERROR(make_tokenizer({"tokenizer.json", gpt.dump()}, {}, "T"), ExitCode::bad_input,
               "stored without the token that ends its documents");
  EXPECT_ERROR(make_tokenizer({"tokenizer.json", gpt.dump()}, {.end_of_document = 1}, "T"), ExitCode::bad_input,
               "token 1 is to begin or end documents, but is not an added token");
  EXPECT_ERROR(make_tokenizer({"tokenizer.bin", ""}, {}, "T"), ExitCode::bad_input, "T is stored as \"tokenizer.bin\"");
}

TEST(HuggingFace, AnEmptyDirectoryIsRefused) {
  const Scratch scratch;
  EXPECT_ERROR(load_tokenizer(scratch.path()), ExitCode::bad_input, "has no tokenizer.model or tokenizer.json");
}

}  // namespace
}  // namespace shiftron

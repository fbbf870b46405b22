// tokenizer.json with byte fallback: llama.cpp's way to join pieces, applied to what a GGUF file says, gives the ids of
// the tokenizer. tests/interchange/check_gguf.py compares with llama.cpp itself.
#include "interchange/gguf_byte_fallback.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "data/fixture.h"
#include "expect_error.h"
#include "interchange/gguf_tokenizer.h"
#include "interchange/hugging_face_tokenizer.h"
#include "interchange/llama_cpp_ids.h"
#include "interchange/tokenizer_families.h"

namespace shiftron {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kSpace(kSpaceMark);
const json kReplace = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpace}};
const json kPrepend = {{"type", "Prepend"}, {"prepend", kSpace}};

json sequence_of(const std::vector<json>& normalizers) {
  return {{"type", "Sequence"}, {"normalizers", normalizers}};
}

json metaspace_of(const std::string& scheme, bool splits = false) {
  return {{"type", "Metaspace"}, {"replacement", kSpace}, {"prepend_scheme", scheme}, {"split", splits}};
}

// Without spaces in front: 0 <unk>, 1 </s>, the bytes from 2, then the pieces from 258.
json small_file(const std::vector<std::string>& pieces, const std::vector<std::array<std::string, 2>>& merges) {
  json file = family_file("gemma");
  file["added_tokens"] = {added_token(0, "<unk>", true), added_token(1, "</s>", true)};
  json vocab = {{"<unk>", 0}, {"</s>", 1}};
  for (const auto& [piece, id] : file["model"]["vocab"].items()) {
    if (piece.starts_with("<0x") && piece.size() == 6) vocab[piece] = 2 + std::stoi(piece.substr(3), nullptr, 16);
  }
  for (const std::string& piece : pieces) vocab[piece] = vocab.size();
  file["model"]["vocab"] = vocab;
  file["model"]["merges"] = merges;
  return file;
}

void add_token(json& file, const std::string& text, bool special, const json& patch = json::object()) {
  size_t id = file["model"]["vocab"].size();
  for (const json& token : file["added_tokens"]) id = std::max(id, token["id"].get<size_t>() + 1);
  if (file["model"]["vocab"].contains(text)) id = file["model"]["vocab"][text];
  file["added_tokens"].push_back(added_token(id, text, special));
  file["added_tokens"].back().merge_patch(patch);
}

std::unique_ptr<const Tokenizer> tokenizer_of_file(const json& file, bool special_text = false) {
  const auto& added = file["added_tokens"];
  const auto end = std::ranges::find(added, "</s>", [](const json& token) { return token["content"]; });
  return make_tokenizer({"tokenizer.json", file.dump()},
                        {.end_of_document = (*end)["id"], .special_text = special_text}, "T");
}

GgufTokenizer entries_of(const json& file) {
  return gguf_tokenizer(*tokenizer_of_file(file));
}

std::vector<std::string> random_texts_of(const Tokenizer& tokenizer) {
  const std::vector<std::string> parts = {" ", "  ",   "the", "▁",  "\n", "é", "日本",
                                          "😀", "</s>", "-",   "--", "=",  "a", "e"};
  std::mt19937 random(7);
  std::vector<std::string> texts(2000);
  for (std::string& text : texts) {
    for (size_t left = random() % 12; left > 0; --left) {
      const std::string& own =
          tokenizer.text_of(static_cast<int32_t>(random() % static_cast<uint32_t>(tokenizer.vocab_size())));
      text += random() % 2 == 0 || !is_utf8(own) ? parts[random() % parts.size()] : own;
    }
  }
  return texts;
}

// Texts to which llama.cpp gives other ids.
std::vector<std::string> differences(const Tokenizer& tokenizer, const std::vector<std::string>& texts) {
  const GgufTokenizer entries = gguf_tokenizer(tokenizer);
  const LlamaCppVocabulary vocabulary(entries, tokenizer.settings().special_text);
  std::vector<std::string> different;
  for (const std::string& text : texts) {
    if (vocabulary.encode(text) != tokenizer.encode(text)) different.push_back(text);
  }
  return different;
}

std::vector<std::string> differences(const json& file, const std::vector<std::string>& texts) {
  return differences(*tokenizer_of_file(file), texts);
}

bool begins_with_space(const std::string& text) {
  return text.starts_with(' ') || text.starts_with(kSpace);
}

// Only texts that the note names get other ids, and they do.
TEST(GgufByteFallback, FamiliesGetTheirIds) {
  const auto hard = stored_case("texts").get<std::vector<std::string>>();
  for (const std::string family : {"llama_2", "mistral", "gemma", "metaspace"}) {
    json file = family_file(family);
    auto& added = file["added_tokens"].get_ref<json::array_t&>();
    std::erase_if(added, [](const json& token) {
      return token["lstrip"] || token["rstrip"] || token["single_word"] || token["content"] == "Zürich";
    });
    const auto tokenizer = tokenizer_of_file(file);
    const GgufTokenizer entries = gguf_tokenizer(*tokenizer);
    EXPECT_EQ(entries.model, "llama");
    EXPECT_EQ(entries.end_of_document, 2u);
    EXPECT_EQ(entries.unknown, 0u);
    EXPECT_EQ(entries.add_space_prefix, family != "gemma");
    const bool names_spaces = entries.note.find("what begins with one") != std::string::npos;
    const bool names_bytes = entries.note.find("like <0x41>") != std::string::npos;
    EXPECT_EQ(names_spaces, family == "mistral" || family == "metaspace") << entries.note;
    EXPECT_EQ(names_bytes, family == "gemma") << entries.note;
    EXPECT_EQ(entries.note.find("after added tokens"), std::string::npos);  // none is found
    const bool names_nul = entries.note.find("up to a NUL") != std::string::npos;
    EXPECT_EQ(names_nul, family == "metaspace") << entries.note;
    std::vector<std::string> texts = random_texts_of(*tokenizer);
    texts.insert(texts.end(), hard.begin(), hard.end());
    const std::vector<std::string> different = differences(*tokenizer, texts);
    EXPECT_EQ(different.empty(), !names_spaces && !names_bytes) << family;
    for (const std::string& text : different) {
      EXPECT_TRUE((names_spaces && begins_with_space(text)) ||
                  (names_bytes && text.find("<0x41>") != std::string::npos) || (names_nul && has_nul(text)))
          << family << ": " << json(text);
    }
  }
}

// As Llama 2's file is made: every pair of pieces whose join is a piece is a merge, ordered by the piece's score.
TEST(GgufByteFallback, SentencePieceModelsWithASpaceInFrontGetTheirIds) {
  const SentencePieceTokenizer model(trained_model(400, 400, "bpe"), "trained");
  std::string bytes = hugging_face_tokenizer(model).at("tokenizer.json");
  for (size_t at; (at = bytes.find("\" ")) != bytes.npos;) bytes.replace(at, 2, "\"" + kSpace);
  json file = json::parse(bytes);
  std::set<std::string> joined;
  for (const json& merge : file["model"]["merges"])
    joined.insert(merge[0].get<std::string>() + merge[1].get<std::string>());
  EXPECT_GT(file["model"]["merges"].size(), joined.size());
  file["added_tokens"].push_back(added_token(0, "<unk>", true));
  file["added_tokens"].push_back(added_token(1, "</s>", true));
  file["normalizer"] = sequence_of({kPrepend, kReplace});
  const auto tokenizer = tokenizer_of_file(file);
  EXPECT_EQ(gguf_tokenizer(*tokenizer).note, "");
  EXPECT_THAT(differences(*tokenizer, random_texts_of(*tokenizer)), IsEmpty());
}

// The first listed merge to "abc" would come before that to "cd", but no text has "a" in front of "bc".
TEST(GgufByteFallback, TheMergeThatTextsReachOrdersAPiece) {
  const json file = small_file({"a", "b", "c", "ab", "bc", "cd", "abc", "d"},
                               {{"a", "b"}, {"a", "bc"}, {"c", "d"}, {"b", "c"}, {"ab", "c"}});
  const GgufTokenizer entries = entries_of(file);
  EXPECT_EQ(std::vector<float>(entries.scores.end() - 5, entries.scores.end()),
            (std::vector<float>{-1, -3, -2, -4, 0}));
  EXPECT_THAT(differences(file, {"abcd", "abc", "bcd", "aabcc", "abcabcd"}), IsEmpty());
}

// A pair that is listed twice is joined in the order of the last one, as in the package.
TEST(GgufByteFallback, TheLastOfEqualMergesCounts) {
  const json file = small_file({"a", "b", "c", "ab", "bc"}, {{"a", "b"}, {"b", "c"}, {"a", "b"}});
  EXPECT_THAT(differences(file, {"abc"}), IsEmpty());
}

TEST(GgufByteFallback, PiecesThatNoMergeMakesAreNotMade) {
  const json file =
      small_file({"a", "b", "c", "ab", "bc", "abc", "ca", "né", "n", "cccc", "cbc b", "bcc"}, {{"a", "b"}, {"b", "c"}});
  const GgufTokenizer entries = entries_of(file);
  const auto expect = [&](size_t id, const std::string& name, int32_t type) {
    EXPECT_EQ(entries.pieces[id], name);
    EXPECT_EQ(entries.types[id], type) << name;
  };
  expect(261, "ab", 1);
  expect(263, "[unused 263]", 3);  // "ab" and "c" have no merge
  expect(264, "[unused 264]", 3);
  expect(265, "[unused 265]", 3);  // "é" is no piece
  expect(267, "cccc", 1);          // which nothing joins to
  expect(268, "cbc b", 1);
  expect(269, "[unused 269]", 3);
  EXPECT_THAT(differences(file, {"abc", "ca", "né", "cccc", "cbc b"}), IsEmpty());
}

TEST(GgufByteFallback, NamesOfSpecialTokensAreText) {
  json file = small_file({"a", "b", "ab", "x", "c", "bc", "abc"}, {{"a", "b"}, {"b", "c"}, {"ab", "c"}});
  add_token(file, "ab", true);
  add_token(file, "x", true);
  add_token(file, "<s>", true);
  const GgufTokenizer entries = entries_of(file);
  EXPECT_EQ(entries.pieces[260], "[control 260]");
  EXPECT_EQ(entries.pieces[261], "[control 261]");
  EXPECT_EQ(entries.pieces[265], "<s>");
  for (const size_t id : {260, 261, 265}) EXPECT_EQ(entries.types[id], 3);
  EXPECT_EQ(entries.types[0], 2);
  EXPECT_EQ(entries.types[2], 6);
  EXPECT_THAT(differences(file, {"ab", "x", "<s>", "a<s>b", "abc"}), IsEmpty());
  file["model"]["vocab"].update({{kSpace, 266}, {kSpace + "a", 267}});
  file["model"]["merges"].push_back(json::array({kSpace, "a"}));
  add_token(file, kSpace + "a", true);
  const auto special = tokenizer_of_file(file, true);
  EXPECT_EQ(gguf_tokenizer(*special).pieces[260], "ab");
  EXPECT_THAT(differences(*special, {"ab", "x", "aabb", "<s>", "a<s>b", "abc", "b a"}), IsEmpty());
}

// llama.cpp reads names up to a NUL, and does not load two tokens of the same name.
TEST(GgufByteFallback, PiecesWithANulAreNamed) {
  const std::string nul(1, '\0');
  json file = small_file({"a", nul, "a" + nul, " b" + nul, " b"}, {{"a", nul}});
  add_token(file, "</s>" + nul, true);
  const GgufTokenizer entries = entries_of(file);
  for (const size_t id : {259, 260, 261}) EXPECT_EQ(entries.pieces[id], "[unused " + std::to_string(id) + "]");
  EXPECT_EQ(entries.pieces[263], "[control 263]");
  EXPECT_THAT(entries.note, HasSubstr("up to a NUL"));
  EXPECT_EQ(differences(file, {"a", "a" + nul, "b", nul + "b"}), (std::vector<std::string>{"a" + nul, nul + "b"}));
}

TEST(GgufByteFallback, ByteLevelTokenizersStayByteLevel) {
  json file = family_file("gpt_2");
  file["model"]["byte_fallback"] = true;
  const auto tokenizer = make_tokenizer({"tokenizer.json", file.dump()}, {.end_of_document = 0}, "T");
  EXPECT_EQ(gguf_tokenizer(*tokenizer).model, "gpt2");
}

TEST(GgufByteFallback, IdsWithoutATokenAreNamed) {
  json file = small_file({"a"}, {});
  file["added_tokens"].push_back(added_token(260, "<tool>", false));
  const GgufTokenizer entries = entries_of(file);
  EXPECT_EQ(entries.pieces[259], "[unused 259]");
  EXPECT_EQ(entries.pieces[260], "<tool>");
  EXPECT_EQ(entries.types[260], 4);
}

// Where a space is put: in front of the text, and of what follows an added token.
TEST(GgufByteFallback, SpacesArePutAsTheFileSays) {
  const std::vector<std::string> texts = {"a",        "a a", "a<tool>a", "<tool>a", "a<tool>", "<tool><tool>a a",
                                          "<tool> a", ""};
  const auto check = [&](const json& normalizer, const json& pre_tokenizer, bool adds_space,
                         const std::vector<std::string>& different) {
    json file = small_file({"a", kSpace, kSpace + "a", "a" + kSpace}, {{"a", kSpace}, {kSpace, "a"}});
    file["normalizer"] = normalizer;
    file["pre_tokenizer"] = pre_tokenizer;
    add_token(file, "<tool>", false);
    EXPECT_EQ(entries_of(file).add_space_prefix, adds_space) << pre_tokenizer;
    EXPECT_EQ(differences(file, texts), different) << normalizer << pre_tokenizer;
    return entries_of(file).note;
  };
  const json spaces_first = {{"type", "Prepend"}, {"prepend", " "}};
  EXPECT_EQ(check(kReplace, nullptr, false, {}), "");
  EXPECT_EQ(check(sequence_of({kReplace}), {{"type", "Split"}, {"pattern", {{"String", " "}}}, {"behavior", "Removed"}},
                  false, {}),
            "");
  EXPECT_EQ(check(sequence_of({kPrepend, kReplace}), nullptr, true, {}), "");
  EXPECT_EQ(check(sequence_of({spaces_first, kReplace}), nullptr, true, {}), "");
  EXPECT_EQ(check(sequence_of({kReplace, kPrepend}), nullptr, true, {}), "");
  EXPECT_EQ(check(nullptr, metaspace_of("never"), false, {}), "");
  const std::string two = "ids of llama.cpp may differ: it puts a space in front of what begins with one, too";
  EXPECT_EQ(check(nullptr, metaspace_of("always"), true, {"<tool> a"}), two);
  EXPECT_EQ(check(nullptr, metaspace_of("first"), true, {"a<tool>a", "<tool>a", "<tool><tool>a a", "<tool> a"}),
            two + "; it puts a space after added tokens, too");
}

// Words begin with a space and are joined one by one, so no piece has a space inside.
TEST(GgufByteFallback, WordsOfMetaspaceAreKeptApart) {
  json file = small_file({"a", kSpace, kSpace + "a", "a" + kSpace, kSpace + kSpace},
                         {{"a", kSpace}, {kSpace, kSpace}, {kSpace, "a"}});
  file["normalizer"] = nullptr;
  file["pre_tokenizer"] = metaspace_of("never", true);
  EXPECT_THAT(differences(file, {"a a", "a  a", "  ", " a a"}), IsEmpty());
  const GgufTokenizer entries = entries_of(file);
  EXPECT_EQ(entries.pieces[261], "[unused 261]");
  EXPECT_EQ(entries.pieces[262], "[unused 262]");
}

TEST(GgufByteFallback, AddedTokensThatLlamaCppFindsOtherwiseAreRefused) {
  const auto refused = [](const std::string& text, const json& patch, const json& normalizer,
                          const std::string& message) {
    json file = small_file({"a", kSpace, "b", "ab", "▁b"}, {{"a", "b"}, {kSpace, "b"}});
    file["normalizer"] = normalizer;
    add_token(file, text, false, patch);
    if (message.empty()) {
      EXPECT_THAT(differences(file, {"x y", text, "a" + text, " a", "▁a", " b", "▁b", "  b"}), IsEmpty());
    } else {
      EXPECT_ERROR(entries_of(file), ExitCode::bad_input, "T: added_tokens: \"" + text + "\" " + message);
    }
  };
  const json normalized = {{"normalized", true}}, plain = json::object();
  refused("<tool>", {{"lstrip", true}}, kReplace, "has lstrip, rstrip or single_word");
  refused("<tool>", normalized, kReplace, "");
  refused("x y", normalized, kReplace, "is \"normalized\"");
  refused("x▁y", normalized, kReplace, "is \"normalized\"");
  refused("<tool>", normalized, sequence_of({kPrepend, kReplace}), "is \"normalized\"");
  refused("x y", plain, kReplace, "");
  refused("▁a", plain, kReplace, "is found with U+2581 only");
  refused("▁b", plain, kReplace, "");  // which a space and "b" become, too
  refused("▁xy", plain, kReplace, "");
  refused("ba", plain, kReplace, "");  // which no merge makes
  refused("<0x41>", plain, kReplace, "is the token of a byte");
  json file = small_file({"a"}, {});
  add_token(file, kSpace, false);
  EXPECT_ERROR(entries_of(file), ExitCode::bad_input, "is found with U+2581 only");
  file = small_file({"a", kSpace}, {});
  file["normalizer"] = nullptr;
  file["pre_tokenizer"] = metaspace_of("never");
  add_token(file, "x y", false, normalized);
  EXPECT_THAT(differences(file, {"x y", "x▁y", " x y"}), IsEmpty());
  file = small_file({"a"}, {});
  add_token(file, std::string("a\0", 2), false);
  EXPECT_ERROR(entries_of(file), ExitCode::bad_input, "has the character NUL");
}

TEST(GgufByteFallback, WhatLlamaCppDoesNotDoIsRefused) {
  const json file = small_file({"a", "b", "ab"}, {{"a", "b"}});
  const auto refused = [&](const json& patch, const std::string& message) {
    json changed = file;
    changed.merge_patch(patch);
    EXPECT_ERROR(entries_of(changed), ExitCode::bad_input, message);
  };
  const auto normalizers = [](const std::vector<json>& list) { return json{{"normalizer", sequence_of(list)}}; };
  const json lower = {{"type", "Lowercase"}};
  refused({{"model", {{"byte_fallback", false}}}}, "T: model: is a BPE model that is not byte-level");
  refused({{"model", {{"ignore_merges", true}}}}, "T: model.ignore_merges: is true");
  refused({{"model", {{"unk_token", nullptr}}}}, "T: model.unk_token: is missing");
  refused({{"model", {{"unk_token", "a"}}}}, "T: model.unk_token: is not a special token");
  refused({{"model", {{"vocab", {{"<0x41>", nullptr}}}}}}, "T: model.vocab: has no token for byte 65");
  refused({{"model", {{"vocab", {{"a<0x41>", 261}}}, {"merges", json::array({json::array({"a", "<0x41>"})})}}}},
          "T: model.merges: entry 0 joins the token of a byte, \"<0x41>\"");
  refused({{"normalizer", nullptr}}, "T: normalizer: does not write U+2581");
  refused({{"normalizer", lower}}, "T: normalizer: llama.cpp writes U+2581 for spaces");
  refused(normalizers({kReplace, lower}), "T: normalizer.normalizers[1]: llama.cpp writes");
  refused(normalizers({kPrepend}), "T: normalizer: does not write U+2581");
  refused(normalizers({kPrepend, kPrepend, kReplace}), "T: normalizer.normalizers[1]: ");
  refused(normalizers({kReplace, {{"type", "Prepend"}, {"prepend", " "}}}), "T: normalizer.normalizers[1]: ");
  refused(normalizers({{{"type", "Prepend"}, {"prepend", "_"}}, kReplace}), "T: normalizer.normalizers[0]: ");
  refused({{"normalizer", {{"content", "_"}}}}, "T: normalizer: llama.cpp writes");
  refused({{"normalizer", {{"pattern", {{"String", "  "}}}}}}, "T: normalizer: llama.cpp writes");
  refused({{"pre_tokenizer", {{"invert", true}}}}, "T: pre_tokenizer: llama.cpp does not cut");
  refused({{"pre_tokenizer", {{"pattern", {{"String", "a"}}}}}}, "T: pre_tokenizer: llama.cpp does not cut");
  refused({{"pre_tokenizer", {{"type", "WhitespaceSplit"}}}}, "as this WhitespaceSplit does");
  refused({{"pre_tokenizer", metaspace_of("first")}}, "T: normalizer: changes texts before");
  json other = metaspace_of("first");
  other["replacement"] = "_";
  refused({{"normalizer", nullptr}, {"pre_tokenizer", other}}, "T: pre_tokenizer.replacement: is not U+2581");
}

}  // namespace
}  // namespace shiftron

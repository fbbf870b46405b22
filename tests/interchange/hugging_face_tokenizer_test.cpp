// The form of the files. tests/interchange/check_tokenizer.py checks that they give the same ids.
#include "interchange/hugging_face_tokenizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "data/fixture.h"
#include "expect_error.h"
#include "scratch.h"
#include "tokenizer/load_tokenizer.h"

namespace shiftron {
namespace {

using nlohmann::json;

const std::string& unigram_model() {
  static const std::string model = trained_model(400, 300, "unigram");
  return model;
}

// What tokenizer.json and tokenizer_config.json say for both kinds.
json checked_file(const Tokenizer& tokenizer) {
  const auto files = hugging_face_tokenizer(tokenizer);
  EXPECT_EQ(files.size(), 2u);
  const json config = json::parse(files.at("tokenizer_config.json"));
  EXPECT_EQ(config.at("eos_token"), tokenizer.piece(tokenizer.end_of_document()));
  EXPECT_EQ(config.at("tokenizer_class"), "PreTrainedTokenizerFast");
  EXPECT_EQ(config.at("split_special_tokens"), true);
  json file = json::parse(files.at("tokenizer.json"));
  EXPECT_TRUE(file.at("normalizer").is_null());
  EXPECT_EQ(file.at("model").at("byte_fallback"), true);
  std::vector<std::string> added;
  for (const json& token : file.at("added_tokens")) {
    added.push_back(token.at("content"));
    EXPECT_EQ(tokenizer.piece(token.at("id")), added.back());
    EXPECT_EQ(token.at("special"), false);
  }
  EXPECT_EQ(added, std::vector<std::string>{"\n"});  // no control token
  return file;
}

// The name under which a token must stand in the file.
std::string expected_name(const Tokenizer& tokenizer, int32_t id) {
  const std::string piece = tokenizer.piece(id);
  const bool reserved = tokenizer.bytes_of(id) == 0 || piece.starts_with("<0x");
  return reserved ? piece : tokenizer.text_of(id);
}

TEST(HuggingFaceTokenizer, NamesEveryTokenOfABpeModelAndItsJoins) {
  const SentencePieceTokenizer tokenizer(example_model(), "example");
  const json model = checked_file(tokenizer).at("model");
  EXPECT_EQ(model.at("type"), "BPE");
  EXPECT_EQ(model.at("unk_token"), "<unk>");
  const json& vocab = model.at("vocab");
  ASSERT_EQ(static_cast<int64_t>(vocab.size()), tokenizer.vocab_size());
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) EXPECT_EQ(vocab.at(expected_name(tokenizer, id)), id);

  std::set<std::string> joined;
  int64_t last = -1;
  for (const json& merge : model.at("merges")) {
    const std::string text = merge.at(0).get<std::string>() + merge.at(1).get<std::string>();
    ASSERT_TRUE(vocab.contains(text)) << text;
    const int64_t id = vocab.at(text);  // scores of a trained model fall with the number
    EXPECT_GE(id, last);
    last = id;
    joined.insert(text);
  }
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string name = expected_name(tokenizer, id);
    const bool single = name.size() == 1 || tokenizer.piece(id).starts_with("<0x") || tokenizer.bytes_of(id) == 0;
    EXPECT_EQ(joined.contains(name), !single) << name;
  }
}

TEST(HuggingFaceTokenizer, NamesEveryTokenOfAUnigramModelWithItsScore) {
  const SentencePieceTokenizer tokenizer(unigram_model(), "example");
  const json file = checked_file(tokenizer);
  const json& model = file.at("model");
  EXPECT_EQ(model.at("type"), "Unigram");
  EXPECT_EQ(model.at("unk_id"), 0);
  const json& vocab = model.at("vocab");
  ASSERT_EQ(static_cast<int64_t>(vocab.size()), tokenizer.vocab_size());
  double lowest = 0;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const json& entry = vocab.at(static_cast<size_t>(id));
    EXPECT_EQ(entry.at(0), expected_name(tokenizer, id));
    if (entry.at(0) == tokenizer.text_of(id)) lowest = std::min(lowest, entry.at(1).get<double>());
  }
  EXPECT_LT(lowest, -1);
  for (const char* name : {"</s>", "<unk>", "<0x41>"}) {  // never the best cut of a text
    const auto entry = std::find_if(vocab.begin(), vocab.end(), [&](const json& one) { return one.at(0) == name; });
    ASSERT_NE(entry, vocab.end());
    EXPECT_LT(entry->at(1).get<double>(), lowest - 100);
  }
  // The example has no "<": names are cut there.
  bool cut = false;
  for (const json& one : file.at("pre_tokenizer").at("pretokenizers")) cut |= one.at("pattern").at("String") == "<";
  EXPECT_TRUE(cut);
}

std::vector<std::string> added_tokens(const json& file) {
  std::vector<std::string> added;
  for (const json& token : file.at("added_tokens")) added.push_back(token.at("content"));
  return added;
}

json file_of(const std::string& model) {
  return json::parse(hugging_face_tokenizer(SentencePieceTokenizer(model, "changed")).at("tokenizer.json"));
}

bool is_cut_at(const json& file, const std::string& character) {
  bool cut = false;
  for (const json& one : file.at("pre_tokenizer").at("pretokenizers"))
    cut |= one.at("pattern").at("String") == character;
  return cut;
}

// A user-defined piece is found before the model is asked: that it has a "<" does not make one out of "<s>".
// Also without the model that they were made from, in which the token that ends documents is a control token.
TEST(HuggingFaceTokenizer, TheFilesAreReadAgain) {
  const Scratch scratch;
  for (const std::string& model : {example_model(), unigram_model()}) {
    const SentencePieceTokenizer tokenizer(model, "model");
    for (const auto& [name, bytes] : hugging_face_tokenizer(tokenizer)) scratch.write(name, bytes);
    const std::unique_ptr<const Tokenizer> again = load_tokenizer(scratch.path());
    EXPECT_EQ(again->file().name, "tokenizer.json");
    EXPECT_EQ(again->piece(again->end_of_document()), "</s>");
    EXPECT_TRUE(again->is_special(again->end_of_document()));
    for (const std::string text : {"the token</s> learns\n", " <unk>", "caf\xC3\xA9"}) {
      EXPECT_EQ(again->encode(text), tokenizer.encode(text)) << text;
    }
    const auto stored = make_tokenizer(again->file(), again->settings(), "stored");
    EXPECT_EQ(stored->encode("a</s>"), tokenizer.encode("a</s>"));
  }
}

TEST(HuggingFaceTokenizer, NamesAreCutAtCharactersOfUserDefinedPieces) {
  const json file = file_of(unigram_model() + piece_field("<|im_start|>", kUserDefined));
  EXPECT_EQ(added_tokens(file), (std::vector<std::string>{"\n", "<|im_start|>"}));
  for (const char* character : {"<", ">", "/"}) EXPECT_TRUE(is_cut_at(file, character)) << character;
  for (const char* character : {"|", "_", "s"}) EXPECT_FALSE(is_cut_at(file, character)) << character;
}

// Lines are encoded one by one, and with marks for spaces: such pieces are never given here, nor may they be there.
TEST(HuggingFaceTokenizer, PiecesThatNoTextBecomesAreNotFoundInTexts) {
  for (const std::string& model : {example_model(), unigram_model()}) {
    const auto first = static_cast<size_t>(SentencePieceTokenizer(model, "example").vocab_size());
    const std::string changed = model + piece_field("\r\n", kUserDefined) + piece_field("the token", kUserDefined) +
                                piece_field("\t\xE2\x96\x81", kUserDefined) + piece_field("\n\n", kNormal, -1) +
                                piece_field("the", kUserDefined);
    const SentencePieceTokenizer tokenizer(changed, "changed");
    const std::vector<int32_t> text = tokenizer.encode("\r\nthe token\t the\n\n");
    for (const size_t id : {first, first + 1, first + 3}) EXPECT_EQ(std::ranges::count(text, id), 0);
    EXPECT_EQ(std::ranges::count(text, first + 2), 1);
    const json file = file_of(changed);
    std::vector<std::string> added = added_tokens(file);
    ASSERT_FALSE(added.empty());
    EXPECT_EQ(added.back(), "the");
    added.pop_back();
    EXPECT_EQ(added, (std::vector<std::string>{"\n", "\t "}));
    const json& vocab = file.at("model").at("vocab");
    ASSERT_EQ(vocab.size(), first + 5);
    if (file.at("model").at("type") == "BPE") {
      EXPECT_EQ(vocab.at("\r\n"), first);  // keeps its number
      for (const json& merge : file.at("model").at("merges")) {
        EXPECT_EQ((merge.at(0).get<std::string>() + merge.at(1).get<std::string>()).find('\n'), std::string::npos);
      }
    } else {
      for (const size_t id : {first, first + 1, first + 3}) EXPECT_LT(vocab.at(id).at(1).get<double>(), -500);
      EXPECT_EQ(vocab.at(first).at(0), "\r\n");
    }
  }
}

TEST(HuggingFaceTokenizer, RefusesWhatTheFileCannotSay) {
  const auto with = [](const std::string& fields) {
    return SentencePieceTokenizer(example_model() + fields, "changed");
  };
  // trainer_spec (field 2) once more, with model_type (field 3) = 3, word; what comes last counts.
  EXPECT_ERROR(hugging_face_tokenizer(with("\x12\x02\x18\x03")), ExitCode::bad_input,
               "changed is a SentencePiece model of type word");
  EXPECT_ERROR(hugging_face_tokenizer(with("\x12\x02\x18\x04")), ExitCode::bad_input, "of type char");
  ASSERT_FALSE(SentencePieceTokenizer(example_model(), "example").encode(" t").empty());
  EXPECT_ERROR(hugging_face_tokenizer(with(piece_field(" t", kControl))), ExitCode::bad_input,
               "changed: piece 330 \" t\" appears twice");
  EXPECT_ERROR(hugging_face_tokenizer(with(piece_field("Q", kControl))), ExitCode::bad_input,
               "changed: piece 330 \"Q\" is a single character");
  // Pieces join to it, and SentencePiece takes it apart again.
  EXPECT_ERROR(hugging_face_tokenizer(with(piece_field("dt", kUnused))), ExitCode::bad_input,
               "changed: piece 330 \"dt\" is marked as unused but takes part");
  const SentencePieceTokenizer unigram(unigram_model() + piece_field("a<", kNormal), "changed");
  EXPECT_ERROR(hugging_face_tokenizer(unigram), ExitCode::bad_input, "appears only in longer pieces");
}

TEST(HuggingFaceTokenizer, UnusedPiecesKeepTheirNumbers) {
  for (const std::string& model : {example_model(), unigram_model()}) {
    const std::string changed = model + piece_field("Q~Q", kUnused) + piece_field("Q", kUnused, -1);
    const SentencePieceTokenizer tokenizer(changed, "changed");
    const auto first = static_cast<size_t>(tokenizer.vocab_size()) - 2;
    const json file = file_of(changed);
    EXPECT_EQ(added_tokens(file), std::vector<std::string>{"\n"});
    const json& vocab = file.at("model").at("vocab");
    const bool is_bpe = file.at("model").at("type") == "BPE";
    // Of one character it is looked up wherever a text has that; of a bpe model SentencePiece may give it all the same.
    const bool is_given = tokenizer.encode("Q") == std::vector{static_cast<int32_t>(first + 1)};
    const std::string name = is_given ? "Q" : "[unused " + std::to_string(first + 1) + "]";
    const auto number = [&](const std::string& text) { return is_bpe ? vocab.at(text).get<size_t>() : 0; };
    if (is_bpe) {
      EXPECT_EQ(number("Q~Q"), first);
      EXPECT_EQ(number(name), first + 1);
    } else {
      EXPECT_EQ(vocab.at(first).at(0), "Q~Q");
      EXPECT_FALSE(is_given);
      EXPECT_EQ(vocab.at(first + 1).at(0), name);
      EXPECT_LT(vocab.at(first + 1).at(1).get<double>(), -500);
    }
  }
}

// transformers takes tokenizer.model for a bpe model where nothing else says what it is.
TEST(HuggingFaceTokenizer, OthersAreToBeRefusedThere) {
  const json config = json::parse(refusing_tokenizer_config());
  EXPECT_EQ(config.at("auto_map").at("AutoTokenizer").size(), 2u);
}

}  // namespace
}  // namespace shiftron

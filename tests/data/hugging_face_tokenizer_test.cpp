// The shape of the files; that they give the same numbers is shown by tests/interchange/check_tokenizer.py.
#include "data/hugging_face_tokenizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "expect_error.h"
#include "fixture.h"

namespace shiftron {
namespace {

using nlohmann::json;

const std::string& unigram_model() {
  static const std::string model = [] {
    const Scratch scratch;
    TokenizerTraining training;
    training.files = {scratch.write("text.txt", example_text(400))};
    training.vocab = 300;
    training.kind = "unigram";
    return Tokenizer::train(training);
  }();
  return model;
}

// What tokenizer.json and tokenizer_config.json say alike for both kinds.
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
  const Tokenizer tokenizer(example_model(), "example");
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
  const Tokenizer tokenizer(unigram_model(), "example");
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

TEST(HuggingFaceTokenizer, RefusesWhatTheFileCannotSay) {
  const auto with = [](const std::string& fields) { return Tokenizer(example_model() + fields, "changed"); };
  // trainer_spec (field 2) once more, with model_type (field 3) = 3, word; what comes last counts.
  EXPECT_ERROR(hugging_face_tokenizer(with("\x12\x02\x18\x03")), ExitCode::bad_input, "neither bpe nor unigram");
  // Another piece (field 1): its text (1) and its type (3), 5 = unused.
  EXPECT_ERROR(hugging_face_tokenizer(with("\x0A\x05\x0A\x01q\x18\x05")), ExitCode::bad_input,
               "piece 330 \"q\" is marked as unused");
  ASSERT_FALSE(Tokenizer(example_model(), "example").encode(" t").empty());
  EXPECT_ERROR(hugging_face_tokenizer(with("\x0A\x04\x0A\x02 t")), ExitCode::bad_input, "\" t\" is there twice");
}

}  // namespace
}  // namespace shiftron

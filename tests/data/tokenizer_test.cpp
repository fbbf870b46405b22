// The tokenizer keeps every byte; training is repeatable and says what is wrong.
#include "data/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sentencepiece_trainer.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <new>
#include <numeric>
#include <random>

#include "data/utf8.h"
#include "expect_error.h"
#include "fixture.h"
#include "scratch.h"

namespace shiftron {
namespace {

const Tokenizer& tokenizer() {
  static const Tokenizer instance(example_model(), "example");
  return instance;
}

// Decoding gives the text back, the tokens stand for exactly its bytes, none is a control token.
void expect_kept(const Tokenizer& any, const std::string& text) {
  const std::vector<int32_t> tokens = any.encode(text);
  EXPECT_EQ(any.decode(tokens), text);
  int64_t bytes = 0;
  for (const int32_t token : tokens) {
    bytes += any.bytes_of(token);
    EXPECT_GT(any.bytes_of(token), 0) << any.piece(token);
  }
  EXPECT_EQ(bytes, static_cast<int64_t>(text.size()));
}

TEST(Tokenizer, CommonTextIsCompressed) {
  const std::string text = "the tensor learns slowly and then stops.\n";
  expect_kept(tokenizer(), text);
  EXPECT_LE(tokenizer().encode(text).size(), text.size() / 2);
}

TEST(Tokenizer, KeepsWhatModelsUsuallyLose) {
  const std::string nul("a\0b", 3);
  for (const std::string& text : std::vector<std::string>{"",
                                                          " ",
                                                          "  ",
                                                          "\n",
                                                          "\n\n",
                                                          " a",
                                                          "a ",
                                                          "  a  b  ",
                                                          "\t\ta\r\n",
                                                          nul,
                                                          "\xE2\x96\x81",
                                                          "a\xE2\x96\x81 b",
                                                          "</s>",
                                                          "<s>",
                                                          "<unk>",
                                                          "<pad>",
                                                          "<0x41>",
                                                          "a</s>b",
                                                          "</s></s>",
                                                          "\xFF\xFE",
                                                          "\xC3",
                                                          "\xE2\x96",
                                                          "é",
                                                          "e\xCC\x81",
                                                          "ﬁ",
                                                          "Ａ",
                                                          "日本語",
                                                          "\xF0\x9F\x98\x80",
                                                          "\xE2\x96\x85",
                                                          "\xEF\xBB\xBFtext",
                                                          "\xED\xA0\x80",
                                                          "\xF4\x90\x80\x80"}) {
    expect_kept(tokenizer(), text);
  }
}

TEST(Tokenizer, KeepsRandomBytes) {
  std::mt19937 random(1);
  const std::string alphabet = " \n<s>/unkx0a\t\xE2\x96\x81\xC3\xA9the";
  for (int i = 0; i < 20000; ++i) {
    std::string text(random() % 40, '\0');
    for (char& byte : text) byte = i % 2 == 0 ? static_cast<char>(random()) : alphabet[random() % alphabet.size()];
    expect_kept(tokenizer(), text);
    if (HasFailure()) FAIL() << i;
  }
}

TEST(Tokenizer, KeepsLongLines) {
  std::string text;
  while (text.size() < 300000) text += "shift é ";
  expect_kept(tokenizer(), text);
  expect_kept(tokenizer(), std::string(200000, 'x'));
  expect_kept(tokenizer(), std::string(200000, ' '));
}

TEST(Tokenizer, EncodingTellsHowFarItIs) {
  const std::string text = "the key\n\nthe value\n" + std::string(200000, 'x') + "\xFF";
  std::vector<size_t> told;
  tokenizer().encode(text, [&](size_t done) { told.push_back(done); });
  EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
  ASSERT_GE(told.size(), 6u);  // three lines, and pieces of the long one
  EXPECT_EQ(told.front(), 7u);
  EXPECT_GE(told.back(), text.size() - 1);
}

// What surrounds a piece that only bytes can carry is still cut as usual.
TEST(Tokenizer, BytesDoNotSpoilTheirSurroundings) {
  const std::vector<int32_t> word = tokenizer().encode("the tensor");
  for (const std::string strange : {"\xE2\x96\x81", "\xFF"}) {
    const std::vector<int32_t> tokens = tokenizer().encode("the tensor" + strange + "the tensor");
    EXPECT_EQ(tokens.size(), 2 * word.size() + strange.size());
    EXPECT_TRUE(std::equal(word.begin(), word.end(), tokens.begin()));
  }
}

// A model without a piece for the space, which writes its mark as three bytes: of " " alone, not of the line around it.
TEST(Tokenizer, ModelsWithoutASpaceWriteItAsAByte) {
  const Scratch scratch;
  for (const std::string kind : {"bpe", "unigram"}) {
    scratch.write("text.txt", "hello\nworld\nthere\nhello\nworld\n");
    const std::string prefix = scratch / "foreign";
    const auto status = sentencepiece::SentencePieceTrainer::Train(
        "--minloglevel=2 --byte_fallback=true --add_dummy_prefix=false --remove_extra_whitespaces=false "
        "--normalization_rule_name=identity --hard_vocab_limit=false --vocab_size=280 --model_type=" +
        kind + " --input=" + (scratch / "text.txt") + " --model_prefix=" + prefix);
    ASSERT_TRUE(status.ok()) << status.ToString();
    const Tokenizer spaceless = Tokenizer::load(prefix + ".model");
    std::vector<int32_t> expected = spaceless.encode("hello");
    const std::vector<int32_t> world = spaceless.encode("world");
    ASSERT_LT(expected.size() + world.size(), 10u) << kind;
    const std::vector<int32_t> space = spaceless.encode(" ");
    ASSERT_EQ(space.size(), 1u) << kind;
    EXPECT_EQ(spaceless.piece(space[0]), "<0x20>");
    expected.push_back(space[0]);
    expected.insert(expected.end(), world.begin(), world.end());
    EXPECT_EQ(spaceless.encode("hello world"), expected) << kind;
    for (const std::string text : {" a b  ", "hello \xE2\x96\x81 world", "  "}) expect_kept(spaceless, text);
  }
}

TEST(TokenizerTraining, TheSpaceHasAToken) {
  const Scratch scratch;
  TokenizerTraining training;
  training.files = {scratch.write("text.txt", "hello\nworld\nthere\nhello\nworld\n")};
  training.vocab = 268;
  for (const std::string kind : {"bpe", "unigram"}) {
    training.kind = kind;
    const Tokenizer trained(Tokenizer::train(training), "small");
    EXPECT_EQ(trained.piece(trained.encode(" ").at(0)), "\xE2\x96\x81") << kind;
    expect_kept(trained, " a b  ");
  }
}

TEST(Tokenizer, NewlineIsOneToken) {
  EXPECT_EQ(tokenizer().encode("\n").size(), 1u);
  EXPECT_EQ(tokenizer().piece(tokenizer().encode("\n")[0]), "\n");
}

TEST(Tokenizer, ControlTokensStandForNothing) {
  EXPECT_EQ(tokenizer().bytes_of(tokenizer().end_of_document()), 0);
  EXPECT_EQ(tokenizer().piece(tokenizer().end_of_document()), "</s>");
  EXPECT_ERROR(tokenizer().bytes_of(330), ExitCode::bad_input, "token 330 is not within the vocabulary of 330");
  EXPECT_ERROR(tokenizer().decode({-1}), ExitCode::bad_input, "token -1");
}

TEST(Tokenizer, UnigramKeepsTextToo) {
  const std::string model = trained_model(200, 310, "unigram");
  EXPECT_EQ(model, trained_model(200, 310, "unigram"));
  const Tokenizer unigram(model, "unigram");
  EXPECT_EQ(unigram.vocab_size(), 310);
  for (const std::string text : {"the token</s> é\n \xFF", "  a  ", "\xE2\x96\x81"}) expect_kept(unigram, text);
}

TEST(TokenizerTraining, IsRepeatable) {
  const Scratch scratch;
  TokenizerTraining training;
  training.files = {scratch.write("text.txt", example_text(400))};
  training.vocab = 330;
  EXPECT_EQ(Tokenizer::train(training), example_model());
}

// A text full of control tokens' names must not give pieces of those names.
TEST(TokenizerTraining, TextWithControlNames) {
  const Scratch scratch;
  std::string text = example_text(50);
  for (int i = 0; i < 500; ++i) text += "</s>\n<unk>\n<0x41>\n<s> </s> <unk> <0x41> \xE2\x96\x81 \xFF bad\n";
  TokenizerTraining training;
  training.files = {scratch.write("text.txt", text)};
  for (const std::string kind : {"bpe", "unigram"}) {
    training.kind = kind;
    training.vocab = kind == "bpe" ? 380 : 330;
    const Tokenizer trained(Tokenizer::train(training), kind);
    expect_kept(trained, text);
    expect_kept(trained, "</s>");
  }
}

TEST(TokenizerTraining, ReadsJsonLines) {
  const Scratch scratch;
  std::string lines;
  for (int i = 0; i < 300; ++i) lines += "{\"body\": \"token window number " + std::to_string(i) + "\"}\n";
  TokenizerTraining training;
  training.files = {scratch.write("text.jsonl", lines)};
  training.vocab = 300;
  training.text_key = "body";
  const Tokenizer trained(Tokenizer::train(training), "trained");
  EXPECT_LT(trained.encode("token window").size(), 5u);
}

// Of two halves with words of their own, whatever lines, documents and other keys they lie in.
TEST(TokenizerTraining, SamplesAreOfTheText) {
  const Scratch scratch;
  const auto repeated = [](const std::string& word, size_t bytes) {
    std::string text;
    while (text.size() < bytes) text += word + " ";
    return text;
  };
  const std::string first = repeated("gradient", 200000), second = repeated("document", 200000);
  TokenizerTraining training;
  training.vocab = 288;
  training.sample_bytes = 50000;
  const auto expect_both = [&](const std::string& what) {
    const Tokenizer trained(Tokenizer::train(training), "sampled");
    EXPECT_EQ(trained.encode(" gradient").size(), 1u) << what;
    EXPECT_EQ(trained.encode(" document").size(), 1u) << what;
  };
  training.files = {scratch.write("line.txt", first + second)};
  expect_both("one line");
  training.files = {scratch.write("two.jsonl", "{\"text\": \"" + first + "\"}\n{\"text\": \"" + second + "\"}\n")};
  expect_both("two documents");

  // What would fit is taken as a whole, whatever else the lines hold.
  std::string lines, texts;
  for (int i = 0; i < 400; ++i) {
    const std::string text = "token number " + std::to_string(i * 7919);
    lines += "{\"text\": \"" + text + "\", \"more\": \"" + std::string(1000, 'x') + "\"}\n";
    texts += text + "\n";
  }
  training.files = {scratch.write("texts.txt", texts)};
  const std::string all = Tokenizer::train(training);
  training.files = {scratch.write("lines.jsonl", lines)};
  EXPECT_EQ(Tokenizer::train(training), all);
  training.sample_bytes = 1000;
  EXPECT_NE(Tokenizer::train(training), all);
  training.sample_bytes = 5;
  EXPECT_ERROR(Tokenizer::train(training), ExitCode::bad_input, "raise --sample-bytes");
}

TEST(TokenizerTraining, FaultsSayWhatToDo) {
  const Scratch scratch;
  TokenizerTraining training;
  training.vocab = 4096;
  EXPECT_ERROR(Tokenizer::train(training), ExitCode::bad_input, "--input");
  training.files = {scratch / "missing.txt"};
  EXPECT_ERROR(Tokenizer::train(training), ExitCode::bad_input, "missing.txt: No such file");
  training.files = {scratch.write("empty.txt", "")};
  EXPECT_ERROR(Tokenizer::train(training), ExitCode::bad_input, "no text to train the tokenizer on");
  training.files = {scratch.write("text.txt", "the tensor learns slowly\n")};
  EXPECT_ERROR(Tokenizer::train(training), ExitCode::bad_input,
               "vocab 4096 is larger than this text supports: at most");
  training.vocab = 262;
  EXPECT_ERROR(Tokenizer::train(training), ExitCode::bad_input,
               "vocab 262 is too small for the characters of this text");
  training.vocab = 100;
  EXPECT_ERROR(Tokenizer::train(training), ExitCode::bad_input, "vocab 100: must be between 260");
  training.vocab = 300;
  training.kind = "words";
  EXPECT_ERROR(Tokenizer::train(training), ExitCode::bad_input, "use bpe or unigram");
}

TEST(Tokenizer, ForeignModelsThatChangeTextAreRefused) {
  const Scratch scratch;
  scratch.write("text.txt", example_text(400));
  const auto train = [&](const std::string& more) {
    const std::string prefix = scratch / "foreign";
    const auto status = sentencepiece::SentencePieceTrainer::Train(
        "--minloglevel=2 --model_type=bpe --input=" + (scratch / "text.txt") + " --model_prefix=" + prefix + more);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return prefix + ".model";
  };
  EXPECT_ERROR(Tokenizer::load(train(" --vocab_size=330 --byte_fallback=true")), ExitCode::bad_input, "changes text");
  EXPECT_ERROR(Tokenizer::load(train(" --vocab_size=330 --byte_fallback=true --add_dummy_prefix=false")),
               ExitCode::bad_input, "changes text");
  EXPECT_ERROR(Tokenizer::load(train(" --vocab_size=330 --byte_fallback=true --add_dummy_prefix=false --eos_id=-1")),
               ExitCode::bad_input, "no </s> token");
  EXPECT_ERROR(Tokenizer::load(train(" --vocab_size=200")), ExitCode::bad_input, "no token for byte 0");
  const Tokenizer good = Tokenizer::load(
      train(" --vocab_size=330 --byte_fallback=true --add_dummy_prefix=false --remove_extra_whitespaces=false "
            "--normalization_rule_name=identity"));
  expect_kept(good, "  the  token\n\n\xFF");  // newline by its byte token
}

// A model that SentencePiece would follow out of its memory, and one for which it throws an exception of its own; both
// were found by tests/fuzz/run.
TEST(Tokenizer, HostileModelsAreRefused) {
  const Scratch scratch;
  const auto field = [](int number, const std::string& bytes) {  // of a message
    return std::string({static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())}) + bytes;
  };
  const std::string table(
      "\4\0\0\0\xFF\xFF\xFF\x7F"
      "abc",
      12);  // with its end
  EXPECT_ERROR(Tokenizer::load(scratch.write("table.model", example_model() + field(3, field(2, table)))),
               ExitCode::bad_input, "changes text: it normalises characters");
  const std::string user_defined("\x18\x04", 2);  // without a text
  EXPECT_ERROR(Tokenizer::load(scratch.write("empty_piece.model", example_model() + field(1, user_defined))),
               ExitCode::bad_input, "is not a SentencePiece model");
}

// A model that does not fit into memory is a model all the same.
TEST(Tokenizer, LittleMemoryIsNoFaultOfTheModel) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer takes terabytes of addresses";
#endif
  std::string model = example_model();
  for (int i = 0; i < 20000; ++i) {
    const std::string text = "piece" + std::to_string(i);
    const std::string piece = std::string("\x0A", 1) + static_cast<char>(text.size()) + text;
    model += std::string("\x0A", 1) + static_cast<char>(piece.size()) + piece;
  }
  constexpr int kLoaded = 3, kLacked = 4, kRefused = 5;
  const auto load_within = [&](size_t bytes) {
    const pid_t child = ::fork();
    if (child == 0) {
      size_t pages = 0;
      std::ifstream("/proc/self/statm") >> pages;
      const rlim_t now = pages * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
      const rlimit limit{now, now};
      ::setrlimit(RLIMIT_AS, &limit);
      constexpr size_t kChunk = size_t{64} << 10;
      std::vector<void*> taken;  // all that earlier tests gave back
      taken.reserve(1 << 16);
      while (void* const chunk = std::malloc(kChunk)) taken.push_back(chunk);
      for (size_t free = 0; free < bytes && !taken.empty(); free += kChunk) {
        std::free(taken.back());
        taken.pop_back();
      }
      try {
        const Tokenizer loaded(model, "large.model");
        ::_exit(kLoaded);
      } catch (const std::bad_alloc&) {
        ::_exit(kLacked);
      } catch (const std::exception&) {
        ::_exit(kRefused);
      }
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  int lacked = 0;
  for (size_t kibibytes = 2048; kibibytes <= 6144; kibibytes += 256) {  // with less, its end cannot be reported
    const int result = load_within(kibibytes << 10);
    EXPECT_THAT(result, ::testing::AnyOf(kLoaded, kLacked)) << kibibytes;
    lacked += result == kLacked ? 1 : 0;
  }
  EXPECT_GT(lacked, 0);
  EXPECT_NO_THROW(Tokenizer(model, "large.model"));
}

TEST(Tokenizer, WhatIsNoModelIsRefused) {
  const Scratch scratch;
  EXPECT_ERROR(Tokenizer::load(scratch / "none.model"), ExitCode::bad_input, "none.model");
  EXPECT_ERROR(Tokenizer::load(scratch.write("empty.model", "")), ExitCode::bad_input, "is not a SentencePiece model");
  EXPECT_ERROR(Tokenizer::load(scratch.write("text.model", "some text")), ExitCode::bad_input,
               "is not a SentencePiece model");
  EXPECT_ERROR(Tokenizer::load(scratch.write("cut.model", example_model().substr(0, 2000))), ExitCode::bad_input,
               "cut.model");
}

TEST(Utf8, OnlyWellFormedSequencesCount) {
  EXPECT_EQ(utf8_length("a"), 1u);
  EXPECT_EQ(utf8_length("é"), 2u);
  EXPECT_EQ(utf8_length("日"), 3u);
  EXPECT_EQ(utf8_length("\xF0\x9F\x98\x80"), 4u);
  for (const char* text : {"", "\x80", "\xC0\x80", "\xC1\xBF", "\xC3", "\xE0\x80\x80", "\xED\xA0\x80",
                           "\xF0\x80\x80\x80", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xE2\x96", "\xF0\x9F\x98"}) {
    EXPECT_EQ(utf8_length(text), 0u) << text;
  }
}

TEST(Utf8, ForeignBytesAreCountedAndShown) {
  EXPECT_TRUE(is_utf8("aé日"));
  EXPECT_TRUE(is_utf8(""));
  EXPECT_FALSE(is_utf8("caf\xE9"));
  EXPECT_EQ(count_foreign_bytes(std::string_view("\xE9\xE9 é \0\xFF", 8)), 4u);
  EXPECT_TRUE(is_utf8(std::string_view("\0", 1)));
  EXPECT_EQ(printable("café \xE9\n\x7F"), "café \\xE9\\x0A\\x7F");
}

}  // namespace
}  // namespace shiftron

// SentencePiece models keep every byte; files that are none, or that change text, are refused.
#include "tokenizer/sentencepiece_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <new>
#include <numeric>
#include <random>

#include "data/fixture.h"
#include "expect_error.h"
#include "scratch.h"
#include "tokenizer/keeps_text.h"
#include "tokenizer/load_tokenizer.h"
#include "tokenizer/utf8.h"

namespace shiftron {
namespace {

const Tokenizer& tokenizer() {
  static const SentencePieceTokenizer instance(example_model(), "example");
  return instance;
}

TEST(SentencePiece, CommonTextIsCompressed) {
  const std::string text = "the tensor learns slowly and then stops.\n";
  expect_kept(tokenizer(), text);
  EXPECT_LE(tokenizer().encode(text).size(), text.size() / 2);
}

TEST(SentencePiece, KeepsWhatModelsUsuallyLose) {
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

TEST(SentencePiece, KeepsRandomBytes) {
  std::mt19937 random(1);
  const std::string alphabet = " \n<s>/unkx0a\t\xE2\x96\x81\xC3\xA9the";
  for (int i = 0; i < 20000; ++i) {
    std::string text(random() % 40, '\0');
    for (char& byte : text) byte = i % 2 == 0 ? static_cast<char>(random()) : alphabet[random() % alphabet.size()];
    expect_kept(tokenizer(), text);
    if (HasFailure()) FAIL() << i;
  }
}

TEST(SentencePiece, KeepsLongLines) {
  std::string text;
  while (text.size() < 300000) text += "shift é ";
  expect_kept(tokenizer(), text);
  expect_kept(tokenizer(), std::string(200000, 'x'));
  expect_kept(tokenizer(), std::string(200000, ' '));
}

TEST(SentencePiece, EncodingTellsHowFarItIs) {
  const std::string text = "the key\n\nthe value\n" + std::string(200000, 'x') + "\xFF";
  std::vector<size_t> told;
  tokenizer().encode(text, [&](size_t done) { told.push_back(done); });
  EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
  ASSERT_GE(told.size(), 6u);  // three lines, and pieces of the long one
  EXPECT_EQ(told.front(), 7u);
  EXPECT_GE(told.back(), text.size() - 1);
}

// What surrounds a piece that only bytes can carry is still cut as usual.
TEST(SentencePiece, BytesDoNotSpoilTheirSurroundings) {
  const std::vector<int32_t> word = tokenizer().encode("the tensor");
  for (const std::string strange : {"\xE2\x96\x81", "\xFF"}) {
    const std::vector<int32_t> tokens = tokenizer().encode("the tensor" + strange + "the tensor");
    EXPECT_EQ(tokens.size(), 2 * word.size() + strange.size());
    EXPECT_TRUE(std::equal(word.begin(), word.end(), tokens.begin()));
  }
}

// A model without a piece for the space, which writes its mark as three bytes: of " " alone, not of the line around it.
TEST(SentencePiece, ModelsWithoutASpaceWriteItAsAByte) {
  const Scratch scratch;
  for (const std::string kind : {"bpe", "unigram"}) {
    scratch.write("text.txt", "hello\nworld\nthere\nhello\nworld\n");
    const std::string prefix = scratch / "foreign";
    const auto status = sentencepiece::SentencePieceTrainer::Train(
        "--minloglevel=2 --byte_fallback=true --add_dummy_prefix=false --remove_extra_whitespaces=false "
        "--normalization_rule_name=identity --hard_vocab_limit=false --vocab_size=280 --model_type=" +
        kind + " --input=" + (scratch / "text.txt") + " --model_prefix=" + prefix);
    ASSERT_TRUE(status.ok()) << status.ToString();
    const std::unique_ptr<const Tokenizer> spaceless = load_tokenizer(prefix + ".model");
    std::vector<int32_t> expected = spaceless->encode("hello");
    const std::vector<int32_t> world = spaceless->encode("world");
    ASSERT_LT(expected.size() + world.size(), 10u) << kind;
    const std::vector<int32_t> space = spaceless->encode(" ");
    ASSERT_EQ(space.size(), 1u) << kind;
    EXPECT_EQ(spaceless->piece(space[0]), "<0x20>");
    expected.push_back(space[0]);
    expected.insert(expected.end(), world.begin(), world.end());
    EXPECT_EQ(spaceless->encode("hello world"), expected) << kind;
    for (const std::string text : {" a b  ", "hello \xE2\x96\x81 world", "  "}) expect_kept(*spaceless, text);
  }
}

TEST(SentencePiece, NewlineIsOneToken) {
  EXPECT_EQ(tokenizer().encode("\n").size(), 1u);
  EXPECT_EQ(tokenizer().piece(tokenizer().encode("\n")[0]), "\n");
}

TEST(SentencePiece, ControlTokensStandForNothing) {
  EXPECT_EQ(tokenizer().bytes_of(tokenizer().end_of_document()), 0);
  EXPECT_EQ(tokenizer().piece(tokenizer().end_of_document()), "</s>");
  EXPECT_ERROR(tokenizer().bytes_of(330), ExitCode::bad_input, "token 330 is not within the vocabulary of 330");
  EXPECT_ERROR(tokenizer().decode(std::vector{-1}), ExitCode::bad_input, "token -1");
}

TEST(SentencePiece, UnigramKeepsTextToo) {
  const std::string model = trained_model(200, 310, "unigram");
  EXPECT_EQ(model, trained_model(200, 310, "unigram"));
  const SentencePieceTokenizer unigram(model, "unigram");
  EXPECT_EQ(unigram.vocab_size(), 310);
  for (const std::string text : {"the token</s> é\n \xFF", "  a  ", "\xE2\x96\x81"}) expect_kept(unigram, text);
}

// Trains a model with the library's defaults, other than `more`.
std::string foreign_model(const Scratch& scratch, const std::string& more) {
  scratch.write("text.txt", example_text(400));
  const std::string prefix = scratch / "foreign";
  const auto status = sentencepiece::SentencePieceTrainer::Train("--minloglevel=2 --input=" + (scratch / "text.txt") +
                                                                 " --model_prefix=" + prefix + " " + more);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return prefix + ".model";
}

constexpr char kIdentity[] = " --normalization_rule_name=identity";

TEST(SentencePiece, ForeignModelsThatNormaliseOrHaveNoEndAreRefused) {
  const Scratch scratch;
  const std::string bpe = "--model_type=bpe --vocab_size=330 --byte_fallback=true";
  EXPECT_ERROR(load_tokenizer(foreign_model(scratch, bpe)), ExitCode::bad_input,
               "changes text: it normalises characters");
  EXPECT_ERROR(
      load_tokenizer(foreign_model(
          scratch, bpe + kIdentity + " --add_dummy_prefix=false --remove_extra_whitespaces=false --eos_id=-1")),
      ExitCode::bad_input, "no </s> token");
  EXPECT_ERROR(load_tokenizer(foreign_model(scratch, bpe + kIdentity + " --treat_whitespace_as_suffix=true")),
               ExitCode::bad_input, "puts spaces at the end of words");
  EXPECT_ERROR(load_tokenizer(foreign_model(scratch, bpe + kIdentity + " --user_defined_symbols=<sep>")),
               ExitCode::bad_input, "\"<sep>\" is user-defined, and the model puts a space in front of texts");
  const std::unique_ptr<const Tokenizer> good = load_tokenizer(
      foreign_model(scratch, bpe + kIdentity + " --add_dummy_prefix=false --remove_extra_whitespaces=false"));
  EXPECT_EQ(good->file().name, "tokenizer.model");
  expect_kept(*good, "  the  token\n\n\xFF");  // newline by its byte token
  scratch.write("tokenizer.json", "{}");
  EXPECT_ERROR(load_tokenizer(foreign_model(scratch, bpe + kIdentity)), ExitCode::bad_input,
               "changes text: it adds or folds spaces; use " + (scratch / "tokenizer.json"));
}

// Against the library, for everything that such models do to a text.
TEST(SentencePiece, ForeignModelsThatAddOrFoldSpacesGiveTheLibrarysIds) {
  std::mt19937 random(5);
  for (const std::string type : {"--model_type=bpe", "--model_type=unigram --hard_vocab_limit=false"}) {
    for (std::string more : {" --byte_fallback=true --vocab_size=300", " --vocab_size=120",
                             " --vocab_size=300 --byte_fallback=true --remove_extra_whitespaces=false",
                             " --vocab_size=120 --add_dummy_prefix=false",
                             " --vocab_size=120 --add_dummy_prefix=false --remove_extra_whitespaces=false "
                             "--user_defined_symbols=<sep>,\xE2\x96\x81\xE2\x96\x81"}) {
      const Scratch scratch;
      // In a unigram model, user-defined pieces that overlap give equally good cuts.
      if (type.find("unigram") != std::string::npos) more = more.substr(0, more.find(",\xE2"));
      const std::string path = foreign_model(scratch, type + more + kIdentity);
      const std::unique_ptr<const Tokenizer> ours = load_tokenizer(path);
      EXPECT_EQ(ours->file().name, "tokenizer.json");
      EXPECT_EQ(ours->piece(ours->end_of_document()), "</s>");
      sentencepiece::SentencePieceProcessor theirs;
      ASSERT_TRUE(theirs.Load(path).ok());
      const std::vector<std::string> parts = {" ",        "  ",           "   ",  "the",   "token",        "s",
                                              "\n",       "\t",           "</s>", "<sep>", "<0x41>",       "Zebra",
                                              "\xC3\xA9", "\xE6\x97\xA5", "1234", ".",     "\xE2\x96\x81", "and"};
      for (int i = 0; i < 1500; ++i) {
        std::string text;
        for (size_t count = random() % 12; count > 0; --count) text += parts[random() % parts.size()];
        std::vector<int> expected;
        ASSERT_TRUE(theirs.Encode(text, &expected).ok());
        const std::vector<int32_t> ids = ours->encode(text);
        ASSERT_EQ(ids, expected) << type << more << ": \"" << text << "\"";
        std::string decoded;
        ASSERT_TRUE(theirs.Decode(expected, &decoded).ok());
        // The library writes U+2047 for an unknown character, and removes all marks at the beginning.
        if (decoded.find("\xE2\x81\x87") == std::string::npos && text.find("\xE2\x96\x81") == std::string::npos) {
          ASSERT_EQ(ours->decode(ids), decoded) << type << more << ": \"" << text << "\"";
        }
      }
    }
  }
}

// A model that SentencePiece would follow out of its memory, and one for which it throws an exception of its own; both
// were found by tests/fuzz/run.
TEST(SentencePiece, HostileModelsAreRefused) {
  const Scratch scratch;
  const auto field = [](int number, const std::string& bytes) {  // of a message
    return std::string({static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())}) + bytes;
  };
  const std::string table(
      "\4\0\0\0\xFF\xFF\xFF\x7F"
      "abc",
      12);  // with its end
  EXPECT_ERROR(load_tokenizer(scratch.write("table.model", example_model() + field(3, field(2, table)))),
               ExitCode::bad_input, "changes text: it normalises characters");
  const std::string user_defined("\x18\x04", 2);  // without a text
  EXPECT_ERROR(load_tokenizer(scratch.write("empty_piece.model", example_model() + field(1, user_defined))),
               ExitCode::bad_input, "is not a SentencePiece model");
}

// A model that does not fit into memory is a model all the same.
TEST(SentencePiece, LittleMemoryIsNoFaultOfTheModel) {
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
        const SentencePieceTokenizer loaded(model, "large.model");
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
  EXPECT_NO_THROW(SentencePieceTokenizer(model, "large.model"));
}

TEST(SentencePiece, WhatIsNoModelIsRefused) {
  const Scratch scratch;
  EXPECT_ERROR(load_tokenizer(scratch / "none.model"), ExitCode::bad_input, "none.model");
  EXPECT_ERROR(load_tokenizer(scratch.write("empty.model", "")), ExitCode::bad_input, "is not a SentencePiece model");
  EXPECT_ERROR(load_tokenizer(scratch.write("text.model", "some text")), ExitCode::bad_input,
               "is not a SentencePiece model");
  EXPECT_ERROR(load_tokenizer(scratch.write("cut.model", example_model().substr(0, 2000))), ExitCode::bad_input,
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
  const std::string characters = "é日😀a";
  const std::vector<size_t> unfinished = {0, 1, 0, 1, 2, 0, 1, 2, 3, 0, 0};
  for (size_t size = 0; size <= characters.size(); ++size) {
    EXPECT_EQ(unfinished_bytes(std::string_view(characters).substr(0, size)), unfinished[size]) << size;
  }
  for (const char* const broken : {"\x80", "\xC1", "\xF5", "a\x80\x80\x80\x80", "\xC3\x28"}) {
    EXPECT_EQ(unfinished_bytes(broken), 0U);
  }
  EXPECT_TRUE(is_utf8(""));
  EXPECT_FALSE(is_utf8("caf\xE9"));
  EXPECT_EQ(count_foreign_bytes(std::string_view("\xE9\xE9 é \0\xFF", 8)), 4u);
  EXPECT_TRUE(is_utf8(std::string_view("\0", 1)));
  EXPECT_EQ(printable("café \xE9\n\x7F"), "café \\xE9\\x0A\\x7F");
}

}  // namespace
}  // namespace shiftron

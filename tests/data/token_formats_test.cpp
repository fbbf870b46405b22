// Formats of token files: what each says is read as its definition says, and faulty files are refused by name.
#include <gtest/gtest.h>

#include <filesystem>

#include "data/documents.h"
#include "data/token_files/format.h"
#include "expect_error.h"
#include "token_fixture.h"

namespace shiftron {
namespace {

constexpr TokenElement kAllElements[] = {TokenElement::u8,  TokenElement::i8,  TokenElement::u16, TokenElement::i16,
                                         TokenElement::u32, TokenElement::i32, TokenElement::u64, TokenElement::i64,
                                         TokenElement::f32, TokenElement::f64};

std::string fault_of(const std::string& path, const std::string& format = "",
                     std::optional<TokenElement> element = std::nullopt) {
  try {
    TokenFile file = open_token_file(path, format, element);
    if (file.ends != nullptr) {
      for (const auto ends = file.ends(); ends->next();) {
      }
    }
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_input) << error.what();
    return error.what();
  }
  return "none";
}

#define EXPECT_FAULT(part, ...) EXPECT_THAT(fault_of(__VA_ARGS__), ::testing::HasSubstr(part))

// Ids up to the first end token or number that is no id, wherever it is among the blocks that are compared at once.
TEST(TokenElements, StopAtTheFirstNumberThatIsNoId) {
  constexpr int64_t kCount = 300, kVocabulary = 100;
  for (const TokenElement element : kAllElements) {
    for (const int64_t at : {int64_t{0}, int64_t{1}, int64_t{127}, int64_t{128}, int64_t{255}, int64_t{299}, kCount}) {
      for (const int32_t stop : {50, 100, 101}) {  // the end token, and ids beyond the vocabulary
        Row ids(kCount, 99);
        if (at < kCount) ids[static_cast<size_t>(at)] = stop;
        const std::string raw = stored(element, ids);
        EXPECT_EQ(ids_before(element, raw.data(), kCount, 50, kVocabulary), at) << to_string(element) << " " << stop;
        Row read(kCount);
        widen(element, raw.data(), kCount, read.data());
        EXPECT_EQ(read, ids) << to_string(element);
      }
    }
  }
}

TEST(TokenElements, NumbersThatAreNoIds) {
  const auto stops = [](TokenElement element, const std::string& raw, const std::string& text, int64_t vocabulary) {
    EXPECT_EQ(ids_before(element, raw.data(), 1, -1, vocabulary), 0) << text;
    EXPECT_EQ(number_text(element, raw.data()), text);
  };
  stops(TokenElement::i8, packed(int8_t{-1}), "-1", 1000);
  stops(TokenElement::i16, packed(int16_t{-1}), "-1", 100'000);
  stops(TokenElement::i32, packed(int32_t{-5}), "-5", INT32_MAX);
  stops(TokenElement::i64, packed(int64_t{1} << 40), "1099511627776", INT32_MAX);
  stops(TokenElement::u64, packed(UINT64_MAX), "18446744073709551615", INT32_MAX);
  stops(TokenElement::u32, packed(UINT32_MAX), "4294967295", INT32_MAX);
  stops(TokenElement::f32, packed(1.5f), "1.500000", 10);
  stops(TokenElement::f64, packed(-1.0), "-1.000000", 10);
  stops(TokenElement::f64, packed(std::nan("")), "nan", 10);
  // A vocabulary or an end token that the type cannot hold stops nothing.
  const std::string highest = packed(uint8_t{255});
  EXPECT_EQ(ids_before(TokenElement::u8, highest.data(), 1, 511, 1000), 1);
  const std::string sixteen = packed(uint16_t{65535});
  EXPECT_EQ(ids_before(TokenElement::u16, sixteen.data(), 1, -1, 65536), 1);
}

TEST(TokenFormats, MegatronsOfEveryType) {
  const std::vector<Sequences> documents = {{{1, 2, kLast}}, {{3}, {4, kLast}}, {{5, kLast}}};
  for (int code = 1; code <= 8; ++code) {
    const Scratch scratch;
    const TokenElement elements[] = {TokenElement::u8,  TokenElement::i8,  TokenElement::i16, TokenElement::i32,
                                     TokenElement::i64, TokenElement::f64, TokenElement::f32, TokenElement::u16};
    const TokenElement element = elements[code - 1];
    const std::string prefix = write_megatron(scratch, "x", documents, element);
    EXPECT_EQ(Scratch::read(prefix + ".idx")[17], code);
    EXPECT_EQ(imported(token_import(scratch, {prefix})), (Row{1, 2, kLast, 3, 4, kLast, 5, kLast})) << code;
  }
}

TEST(TokenFormats, MegatronsAreFoundByEachName) {
  const Scratch scratch;
  const std::string prefix = write_megatron(scratch, "x", {{{1, kLast}}});
  for (const char* ending : {"", ".bin", ".idx"}) {
    const TokenFile file = open_token_file(prefix + ending, "", {});
    EXPECT_EQ(file.format, "megatron");
    EXPECT_EQ(file.path, prefix + ".bin");
    EXPECT_EQ(file.tokens, 2u);
  }
}

TEST(TokenFormats, MegatronsFaults) {
  const Scratch scratch;
  const std::vector<Sequences> documents = {{{1, 2}, {3, kLast}}, {{4, kLast}}};
  const std::string prefix = write_megatron(scratch, "x", documents), index = Scratch::read(prefix + ".idx");
  const std::string tokens = Scratch::read(prefix + ".bin");
  const auto with = [&](size_t at, const std::string& bytes) {
    scratch.write("x.idx", std::string(index).replace(at, bytes.size(), bytes));
    return prefix;
  };
  const size_t lengths = 34, pointers = lengths + 3 * 4, ends = pointers + 3 * 8;
  EXPECT_FAULT("version 2", with(9, packed(uint64_t{2})));
  EXPECT_FAULT("type of tokens 9", with(17, "\x09"));
  EXPECT_FAULT("type of tokens 0", with(17, std::string(1, '\0')));
  EXPECT_FAULT("which do not hold", with(18, packed(UINT64_MAX)));
  EXPECT_FAULT("which do not hold", with(26, packed(uint64_t{0})));
  EXPECT_FAULT("sequence 1 has 200 tokens, but the .bin has only 4 more", with(lengths + 4, packed(int32_t{200})));
  EXPECT_FAULT("sequence 0 has -2 tokens", with(lengths, packed(int32_t{-2})));
  EXPECT_FAULT("sequence 1 begins at byte 6", with(pointers + 8, packed(int64_t{6})));
  EXPECT_FAULT("does not begin with 0", with(ends, packed(int64_t{1})));
  EXPECT_FAULT("document 1 ends with sequence 4 of 3", with(ends + 16, packed(int64_t{4})));
  EXPECT_FAULT("document 1 ends with sequence 1 of 3", with(ends + 16, packed(int64_t{1})));
  EXPECT_FAULT("its documents hold 2 of 3", with(ends + 16, packed(int64_t{2})));
  scratch.write("x.idx", index + "\1\1\1");
  EXPECT_FAULT("multimodal", prefix);
  scratch.write("x.idx", index + "\1");
  EXPECT_FAULT("1 bytes too many", prefix);
  scratch.write("x.idx", index);
  scratch.write("x.bin", tokens.substr(0, 10));
  EXPECT_FAULT("has 10 bytes, but the last sequence of", prefix);
  scratch.write("x.bin", tokens.substr(0, 11));
  EXPECT_FAULT("not a multiple", prefix);
  std::filesystem::remove(prefix + ".bin");
  EXPECT_FAULT("x.bin", prefix + ".idx");
}

TEST(TokenFormats, Datatroves) {
  const Scratch scratch;
  const Row tokens = {1, 2, kLast, 3, kLast};
  const std::string ends = packed(uint64_t{3}) + packed(uint64_t{5});
  const auto write = [&](TokenElement element, const std::string& metadata) {
    scratch.write("x.ds.index", ends);
    if (!metadata.empty()) scratch.write("x.ds.metadata", metadata);
    return scratch.write("x.ds", stored(element, tokens));
  };
  int number = 0;
  for (const auto& [element, metadata] :
       {std::pair(TokenElement::u16, ""), std::pair(TokenElement::u32, ""),
        std::pair(TokenElement::u16, "gpt2|2\n5\n5 T"), std::pair(TokenElement::u32, "/a|b/tokenizer.json|4\n5\n5 T"),
        std::pair(TokenElement::u16, "gpt2\n5\n5 T")}) {
    const std::string path = write(element, metadata), name = "out" + std::to_string(number++);
    EXPECT_EQ(imported(token_import(scratch, {path}, name)), tokens) << metadata;
  }
  EXPECT_EQ(open_token_file(scratch / "x.ds.index", "", {}).path, scratch / "x.ds");
  EXPECT_FAULT("5 tokens, but", write(TokenElement::u16, "gpt2|4\n5"));
  EXPECT_FAULT("a token has 3 bytes", write(TokenElement::u16, "gpt2|3\n5"));
  const std::string path = write(TokenElement::u16, "gpt2|2\n5");
  scratch.write("x.ds.index", packed(uint64_t{6}) + packed(uint64_t{5}));
  EXPECT_FAULT("document 0 ends at token 6", path);
  scratch.write("x.ds.index", packed(uint64_t{4}) + packed(uint64_t{3}) + packed(uint64_t{5}));
  EXPECT_FAULT("document 1 ends at token 3, but begins at 4", path);
  scratch.write("x.ds.index", ends.substr(0, 12));
  EXPECT_FAULT("not 8 for each document", path);
  scratch.write("x.ds", "");
  scratch.write("x.ds.index", "");
  EXPECT_EQ(open_token_file(path, "", {}).tokens, 0u);
  std::filesystem::remove(scratch / "x.ds.index");
  EXPECT_FAULT("needs its .idx next to it, datatrove's .ds its .ds.index", path);
}

TEST(TokenFormats, LlmC) {
  const Scratch scratch;
  const Row tokens = {kLast, 1, 2, kLast, 3};  // there, an end token precedes each document
  const std::string two = stored(TokenElement::u16, tokens), four = stored(TokenElement::u32, tokens);
  TokenImportResult result;
  EXPECT_EQ(imported(token_import(scratch, {scratch.write("a.bin", llm_c(20240520, 1, 5, two))}, "a"), &result),
            (Row{1, 2, kLast, 3, kLast}));
  EXPECT_EQ(result.counts.open, 1);
  EXPECT_EQ(imported(token_import(scratch, {scratch.write("b.bin", llm_c(20240801, 7, 5, four))}, "b")),
            (Row{1, 2, kLast, 3, kLast}));
  EXPECT_FAULT("version 2", scratch.write("x.bin", llm_c(20240520, 2, 5, two)));
  EXPECT_FAULT("its header says 6 tokens", scratch.write("x.bin", llm_c(20240520, 1, 6, two)));
  EXPECT_FAULT("its header says -1 tokens", scratch.write("x.bin", llm_c(20240520, 1, -1, two)));
  EXPECT_FAULT("less than llm.c's header", scratch.write("x.bin", llm_c(20240520, 1, 0, "").substr(0, 1000)));
}

TEST(TokenFormats, Npy) {
  const Scratch scratch;
  const Row tokens = {1, 2, kLast};
  int number = 0;
  for (const auto& [type, element] : {std::pair("|u1", TokenElement::u8), std::pair("<i2", TokenElement::i16),
                                      std::pair("<u2", TokenElement::u16), std::pair("<u4", TokenElement::u32),
                                      std::pair("<i8", TokenElement::i64), std::pair("<u8", TokenElement::u64)}) {
    for (int version = 1; version <= 3; ++version) {
      const std::string name = "x" + std::to_string(number++);
      const std::string path = scratch.write(name + ".npy", npy(type, "(3,)", stored(element, tokens), version));
      EXPECT_EQ(imported(token_import(scratch, {path}, name)), tokens) << type << version;
    }
  }
  const std::string array = stored(TokenElement::u16, tokens);
  const auto write = [&](const std::string& bytes) { return scratch.write("x.npy", bytes); };
  EXPECT_FAULT("shape (3, 1)", write(npy("<u2", "(3, 1)", array)));
  EXPECT_FAULT("shape ()", write(npy("<u2", "()", array)));
  EXPECT_FAULT("type '>u2'", write(npy(">u2", "(3,)", array)));
  EXPECT_FAULT("type '<f4'", write(npy("<f4", "(3,)", array)));
  EXPECT_FAULT("version 9", write(npy("<u2", "(3,)", array, 9)));
  EXPECT_FAULT("not the 4 numbers of 2 bytes", write(npy("<u2", "(4,)", array)));
  EXPECT_FAULT("not the 3 numbers of 2 bytes", write(npy("<u2", "(3,)", array + "\1")));
  EXPECT_FAULT("is cut off", write(npy("<u2", "(3,)", array).substr(0, 40)));
  EXPECT_FAULT("no descr", write(std::string("\x93NUMPY\1\0\2\0{}", 12)));
  EXPECT_FAULT("if it holds nothing but tokens", write(array + array), "npy");
}

TEST(TokenFormats, RawOfAGivenType) {
  const Scratch scratch;
  const Row tokens = {1, 2, kLast, 3, kLast};
  TokenImport options = token_import(scratch, {scratch.write("x.npy", stored(TokenElement::u32, tokens))});
  options.format = "raw";
  options.element = TokenElement::u32;
  EXPECT_EQ(imported(options), tokens);
  EXPECT_FAULT("needs --dtype", scratch / "x.npy", "raw");
  EXPECT_FAULT("not a multiple of the 8", scratch / "x.npy", "raw", TokenElement::u64);
  EXPECT_FAULT("--format raw --dtype u16", scratch / "x.npy");  // nothing marks it
  EXPECT_FAULT("begins with the mark of --format npy", scratch.write("y.npy", npy("|u1", "(1,)", "1")), "raw",
               TokenElement::u8);
  EXPECT_FAULT("--dtype u8 is only for --format raw", scratch / "y.npy", "", TokenElement::u8);
  EXPECT_FAULT("does not exist", scratch / "nothing");
  EXPECT_FAULT("is a directory", scratch.path());
}

// `data build` would make one document of noise of them.
TEST(TokenFormats, AreRefusedAsText) {
  const Scratch scratch;
  const std::string raw = stored(TokenElement::u16, {1, 2, kLast});
  write_megatron(scratch, "m", {{{1, kLast}}});
  scratch.write("d.ds", raw);
  scratch.write("d.ds.index", packed(uint64_t{3}));
  scratch.write("l.bin", llm_c(20240520, 1, 3, raw));
  scratch.write("n.npy", npy("<u2", "(3,)", raw));
  scratch.write("r.bin", raw);
  scratch.write("o.npy", raw);
  for (const char* name : {"m.bin", "m.idx", "d.ds", "l.bin", "n.npy"}) {
    EXPECT_ERROR(recognise_inputs({scratch / name}), ExitCode::bad_input, "shiftron data import /");
  }
  for (const char* name : {"r.bin", "o.npy"}) {
    EXPECT_ERROR(recognise_inputs({scratch / name}), ExitCode::bad_input, "data import --format raw --dtype u16 /");
  }
  EXPECT_NO_THROW(recognise_inputs({scratch.write("text.bin", "Only text.\n"), scratch.write("nul.txt", raw)}));
}

}  // namespace
}  // namespace shiftron

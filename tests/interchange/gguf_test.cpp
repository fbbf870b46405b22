// GGUF files: their bytes, what is refused, and where each parameter of a model is in one.
#include "interchange/gguf.h"

#include <cmath>
#include <fstream>

#include "expect_error.h"
#include "interchange/gguf_export.h"
#include "interchange/half.h"
#include "interchange/hugging_face_testing.h"

namespace shiftron::testing {
namespace {

using ::testing::HasSubstr;

std::string bytes_of(std::initializer_list<int> bytes) {
  return {bytes.begin(), bytes.end()};
}

std::vector<double> read_all(const GgufFile& file, const std::string& name) {
  for (const SafetensorsTensor& tensor : file.tensors()) {
    if (tensor.name != name) continue;
    std::vector<double> values(tensor.count());
    file.read(tensor, 0, values.size(), values.data());
    return values;
  }
  ADD_FAILURE() << name << " is missing";
  return {};
}

TEST(Half, IsTheNearest) {
  for (uint32_t bits = 0; bits < 0x7C00; ++bits) {  // every finite value, what lies between it and the next, and ties
    const auto half = static_cast<uint16_t>(bits);
    const float value = half_to_float(half), next = bits == 0x7BFF ? 65536.0f : half_to_float(half + 1);
    const float middle = (value + next) / 2;
    const auto even = static_cast<uint16_t>(half + (half & 1));
    ASSERT_EQ(float_to_half(value), half);
    ASSERT_EQ(float_to_half(-value), half | 0x8000);
    ASSERT_EQ(float_to_half(middle), even);
    ASSERT_EQ(float_to_half(std::nextafter(middle, 0.0f)), half);
    ASSERT_EQ(float_to_half(std::nextafter(middle, 1e9f)), half + 1);
  }
  EXPECT_TRUE(std::isinf(half_to_float(float_to_half(65520))));
  EXPECT_FALSE(std::isinf(half_to_float(float_to_half(65519))));
}

// The bytes as the format's description lays them out.
TEST(Gguf, BytesAreThoseOfTheFormat) {
  TemporaryDirectory directory;
  const std::string path = directory.path() + "/a.gguf";
  GgufWriter writer(path,
                    {{"n", uint32_t{258}},
                     {"f", 1.5f},
                     {"b", true},
                     {"s", std::string("hi")},
                     {"i", std::vector<int32_t>{-1}},
                     {"t", std::vector<std::string>{"x", ""}}},
                    {{.name = "w", .type = SafetensorsType::F32, .shape = {1, 3}},
                     {.name = "h", .type = SafetensorsType::F16, .shape = {2}}});
  const float values[] = {1, 2, 3};
  writer.append(values, 4);
  writer.append(values + 1, 8);
  const uint16_t halves[] = {0x3C00, 0xC000};
  writer.append(halves, 4);
  writer.finish();
  std::string expected = "GGUF" + bytes_of({3, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0});
  const auto key = [&](char name, int kind) { expected += bytes_of({1, 0, 0, 0, 0, 0, 0, 0, name, kind, 0, 0, 0}); };
  key('n', 4);
  expected += bytes_of({2, 1, 0, 0});
  key('f', 6);
  expected += bytes_of({0, 0, 0xC0, 0x3F});
  key('b', 7);
  expected += bytes_of({1});
  key('s', 8);
  expected += bytes_of({2, 0, 0, 0, 0, 0, 0, 0, 'h', 'i'});
  key('i', 9);
  expected += bytes_of({5, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF});
  key('t', 9);
  expected += bytes_of({8, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 'x', 0, 0, 0, 0, 0, 0, 0, 0});
  // w: two dims, the innermost first, type 0, at 0; h: one dim, type 1, after 12 bytes and 20 of padding.
  expected += bytes_of({1, 0, 0, 0, 0, 0, 0, 0, 'w', 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0});
  expected += bytes_of({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  expected += bytes_of({1, 0, 0, 0, 0, 0, 0, 0, 'h', 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0});
  expected += bytes_of({32, 0, 0, 0, 0, 0, 0, 0});
  expected.resize((expected.size() + 31) / 32 * 32);
  expected += bytes_of({0, 0, 0x80, 0x3F, 0, 0, 0, 0x40, 0, 0, 0x40, 0x40}) + std::string(20, '\0');
  expected += bytes_of({0, 0x3C, 0, 0xC0}) + std::string(28, '\0');
  EXPECT_EQ(read_file(path), expected);

  const GgufFile file(path);
  EXPECT_EQ(std::get<uint32_t>(file.entries().at("n")), 258u);
  EXPECT_EQ(std::get<std::vector<std::string>>(file.entries().at("t")), (std::vector<std::string>{"x", ""}));
  EXPECT_EQ(file.tensors()[0].shape, (std::vector<uint64_t>{1, 3}));
  EXPECT_EQ(read_all(file, "w"), (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(read_all(file, "h"), (std::vector<double>{1, -2}));

  // Cut anywhere before the last element's end, or with any byte of the header's numbers raised, it is refused or says
  // something else; it never reads beyond the file.
  for (size_t size = 0; size < expected.size() - 28; ++size) {
    write_text(path, expected.substr(0, size));
    EXPECT_EQ(error_of([&] { GgufFile cut(path); }).code(), ExitCode::bad_input) << size;
  }
  const size_t end = expected.size() - 64;
  for (size_t at = 0; at < end; ++at) {
    std::string changed = expected;
    changed[at] = static_cast<char>(0x7F);
    write_text(path, changed);
    try {
      const GgufFile read(path);
      for (const SafetensorsTensor& tensor : read.tensors()) read_all(read, tensor.name);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::bad_input) << at << ": " << error.what();
    }
  }
}

TEST(Gguf, WhatIsWrongIsNamed) {
  TemporaryDirectory directory;
  const std::string path = directory.path() + "/a.gguf";
  {
    GgufWriter writer(path, {{"k", uint32_t{1}}}, {{.name = "w", .type = SafetensorsType::F32, .shape = {2}}});
    const float values[] = {1, 2};
    writer.append(values, 8);
    EXPECT_ANY_THROW(writer.append(values, 1));
    writer.finish();
  }
  const std::string good = read_file(path);
  const auto fault = [&](size_t at, char byte) {
    std::string changed = good;
    changed.at(at) = byte;
    write_text(path, changed);
    return std::string(error_of([&] { GgufFile file(path); }).what());
  };
  EXPECT_THAT(fault(0, 'X'), HasSubstr("does not begin with GGUF"));
  EXPECT_THAT(fault(4, 2), HasSubstr("has version 2"));
  EXPECT_THAT(fault(15, 1), HasSubstr("tensors and 1 keys"));
  const size_t key = 24, kind = key + 9, tensor = kind + 8;
  EXPECT_THAT(fault(kind, 12), HasSubstr("key \"k\" has the unsupported kind 12"));
  EXPECT_THAT(fault(key + 7, 1), HasSubstr("goes beyond its end"));
  EXPECT_THAT(fault(tensor + 9, 5), HasSubstr("5 dims"));
  EXPECT_THAT(fault(tensor + 13, 90), HasSubstr("goes beyond its end"));
  EXPECT_THAT(fault(tensor + 21, 2), HasSubstr("it has type 2, but only F32, F16 and BF16 are supported"));
  EXPECT_THAT(fault(tensor + 25, 32), HasSubstr("begins at byte 32"));
}

struct GgufExportTest : public ::testing::Test {
  static GgufExport export_as(const ModelConfig& model, SafetensorsType type) {
    return {.model = model, .type = type, .positions = 64, .entries = {{"general.name", std::string("test")}}};
  }
  ModelConfig model_ = small_model({.query = 0, .key = 0, .value = 0});
  TemporaryDirectory directory_;
  const std::string out_ = directory_.path() + "/out.gguf";
};

TEST_F(GgufExportTest, EveryParameterLiesWhereLlamaCppLooks) {
  MemorySource source(model_);
  const uint64_t bytes = write_gguf(source, export_as(model_, SafetensorsType::F32), out_);
  EXPECT_EQ(bytes, fs::file_size(out_));
  EXPECT_EQ(names_in(directory_.path()), std::vector<std::string>{"out.gguf"});
  const GgufFile file(out_);
  EXPECT_EQ(file.tensors().size(), source.tensors().size());
  const auto same = [&](const std::string& theirs, const std::string& ours) {
    const std::vector<float>& values = source.values(ours);
    EXPECT_EQ(read_all(file, theirs), std::vector<double>(values.begin(), values.end())) << theirs;
  };
  same("token_embd.weight", "embedding.weight");
  same("output_norm.weight", "final_norm.weight");
  same("output.weight", "head.weight");
  for (const std::string layer : {"0", "1"}) {
    const std::string theirs = "blk." + layer + ".", ours = "layers." + layer + ".";
    same(theirs + "attn_norm.weight", ours + "attention_norm.weight");
    same(theirs + "attn_v.weight", ours + "attention.value.weight");
    same(theirs + "attn_output.weight", ours + "attention.out.weight");
    same(theirs + "ffn_norm.weight", ours + "mlp_norm.weight");
    same(theirs + "ffn_gate.weight", ours + "mlp.gate.weight");
    same(theirs + "ffn_up.weight", ours + "mlp.up.weight");
    same(theirs + "ffn_down.weight", ours + "mlp.down.weight");
    // Heads of 6: rows 0, 3, 1, 4, 2, 5.
    for (const auto& [name, parameter, heads] : {std::tuple{"attn_q", "query", 4}, std::tuple{"attn_k", "key", 2}}) {
      const std::vector<float>& values = source.values(ours + "attention." + parameter + ".weight");
      std::vector<double> expected;
      for (int head = 0; head < heads; ++head) {
        for (const int row : {0, 3, 1, 4, 2, 5}) {
          const auto begin = values.begin() + (head * 6 + row) * model_.hidden;
          expected.insert(expected.end(), begin, begin + model_.hidden);
        }
      }
      EXPECT_EQ(read_all(file, theirs + name + ".weight"), expected) << name;
    }
  }
  const auto& entries = file.entries();
  EXPECT_EQ(std::get<std::string>(entries.at("general.architecture")), "llama");
  EXPECT_EQ(std::get<std::string>(entries.at("general.name")), "test");
  const std::map<std::string, uint32_t> sizes = {
      {"general.file_type", 0},          {"llama.vocab_size", 19},
      {"llama.context_length", 64},      {"llama.embedding_length", 10},
      {"llama.block_count", 2},          {"llama.feed_forward_length", 14},
      {"llama.attention.head_count", 4}, {"llama.attention.head_count_kv", 2},
      {"llama.attention.key_length", 6}, {"llama.attention.value_length", 6},
      {"llama.rope.dimension_count", 6}};
  for (const auto& [key, value] : sizes) EXPECT_EQ(std::get<uint32_t>(entries.at(key)), value) << key;
  EXPECT_EQ(std::get<float>(entries.at("llama.rope.freq_base")), 12345.0f);
  EXPECT_EQ(std::get<float>(entries.at("llama.attention.layer_norm_rms_epsilon")), 1e-3f);
  model_.rope_base = 1e5 / 3;
  EXPECT_EQ(gguf_rounded(model_).norm_epsilon, static_cast<double>(1e-3f));
  EXPECT_EQ(gguf_rounded(model_).rope_base, static_cast<double>(static_cast<float>(1e5 / 3)));
  EXPECT_NE(gguf_rounded(model_).rope_base, 1e5 / 3);
}

TEST_F(GgufExportTest, NormsStayFloat32AndATiedHeadIsLeftOut) {
  model_ = small_model({.query = 0, .key = 0, .value = 0}, 4, true);
  MemorySource source(model_);
  for (const auto& [type, number] : {std::pair{SafetensorsType::F16, 1u}, std::pair{SafetensorsType::BF16, 32u}}) {
    const std::string out = out_ + to_string(type);
    write_gguf(source, export_as(model_, type), out);
    const GgufFile file(out);
    EXPECT_EQ(std::get<uint32_t>(file.entries().at("general.file_type")), number);
    for (const SafetensorsTensor& tensor : file.tensors()) {
      EXPECT_EQ(tensor.type, tensor.shape.size() == 1 ? SafetensorsType::F32 : type) << tensor.name;
      EXPECT_NE(tensor.name, "output.weight");
    }
    const std::vector<double> up = read_all(file, "blk.1.ffn_up.weight");
    const std::vector<float>& ours = source.values("layers.1.mlp.up.weight");
    for (size_t i = 0; i < up.size(); ++i) {
      EXPECT_NEAR(up[i], ours[i], std::abs(ours[i]) * (type == SafetensorsType::F16 ? 0x1p-11 : 0x1p-8));
    }
  }
}

TEST_F(GgufExportTest, WhatFailsLeavesNothing) {
  MemorySource source(model_);
  const auto fault = [&](const GgufExport& how) {
    const Error error = error_of([&] { write_gguf(source, how, out_); });
    EXPECT_FALSE(fs::exists(out_));
    EXPECT_FALSE(fs::exists(out_ + ".tmp"));
    return std::string(error.what());
  };
  const GgufExport how = export_as(model_, SafetensorsType::F16);
  GgufExport shifted = how;
  shifted.model.shift.key = 1;
  EXPECT_THAT(fault(shifted), HasSubstr("llama.cpp cannot compute"));
  EXPECT_THAT(fault(shifted), HasSubstr("--format hf"));
  GgufExport checked = how;
  checked.check = [&](const std::string& path) {
    EXPECT_EQ(path, out_ + ".tmp/out.gguf");
    EXPECT_EQ(GgufFile(path).tensors().size(), source.tensors().size());
    throw_crash("the check fails");
  };
  EXPECT_THAT(fault(checked), HasSubstr("the check fails"));
  source.values("layers.1.mlp.down.weight")[3] = 65521;
  EXPECT_THAT(fault(how), HasSubstr("layers.1.mlp.down.weight holds 65521"));
  source.values("layers.1.mlp.down.weight")[3] = NAN;
  EXPECT_THAT(fault(how), HasSubstr("not finite"));
}

TEST_F(GgufExportTest, RemainsAreSweptAndWhatIsThereIsNot) {
  MemorySource source(model_);
  const GgufExport how = export_as(model_, SafetensorsType::F32);
  write_text(out_ + ".tmp", "mine");
  EXPECT_THAT(error_of([&] { write_gguf(source, how, out_); }).what(), HasSubstr("not left over from an export"));
  EXPECT_EQ(read_file(out_ + ".tmp"), "mine");
  fs::remove(out_ + ".tmp");
  fs::create_directory(out_ + ".tmp");
  for (const char* name : {"out.gguf", "export-that-is-under-way"}) write_text(out_ + ".tmp/" + name, "");
  write_gguf(source, how, out_);
  EXPECT_EQ(names_in(directory_.path()), std::vector<std::string>{"out.gguf"});
  EXPECT_THAT(error_of([&] { write_gguf(source, how, out_); }).what(), HasSubstr("already exists"));
}

TEST_F(GgufExportTest, FoldersAreMadeAndNothingInAStep) {
  MemorySource source(model_);
  const GgufExport how = export_as(model_, SafetensorsType::F32);
  write_gguf(source, how, directory_.path() + "/a/b/out.gguf");
  EXPECT_EQ(names_in(directory_.path() + "/a/b"), std::vector<std::string>{"out.gguf"});
  const std::string step = directory_.path() + "/run/checkpoints/step-00000007";
  fs::create_directories(step);
  write_text(step + "/manifest.json", "{}");
  EXPECT_THAT(error_of([&] { write_gguf(source, how, step + "/out.gguf"); }).what(),
              HasSubstr("which must not change"));
  EXPECT_EQ(names_in(step), std::vector<std::string>{"manifest.json"});
}

TEST_F(GgufExportTest, OfTwoAtOnceOneIsRefused) {
  MemorySource source(model_), second(model_);
  const GgufExport plain = export_as(model_, SafetensorsType::F32);
  GgufExport how = plain;
  how.check = [&](const std::string& path) {
    const Error error = error_of([&] { write_gguf(second, plain, out_); });
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    EXPECT_THAT(error.what(), HasSubstr("another export to "));
    EXPECT_TRUE(fs::exists(path));
  };
  write_gguf(source, how, out_);
  EXPECT_EQ(names_in(directory_.path()), std::vector<std::string>{"out.gguf"});
}

}  // namespace
}  // namespace shiftron::testing

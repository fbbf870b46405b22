// The safetensors reader against hostile files, and the writer against the reader.
#include "interchange/safetensors.h"

#include <cmath>
#include <limits>

#include "checkpoint/fixture.h"
#include "expect_error.h"

namespace shiftron::testing {
namespace {

std::string file_of(const std::string& header, const std::string& elements) {
  const uint64_t length = header.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes + header + elements;
}

// `key`: a tensor's object, or several keys.
std::string tensor(const std::string& name, const std::string& type, const std::string& shape,
                   const std::string& offsets) {
  return "\"" + name + R"(":{"dtype":")" + type + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

struct Hostile {
  const char* what;
  std::string bytes;
  const char* message;
};

std::vector<Hostile> corpus() {
  const std::string eight(8, 'x'), twelve(12, 'x');
  const auto one = [&](const std::string& type, const std::string& shape, const std::string& offsets,
                       const std::string& elements) {
    return file_of("{" + tensor("a", type, shape, offsets) + "}", elements);
  };
  const auto two = [&](const std::string& first, const std::string& second, const std::string& elements) {
    return file_of("{" + tensor("a", "F32", "[2]", first) + "," + tensor("b", "F32", "[1]", second) + "}", elements);
  };
  const auto raw = [&](const std::string& header) { return file_of(header, eight); };
  const auto body = [&](const std::string& keys) { return raw("{\"a\":{" + keys + "}}"); };
  const std::string length_only = file_of("", "").substr(0, 7);
  std::string long_header = file_of("{}", "");
  long_header[4] = 1;  // 4 GiB
  std::string beyond = file_of("{}  ", "");
  beyond[0] = 5;
  return {
      {"empty", "", "0 bytes"},
      {"shorter than the length", length_only, "7 bytes"},
      {"no header", file_of("", ""), "does not begin with {"},
      {"header beyond the limit", long_header, "header claims"},
      {"header beyond the file", beyond, "header claims 5 bytes"},
      {"a list", raw("[]      "), "does not begin with {"},
      {"a space in front", raw(" {}"), "does not begin with {"},
      {"a byte order mark", raw("\xef\xbb\xbf{}"), "does not begin with {"},
      {"no end", raw("{"), "not valid JSON"},
      {"text after the end", raw("{}{}"), "not valid JSON"},
      {"a zero byte after the end", raw(std::string("{}\0", 3)), "zero byte"},
      {"a zero byte that hides text", raw(std::string("{}\0junk", 7)), "zero byte"},
      {"no UTF-8", raw("{\"\xff\":1}"), "not valid JSON"},
      {"a lone surrogate", raw(R"({"\ud800":1})"), "not valid JSON"},
      {"no tensors, but elements", raw("{}"), "tensors end at byte 0"},
      {"a number for a tensor", raw(R"({"a":1})"), "a number at \"a\""},
      {"null for a tensor", raw(R"({"a":null})"), "null"},
      {"a list for a tensor", raw(R"({"a":[]})"), "a list"},
      {"a text for a tensor", raw(R"({"a":"F32"})"), "a string"},
      {"a nameless tensor", raw("{" + tensor("", "F32", "[2]", "[0,8]") + "}"), "has no name"},
      {"a name of 513 bytes", raw("{" + tensor(std::string(513, 'n'), "F32", "[2]", "[0,8]") + "}"), "longer than 512"},
      {"a tensor twice", raw("{" + tensor("a", "F32", "[2]", "[0,8]") + "," + tensor("a", "F32", "[2]", "[0,8]") + "}"),
       "\"a\" appears twice"},
      {"the same name, escaped",
       raw("{" + tensor("a", "F32", "[2]", "[0,8]") + "," + tensor("\\u0061", "F32", "[0]", "[8,8]") + "}"),
       "\"a\" appears twice"},
      {"metadata twice", raw(R"({"__metadata__":{},"__metadata__":{}})"), "appears twice"},
      {"a key of the metadata twice", raw(R"({"__metadata__":{"k":"1","k":"2"}})"), "appears twice in __metadata__"},
      {"a number in the metadata", raw(R"({"__metadata__":{"k":1}})"), "a number"},
      {"an object in the metadata", raw(R"({"__metadata__":{"k":{}}})"), "an object"},
      {"metadata that is a text", raw(R"({"__metadata__":"k"})"), "a string"},
      {"no dtype", body(R"("shape":[2],"data_offsets":[0,8])"), "needs dtype, shape and data_offsets"},
      {"no shape", body(R"("dtype":"F32","data_offsets":[0,8])"), "needs dtype"},
      {"no offsets", body(R"("dtype":"F32","shape":[2])"), "needs dtype"},
      {"dtype twice", body(R"("dtype":"F64","dtype":"F32","shape":[2],"data_offsets":[0,8])"), "appears twice"},
      {"shape twice", body(R"("dtype":"F32","shape":[4],"shape":[2],"data_offsets":[0,8])"), "appears twice"},
      {"offsets twice", body(R"("dtype":"F32","shape":[2],"data_offsets":[0,4],"data_offsets":[0,8])"),
       "appears twice"},
      {"an unknown key", body(R"("dtype":"F32","shape":[2],"data_offsets":[0,8],"stride":[1])"), "\"stride\""},
      {"an unknown dtype", one("F4", "[2]", "[0,8]", eight),
       "tensor \"a\" has the unknown dtype \"F4\"; this type is not supported"},
      {"a dtype in lower case", one("f32", "[2]", "[0,8]", eight), "unknown dtype"},
      {"a negative extent", one("F32", "[-2]", "[0,8]", eight), "a negative number"},
      {"a broken extent", one("F32", "[2.0]", "[0,8]", eight), "the number"},
      {"an extent in words", one("F32", "[\"2\"]", "[0,8]", eight), "a string"},
      {"an extent of 2^64", one("F32", "[18446744073709551616]", "[0,8]", eight), "the number"},
      {"a nested shape", one("F32", "[[2]]", "[0,8]", eight), "a list"},
      {"9 dims", one("F32", "[1,1,1,1,1,1,1,1,2]", "[0,8]", eight), "more than 8 dims"},
      {"a shape that overflows", one("F32", "[4611686018427387905,4]", "[0,16]", eight), "overflows"},
      {"bytes that overflow", one("F64", "[2305843009213693953]", "[0,8]", eight), "overflows"},
      {"an overflow after a zero", one("F32", "[4611686018427387904,4,0]", "[0,0]", ""), "overflows"},
      {"one offset", one("F32", "[2]", "[0]", eight), "must be two numbers"},
      {"three offsets", one("F32", "[2]", "[0,8,8]", eight), "must be two numbers"},
      {"an end before its begin", one("F32", "[2]", "[8,0]", eight), "do not match the 8 bytes"},
      {"too few bytes for the shape", one("F32", "[3]", "[0,8]", eight), "do not match the 12 bytes"},
      {"too many bytes for the shape", one("F32", "[2]", "[0,12]", twelve), "do not match the 8 bytes"},
      {"a scalar of 8 bytes", one("F32", "[]", "[0,8]", eight), "do not match the 4 bytes"},
      {"elements after the file", one("F32", "[1000000000]", "[0,4000000000]", eight), "the file ends at 8"},
      {"a file that is cut", one("F32", "[2]", "[0,8]", "1234567"), "the file ends at 7"},
      {"bytes after the last tensor", one("F32", "[2]", "[0,8]", twelve), "end at byte 8"},
      {"bytes before the first tensor", one("F32", "[2]", "[4,12]", twelve), "begins at byte 4"},
      {"a gap", two("[0,8]", "[12,16]", twelve + "1234"), "begins at byte 12, but the previous one ends at 8"},
      {"an overlap", two("[0,8]", "[4,8]", eight), "begins at byte 4, but the previous one ends at 8"},
      {"two in one place", two("[0,8]", "[0,4]", eight), "the previous one ends at 4"},
      {"deep", raw("{\"a\":" + std::string(100000, '[')), "a list"},
  };
}

TEST(Safetensors, RefusesWhatIsNotWhole) {
  TemporaryDirectory directory;
  const std::string path = directory.path() + "/bad.safetensors";
  const std::vector<Hostile> files = corpus();
  ASSERT_GE(files.size(), 50u);
  for (const Hostile& file : files) {
    SCOPED_TRACE(file.what);
    write_text(path, file.bytes);
    const Error error = error_of([&] { const SafetensorsFile read(path); });
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    EXPECT_THAT(error.what(), ::testing::StartsWith(path + ": "));
    EXPECT_THAT(error.what(), ::testing::HasSubstr(file.message));
  }
}

TEST(Safetensors, TakesEveryTypeAndShapeThatIsWhole) {
  TemporaryDirectory directory;
  const std::string path = directory.path() + "/good.safetensors";
  for (const char* name : names_of(SafetensorsType{})) {
    const uint64_t bytes = 2 * size_of(*from_string<SafetensorsType>(name));
    write_text(path,
               file_of("{" + tensor("b", name, "[2,1]", "[0," + std::to_string(bytes) + "]") + "," +
                           tensor("a", name, "[0,3]", "[" + std::to_string(bytes) + "," + std::to_string(bytes) + "]") +
                           "}   ",
                       std::string(bytes, '\1')));
    const SafetensorsFile file(path);
    ASSERT_EQ(file.tensors().size(), 2u) << name;
    EXPECT_EQ(file.tensors()[0].name, "b");
    EXPECT_EQ(file.tensors()[0].bytes(), bytes);
    EXPECT_EQ(file.tensors()[1].count(), 0u);
  }
  write_text(path, file_of("{}", ""));
  EXPECT_TRUE(SafetensorsFile(path).tensors().empty());
  write_text(path, file_of("{" + tensor("a", "F32", "[4611686018427387904,0]", "[0,0]") + "}", ""));
  EXPECT_EQ(SafetensorsFile(path).tensors().at(0).count(), 0u);
}

// A bit of any byte of a header that is changed is refused, or read as other names and places within the file.
TEST(Safetensors, ChangedBytesNeverLeadOutOfTheFile) {
  TemporaryDirectory directory;
  const std::string path = directory.path() + "/changed.safetensors";
  const std::string whole =
      file_of("{" + tensor("a", "F32", "[2,3]", "[0,24]") + "," + tensor("b", "F16", "[4]", "[24,32]") + "}",
              std::string(32, '\2'));
  int refused = 0;
  for (size_t at = 0; at + 32 < whole.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bytes = whole;
      bytes[at] = static_cast<char>(bytes[at] ^ 1 << bit);
      write_text(path, bytes);
      try {
        const SafetensorsFile file(path);
        for (const SafetensorsTensor& tensor : file.tensors()) {
          EXPECT_LE(tensor.begin + tensor.bytes(), bytes.size());
        }
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::bad_input);
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 500);
}

TEST(Safetensors, WhatIsWrittenIsReadWidened) {
  TemporaryDirectory directory;
  const std::string path = directory.path() + "/model.safetensors";
  const std::vector<SafetensorsTensor> tensors = {{.name = "double", .type = SafetensorsType::F64, .shape = {2}},
                                                  {.name = "half", .type = SafetensorsType::F16, .shape = {8}},
                                                  {.name = "brain", .type = SafetensorsType::BF16, .shape = {1, 2}},
                                                  {.name = "number", .type = SafetensorsType::I64, .shape = {}},
                                                  {.name = "float", .type = SafetensorsType::F32, .shape = {3}}};
  const double doubles[] = {1.0 / 3, -1e300};
  const uint16_t halves[] = {0x3C00, 0xC000, 0x7BFF, 0x0001, 0x8000, 0x7C00, 0x7E00, 0x3555};
  const uint16_t brains[] = {0x3F80, 0xC000};
  const int64_t number = 7;
  const float floats[] = {0.1f, -0.0f, 3e-45f};
  {
    SafetensorsWriter writer(path, tensors, {{"format", "pt"}});
    writer.append(doubles, sizeof(doubles));
    writer.append(halves, sizeof(halves));
    writer.append(brains, 2);
    writer.append(brains + 1, 2);
    writer.append(&number, sizeof(number));
    writer.append(floats, sizeof(floats));
    writer.finish();
  }
  const SafetensorsFile file(path);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  ASSERT_EQ(file.tensors().size(), 5u);
  EXPECT_EQ(file.tensors()[0].begin % 8, 0u);
  const auto values = [&](size_t index) {
    std::vector<double> read(file.tensors()[index].count());
    file.read(file.tensors()[index], 0, read.size(), read.data());
    return read;
  };
  EXPECT_EQ(values(0), (std::vector<double>{1.0 / 3, -1e300}));
  const std::vector<double> half = values(1);
  EXPECT_EQ(std::vector<double>(half.begin(), half.begin() + 6),
            (std::vector<double>{1, -2, 65504, 0x1p-24, -0.0, std::numeric_limits<double>::infinity()}));
  EXPECT_TRUE(std::signbit(half[4]));
  EXPECT_TRUE(std::isnan(half[6]));
  EXPECT_DOUBLE_EQ(half[7], 0x555p-12);  // 1.333… · 2⁻²
  EXPECT_EQ(values(2), (std::vector<double>{1, -2}));
  EXPECT_ERROR(values(3), ExitCode::bad_input, "tensor number has type I64");
  std::vector<float> read(2);
  file.read(file.tensors()[4], 1, 2, read.data());
  EXPECT_EQ(std::memcmp(read.data(), floats + 1, 8), 0);
  EXPECT_ERROR(file.read(file.tensors()[4], 2, 2, read.data()), ExitCode::crash, "elements 2 to 4 of 3");
}

TEST(Safetensors, AWriterThatIsNotGivenAllIsAFault) {
  TemporaryDirectory directory;
  const std::vector<SafetensorsTensor> tensors = {{.name = "a", .shape = {2}}};
  SafetensorsWriter writer(directory.path() + "/a", tensors, {});
  writer.append("1234", 4);
  EXPECT_ERROR(writer.finish(), ExitCode::crash, "4 bytes were not appended");
  EXPECT_ERROR(writer.append("12345", 5), ExitCode::crash, "5 bytes are appended, but 4 are left");
  EXPECT_ERROR(const SafetensorsFile file(directory.path() + "/a"), ExitCode::bad_input, "the file ends at 4");
}

TEST(Safetensors, ShardsHoldAtMostTheirLimit) {
  std::vector<SafetensorsTensor> tensors;
  for (const uint64_t extent : {3, 2, 9, 1, 1}) {
    tensors.push_back({.name = "t" + std::to_string(tensors.size()), .shape = {extent}});
  }
  const auto shards = safetensors_shards(tensors, 20);
  ASSERT_EQ(shards.size(), 3u);
  EXPECT_EQ(shards[0].size(), 2u);
  EXPECT_EQ(shards[1].size(), 1u);  // larger than a file may be
  EXPECT_EQ(shards[2].size(), 2u);
  EXPECT_EQ(safetensors_shard_name(1, 3), "model-00002-of-00003.safetensors");
  EXPECT_EQ(safetensors_shard_name(0, 1), "model.safetensors");
  EXPECT_THAT(safetensors_index(shards), ::testing::HasSubstr(R"("t2": "model-00002-of-00003.safetensors")"));
  EXPECT_THAT(safetensors_index(shards), ::testing::HasSubstr(R"("total_size": 64)"));
}

class SafetensorsDirectories : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::vector<std::string>& tensors) {
    std::vector<SafetensorsTensor> list;
    for (const std::string& tensor : tensors) list.push_back({.name = tensor, .shape = {1}});
    fs::remove(path_ + "/" + name);
    SafetensorsWriter writer(path_ + "/" + name, list, {});
    for (size_t i = 0; i < list.size(); ++i) writer.append("1234", 4);
    writer.finish();
  }
  void index(const std::string& map) {
    write_text(path_ + "/model.safetensors.index.json", "{\"weight_map\":" + map + "}");
  }
  std::string fault() {
    const Error error = error_of([&] { const SafetensorsDirectory read(path_); });
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    return error.what();
  }
  TemporaryDirectory directory_;
  const std::string path_ = directory_.path();
};

TEST_F(SafetensorsDirectories, OneFileOrThoseOfTheIndex) {
  using ::testing::HasSubstr;
  EXPECT_THAT(fault(), HasSubstr("holds neither model.safetensors nor"));
  write_text(path_ + "/pytorch_model.bin", "pickle");
  EXPECT_THAT(fault(), HasSubstr("holds pytorch_model.bin but no safetensors"));
  EXPECT_THAT(fault(), HasSubstr("save_pretrained"));
  write("model-1.safetensors", {"a", "b"});
  write("model-2.safetensors", {"c"});
  index(R"({"a":"model-1.safetensors","b":"model-1.safetensors","c":"model-2.safetensors"})");
  EXPECT_EQ(SafetensorsDirectory(path_).tensors().size(), 3u);
  write("model.safetensors", {"a"});
  EXPECT_THAT(fault(), HasSubstr("remove the wrong one"));
  fs::remove(path_ + "/model.safetensors.index.json");
  EXPECT_EQ(SafetensorsDirectory(path_).tensors().size(), 1u);
  EXPECT_EQ(SafetensorsDirectory(path_).find("c"), nullptr);
}

TEST_F(SafetensorsDirectories, AnIndexThatLies) {
  using ::testing::HasSubstr;
  write("model-1.safetensors", {"a", "b"});
  write("model-2.safetensors", {"c"});
  index(R"({"a":"model-1.safetensors","b":"model-1.safetensors","c":"model-1.safetensors"})");
  EXPECT_THAT(fault(), HasSubstr("tensor \"c\" is not in model-1.safetensors"));
  index(R"({"a":"model-1.safetensors","c":"model-2.safetensors"})");
  EXPECT_THAT(fault(), HasSubstr("tensor b is in model-1.safetensors, but the index does not list it"));
  index(R"({"a":"../model-1.safetensors"})");
  EXPECT_THAT(fault(), HasSubstr("not the name of a safetensors file"));
  index(R"({"a":"model-3.safetensors"})");
  EXPECT_THAT(fault(), HasSubstr("model-3.safetensors"));
  index("[]");
  EXPECT_THAT(fault(), HasSubstr("weight_map is missing"));
  write_text(path_ + "/model.safetensors.index.json", "{");
  EXPECT_THAT(fault(), HasSubstr("not valid JSON"));
  write("model-2.safetensors", {"c", "a"});
  index(R"({"a":"model-1.safetensors","b":"model-1.safetensors","c":"model-2.safetensors"})");
  EXPECT_THAT(fault(), HasSubstr("tensor a is also in"));
}

}  // namespace
}  // namespace shiftron::testing

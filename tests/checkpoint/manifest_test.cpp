// Manifest: round trip; every field out of bounds is refused with its name.
#include "checkpoint/manifest.h"

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>

#include "checkpoint/fixture.h"
#include "checkpoint/json_fields.h"

namespace shiftron {
namespace {

using namespace shiftron::testing;
using nlohmann::json;

Manifest example() {
  Manifest manifest;
  manifest.step = 500;
  manifest.block_bytes = 512;
  manifest.writer = {.tp = 2, .pp = 3};
  manifest.configuration = "[model]\nlayers = 12 # \"ä\"\n";
  manifest.state_json = R"({"consumed":18446744073709551615,"rate":0.1,"skips":[1,2]})";
  manifest.data_fingerprint = "abc";
  manifest.code_version = "0.1.0";
  manifest.tensors = {{TensorGroup::parameters, "a.weight", {4, 100}, DType::float32},
                      {TensorGroup::first_moment, "a.weight", {3}, DType::float64}};
  manifest.files = {{"rank-00000.h5", 5000, {1, 2}}, {"rank-00001.h5", 6000, {3, 4}}};
  manifest.boxes = {{0, {{0, 0}, {2, 100}}, 0, 1000, 800, {5, 6}},
                    {0, {{2, 0}, {2, 100}}, 1, 1000, 800, {7, 8}},
                    {1, {{0}, {3}}, 1, 2000, 24, {9}}};
  return manifest;
}

// The text with another body and the hash of that body.
std::string with_body(const std::string& text, const std::function<void(json&)>& change) {
  json root = json::parse(text);
  root.erase("xxh3_128");
  change(root);
  const std::string body = root.dump().substr(1) + "\n";
  return "{\"xxh3_128\":\"" + to_hex(xxh3_128(body)) + "\",\n" + body;
}

std::string fault_of(const std::function<void(json&)>& change) {
  const std::string text = with_body(to_text(example()), change);
  const Error error = error_of([&] { check_tiling(parse_manifest(text, "m"), "m"); });
  EXPECT_EQ(error.code(), ExitCode::no_checkpoint) << error.what();
  return error.what();
}

TEST(Manifest, ThereAndBack) {
  const Manifest before = example();
  const std::string text = to_text(before);
  const Manifest after = parse_manifest(text, "m");
  EXPECT_EQ(to_text(after), text);
  EXPECT_EQ(after.state_json, before.state_json);
  EXPECT_EQ(after.configuration, before.configuration);
  EXPECT_EQ(after.tensors, before.tensors);
  EXPECT_EQ(after.writer, before.writer);
  EXPECT_EQ(after.boxes[1].box, before.boxes[1].box);
  EXPECT_EQ(after.boxes[1].block_hashes, before.boxes[1].block_hashes);
  EXPECT_EQ(after.dataset(after.boxes[1]), "parameters/a.weight@2,0");
  EXPECT_EQ(after.dataset(after.boxes[2]), "first_moment/a.weight");
  EXPECT_NO_THROW(check_tiling(after, "m"));
  EXPECT_NO_THROW(parse_manifest(with_body(text, [](json&) {}), "m"));
}

Manifest with_tokenizer(const std::string& file, const TokenizerSettings& settings) {
  Manifest manifest = example();
  manifest.files.push_back({file, 7, {5, 6}});
  manifest.tokenizer_file = file;
  manifest.tokenizer_settings = settings;
  return manifest;
}

// Older versions read what they could say.
TEST(Manifest, OnlyTokenizersThatNeedItRaiseTheVersion) {
  const auto version = [](const Manifest& manifest) { return json::parse(to_text(manifest))["version"].get<int>(); };
  EXPECT_EQ(version(example()), 1);
  EXPECT_EQ(version(with_tokenizer("tokenizer.model", {})), 1);
  for (const Manifest& before :
       {with_tokenizer("tokenizer.json", {}), with_tokenizer("tokenizer.model", {.end_of_document = 3}),
        with_tokenizer("tokenizer.json", {.end_of_document = 0, .beginning_of_document = 5}),
        with_tokenizer("tokenizer.model", {.special_text = true})}) {
    EXPECT_EQ(version(before), 2);
    const Manifest after = parse_manifest(to_text(before), "m");
    EXPECT_EQ(after.tokenizer_file, before.tokenizer_file);
    EXPECT_EQ(after.tokenizer_settings, before.tokenizer_settings);
  }
}

TEST(Manifest, FaultyTokenizersAreRefused) {
  const std::string text = to_text(with_tokenizer("tokenizer.json", {.end_of_document = 3}));
  const auto refuses = [&](const std::string& words, const std::function<void(json&)>& change) {
    const std::string changed = with_body(text, [&](json& root) { change(root["tokenizer"]); });
    EXPECT_THAT(error_of([&] { parse_manifest(changed, "m"); }).what(), ::testing::HasSubstr(words));
  };
  refuses("tokenizer.file is not one of", [](json& j) { j["file"] = "other.json"; });
  refuses("tokenizer.end_of_document is -1", [](json& j) { j["end_of_document"] = -1; });
  refuses("tokenizer.beginning_of_document is 2147483648", [](json& j) { j["beginning_of_document"] = 1LL << 31; });
  refuses("tokenizer.special_text is not true or false", [](json& j) { j["special_text"] = 0; });
  refuses("tokenizer.special_text is missing", [](json& j) { j.erase("special_text"); });
}

TEST(Manifest, EveryChangedByteAndEveryTruncationIsSeen) {
  const std::string text = to_text(example());
  for (size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = static_cast<char>(changed[i] ^ 1 << i % 7);
    EXPECT_THROW(parse_manifest(changed, "m"), Error) << "byte " << i;
    EXPECT_THROW(parse_manifest(text.substr(0, i), "m"), Error) << "cut at " << i;
  }
}

TEST(Manifest, FieldsOutOfBoundsAreNamed) {
  using ::testing::HasSubstr;
  const std::vector<std::pair<std::string, std::function<void(json&)>>> cases = {
      {"m: step is -1", [](json& j) { j["step"] = -1; }},
      {"m: step is 1.5", [](json& j) { j["step"] = 1.5; }},
      {"m: version is 3", [](json& j) { j["version"] = 3; }},
      {"tokenizer is missing", [](json& j) { j["version"] = 2; }},
      {"tokenizer is not known", [](json& j) { j["tokenizer"] = json::object(); }},
      {"format", [](json& j) { j["format"] = "other"; }},
      {"step is missing", [](json& j) { j.erase("step"); }},
      {"extra is not known", [](json& j) { j["extra"] = 1; }},
      {"block_bytes is 0", [](json& j) { j["block_bytes"] = 0; }},
      {"state is [], must be an object", [](json& j) { j["state"] = json::array(); }},
      {"writer_layout.tp is 0", [](json& j) { j["writer_layout"]["tp"] = 0; }},
      {"tensors is 3, must be a list", [](json& j) { j["tensors"] = 3; }},
      {"tensors[0].group", [](json& j) { j["tensors"][0]["group"] = "third_moment"; }},
      {"tensors[0].name may hold only", [](json& j) { j["tensors"][0]["name"] = "../a"; }},
      {"tensors[0].name may hold only", [](json& j) { j["tensors"][0]["name"] = ".."; }},
      {"tensors[0].name is", [](json& j) { j["tensors"][0]["name"] = std::string(600, 'a'); }},
      {"tensors[1].dtype is float16", [](json& j) { j["tensors"][1]["dtype"] = "float16"; }},
      {"tensors[0].shape has 0 entries", [](json& j) { j["tensors"][0]["shape"] = json::array(); }},
      {"tensors[0].shape has 5 entries",
       [](json& j) {
         j["tensors"][0]["shape"] = {1, 1, 1, 1, 1};
       }},
      {"tensors[0].shape is 0",
       [](json& j) {
         j["tensors"][0]["shape"] = {0, 100};
       }},
      {"too many elements",
       [](json& j) {
         j["tensors"][0]["shape"] = {int64_t{1} << 40, int64_t{1} << 40};
       }},
      {"holds first_moment/a.weight twice", [](json& j) { j["tensors"].push_back(j["tensors"][1]); }},
      {"files[0].name may hold only", [](json& j) { j["files"][0]["name"] = "/etc/passwd"; }},
      {"holds rank-00001.h5 twice", [](json& j) { j["files"].push_back(j["files"][1]); }},
      {"files[1].bytes", [](json& j) { j["files"][1]["bytes"] = UINT64_MAX; }},
      {"files[1].xxh3_128", [](json& j) { j["files"][1]["xxh3_128"] = std::string(32, 'G'); }},
      {"boxes[0].tensor is 2", [](json& j) { j["boxes"][0]["tensor"] = 2; }},
      {"boxes[0].file is 2", [](json& j) { j["boxes"][0]["file"] = 2; }},
      {"boxes[1].extent is [3, 100] at 2,0, outside",
       [](json& j) {
         j["boxes"][1]["extent"] = {3, 100};
       }},
      {"boxes[1].offset",
       [](json& j) {
         j["boxes"][1]["offset"] = {UINT64_MAX, 0};
       }},
      {"boxes[1].offset has 1 entries", [](json& j) { j["boxes"][1]["offset"] = {2}; }},
      {"boxes[0].dataset must be parameters/a.weight@0,0", [](json& j) { j["boxes"][0]["dataset"] = "x"; }},
      {"ends after the end of rank-00000.h5", [](json& j) { j["boxes"][0]["byte_offset"] = 4500; }},
      {"boxes[0].byte_offset", [](json& j) { j["boxes"][0]["byte_offset"] = UINT64_MAX - 10; }},
      {"boxes[0].blocks has 1 entries, must have 2", [](json& j) { j["boxes"][0]["blocks"].erase(0); }},
      {"boxes[0].blocks is", [](json& j) { j["boxes"][0]["blocks"][0] = 7; }},
      {"share bytes of rank-00001.h5", [](json& j) { j["boxes"][2]["byte_offset"] = 1796; }},
      {"share bytes of rank-00000.h5", [](json& j) { j["boxes"].push_back(j["boxes"][0]); }},
      {"boxes cover 200 of 400 elements", [](json& j) { j["boxes"].erase(1); }},
      {"overlap",
       [](json& j) {
         j["boxes"].push_back(j["boxes"][0]);
         j["boxes"].back()["byte_offset"] = 3000;
       }},
  };
  for (const auto& [message, change] : cases) EXPECT_THAT(fault_of(change), HasSubstr(message));
}

TEST(Manifest, KeysTwiceAndDeepNestingAreRefused) {
  const auto refused = [](const std::string& inserted, const std::string& message) {
    std::string text = to_text(example());
    std::string body = text.substr(text.find('\n') + 1);
    body.insert(body.rfind('}'), inserted);
    text = "{\"xxh3_128\":\"" + to_hex(xxh3_128(body)) + "\",\n" + body;
    EXPECT_THAT(error_of([&] { parse_manifest(text, "m"); }).what(), ::testing::HasSubstr(message));
  };
  refused(",\"step\":500", "appears twice");
  refused(",\"deep\":" + std::string(100000, '[') + std::string(100000, ']'), "nested deeper");
  refused(",", "not valid JSON: parse error at line ");
}

// Many ranks make hundreds of thousands of boxes, which all of them read.
TEST(Manifest, TimeGrowsWithTheBoxes) {
  const auto ticks = [](int boxes) {
    std::string text = "[{}";
    for (int i = 1; i < boxes; ++i) text += ",{}";
    text += "]";
    const std::clock_t begin = std::clock();
    EXPECT_EQ(parse_strict_json(text, "many").size(), static_cast<size_t>(boxes));
    return static_cast<double>(std::clock() - begin);
  };
  const double few = std::max({ticks(20'000), ticks(20'000), ticks(20'000)});
  EXPECT_LT(ticks(200'000), 40 * few);
}

TEST(Manifest, MergeSortsTensorsAndRenumbersBoxes) {
  Manifest first = example(), second = example();
  std::swap(first.tensors[0], first.tensors[1]);
  first.boxes = {{0, {{0}, {3}}, 0, 0, 24, {1}}};
  first.files = {{"rank-00000.h5", 100, {}}};
  second.boxes = {{0, {{0, 0}, {4, 100}}, 1, 0, 1600, {1, 2, 3, 4}}};
  const Manifest whole = merge({first, second});
  EXPECT_EQ(whole.tensors, example().tensors);
  EXPECT_EQ(whole.boxes[0].tensor, 1);
  EXPECT_EQ(whole.boxes[0].file, 0);
  EXPECT_EQ(whole.boxes[1].tensor, 0);
  EXPECT_EQ(whole.boxes[1].file, 2);
  second.tensors[0].shape = {4, 101};
  EXPECT_THAT(error_of([&] { merge({first, second}); }).what(), ::testing::HasSubstr("ranks disagree"));
}

}  // namespace
}  // namespace shiftron

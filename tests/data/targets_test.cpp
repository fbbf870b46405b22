// Data with targets, of ids, of prompts with completions, and packed: what is built is compared with plain definitions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "data/build.h"
#include "data/dataset_writer.h"
#include "data/generate/write_generated.h"
#include "data/loader.h"
#include "data/verify.h"
#include "expect_error.h"
#include "fixture.h"

namespace shiftron {
namespace {

using Row = std::vector<int32_t>;
constexpr int32_t kEnd = 9;  // of the ids below

struct Rows {
  Row tokens, targets;
  bool operator==(const Rows&) const = default;
};

Rows rows_in(const std::string& directory) {
  Dataset dataset(directory);
  Rows rows{all_tokens(directory), Row(static_cast<size_t>(dataset.tokens()))};
  dataset.read_targets(0, dataset.tokens(), rows.targets.data(), true);
  return rows;
}

BuildOptions ids_build(const Scratch& scratch, const std::string& lines, const std::string& name = "dataset") {
  BuildOptions options;
  options.inputs = {scratch.write(name + ".jsonl", lines)};
  options.output = scratch / name;
  options.ids = true;
  options.vocabulary = {.size = 10, .end_of_document = kEnd, .tokenizer = {}};
  return options;
}

// {"ids": …} lines of up to 6,561 short documents, all different; with targets they are labels, every third of which is
// not counted.
std::string many_lines(int count, bool targets) {
  std::string lines;
  for (int i = 0; i < count; ++i) {
    std::string ids, labels;
    for (int k = 0, rest = i; k <= 4 + i * 7 % 11; ++k, rest /= 9) {
      ids += (k > 0 ? "," : "") + std::to_string(k < 4 ? rest % 9 : (i + k * k) % 9);
      labels += (k > 0 ? "," : "") + (k % 3 == 1 ? "null" : std::to_string((i * 3 + k) % 10));
    }
    lines += "{\"ids\":[" + ids + "]" + (targets ? ",\"targets\":[" + labels + "]" : "") + "}\n";
  }
  return lines;
}

void expect_whole(const std::string& directory) {
  EXPECT_THAT(verify_dataset(directory).faults, ::testing::IsEmpty());
}

TEST(Targets, OfLinesAreThoseOfTheDataset) {
  const Scratch scratch;
  const BuildOptions options = ids_build(scratch, "{\"ids\": [1, 2, 3], \"targets\": [null, 7, 9]}\n\n{\"ids\": []}\n");
  const BuildResult built = build_dataset(options);
  EXPECT_EQ(rows_in(options.output), (Rows{{1, 2, 3, kEnd}, {-1, 7, 9, -1}}));
  EXPECT_EQ(built.datasets[0].counted_targets, 2);
  EXPECT_EQ(built.empty_documents, 1);
  EXPECT_FALSE(std::filesystem::exists(options.output + "/tokenizer.model"));
  expect_whole(options.output);
}

TEST(Targets, DoNotDependOnThreadsNorOnTheirPart) {
  const Scratch scratch;
  BuildOptions options = ids_build(scratch, many_lines(3000, true));
  options.validation_fraction = 0.2;
  options.shard_tokens = 4000;
  const BuildResult one = build_dataset(options);
  EXPECT_GT(one.datasets[0].shards, 1);
  EXPECT_NEAR(static_cast<double>(one.datasets[1].documents) / 3000, 0.2, 0.03);
  options.threads = 3;
  options.output = scratch / "by three";
  const BuildResult three = build_dataset(options);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(one.datasets[i].fingerprint, three.datasets[i].fingerprint);
    expect_whole(one.datasets[i].directory);
  }
}

TEST(Targets, OfTheHighestVocabulariesNeedWiderTokens) {
  const auto type = [](int64_t vocab, bool targets) { return ShardHeader{vocab, 0, "", "", targets}.token_type(); };
  EXPECT_EQ(type(65535, true), Hdf5Type::u16);
  EXPECT_EQ(type(65536, true), Hdf5Type::u32);
  EXPECT_EQ(type(65536, false), Hdf5Type::u16);
  for (const int32_t highest : {65534, 65535}) {
    const Scratch scratch;
    BuildOptions options =
        ids_build(scratch, "{\"ids\": [1, 2], \"targets\": [" + std::to_string(highest) + ", null]}");
    options.vocabulary.size = highest + 1;
    build_dataset(options);
    EXPECT_EQ(rows_in(options.output).targets, (Row{highest, -1, -1}));
    expect_whole(options.output);
  }
}

TEST(Targets, OfACompletionAreItsTokensAndTheEnd) {
  const Scratch scratch;
  const SentencePieceTokenizer tokenizer(example_model(), "example");
  BuildOptions options;
  options.inputs = {scratch.write("a.jsonl", R"({"prompt": "the tensor runs ", "completion": "over under"})")};
  options.tokenizer = scratch.write("tokenizer.model", example_model());
  options.output = scratch / "dataset";
  build_dataset(options);
  const Row prompt = tokenizer.encode("the tensor runs "), completion = tokenizer.encode("over under");
  Rows expected{prompt, Row(prompt.size() - 1, -1)};
  expected.tokens.insert(expected.tokens.end(), completion.begin(), completion.end());
  expected.tokens.push_back(tokenizer.end_of_document());
  expected.targets.insert(expected.targets.end(), completion.begin(), completion.end());
  expected.targets.push_back(tokenizer.end_of_document());
  expected.targets.push_back(-1);
  EXPECT_EQ(rows_in(options.output), expected);
  expect_whole(options.output);
}

// Greedy, in the order of the dataset: read back, its documents are packed again by the definition.
void expect_packed(const std::string& directory, int64_t length, const std::map<Row, Row>& targets_of) {
  const Rows rows = rows_in(directory);
  Rows expected;
  const auto fill = [&] {
    while (expected.tokens.size() % static_cast<size_t>(length) != 0) {
      expected.tokens.push_back(kEnd);
      expected.targets.push_back(-1);
    }
  };
  Row document;
  size_t documents = 0;
  for (const int32_t token : rows.tokens) {
    document.push_back(token);
    if (token != kEnd) continue;
    if (document.size() > 1) {
      ++documents;
      const size_t room = static_cast<size_t>(length) - expected.tokens.size() % static_cast<size_t>(length);
      if (document.size() > room) fill();
      const Row& targets = targets_of.at(document);
      expected.tokens.insert(expected.tokens.end(), document.begin(), document.end());
      expected.targets.insert(expected.targets.end(), targets.begin(), targets.end());
    }
    document.clear();
  }
  fill();
  EXPECT_EQ(rows, expected);
  EXPECT_EQ(static_cast<int64_t>(documents), Dataset(directory).description().documents());
}

TEST(Pack, LetsNoDocumentStraddleAWindow) {
  const Scratch scratch;
  std::map<Row, Row> targets_of;
  std::string lines;
  for (int i = 0; i < 400; ++i) {
    Row ids = {i % 9, i / 9 % 9, i / 81}, targets;
    for (int k = 0; k < i % 8; ++k) ids.push_back(k);
    lines += "{\"ids\": [";
    for (size_t k = 0; k < ids.size(); ++k) lines += (k > 0 ? "," : "") + std::to_string(ids[k]);
    lines += "]}\n";
    ids.push_back(kEnd);
    targets.assign(ids.begin() + 1, ids.end());
    targets.push_back(-1);
    targets_of[ids] = targets;
  }
  BuildOptions options = ids_build(scratch, lines);
  options.pack = 11;  // the longest document and its end fill a window
  options.shard_tokens = 500;
  EXPECT_GT(build_dataset(options).datasets[0].shards, 2);
  expect_packed(options.output, options.pack, targets_of);
  expect_whole(options.output);
  EXPECT_ERROR(Loader({{.directory = options.output}}, 12, 0, true, true), ExitCode::bad_input,
               options.output +
                   " is packed into windows of 11 tokens, but train.sequence_length is 12; set "
                   "train.sequence_length=11, or build it with --pack 12");
  const Loader loader({{.directory = options.output}}, 11, 0, true, true);
  EXPECT_EQ(loader.windows() * 11, loader.tokens());
  EXPECT_EQ(loader.dropped_tokens(), 0);

  options.pack = 10;
  options.output = scratch / "shorter";
  EXPECT_ERROR(
      build_dataset(options), ExitCode::bad_input,
      "dataset.jsonl:8: a document of 10 tokens and its end do not fit into a window of --pack 10; shorten it, or "
      "give --pack 11 or more");
}

// Verify counts windows from the first shard on.
TEST(Pack, AStraddlingDocumentIsAFault) {
  const Scratch scratch;
  const BuildOptions options = ids_build(scratch, many_lines(50, true));
  build_dataset(options);
  std::string text = Scratch::read(options.output + "/dataset.json");
  text.replace(text.find("\"targets\": true"), 15, "\"targets\": true, \"pack\": 12");
  scratch.write("dataset/dataset.json", text);
  EXPECT_THAT(verify_dataset(options.output).faults,
              ::testing::Contains(::testing::HasSubstr("crosses the boundary of a window of 12 tokens")));
}

TEST(Targets, DecideAloneInTheLoader) {
  const Scratch scratch;
  const BuildOptions labels = ids_build(scratch, many_lines(60, true), "labels");
  const BuildOptions plain = ids_build(scratch, many_lines(40, false), "plain");
  build_dataset(labels);
  build_dataset(plain);
  const Rows rows = rows_in(labels.output);
  const Row next = all_tokens(plain.output);
  constexpr int64_t kLength = 6;
  for (const bool reset : {false, true}) {
    Loader loader({{.directory = labels.output}, {.directory = plain.output}}, kLength, 0, reset, false);
    const auto tokens = static_cast<int64_t>(rows.tokens.size());
    EXPECT_EQ(loader.windows_of_sources(),
              (std::vector<int64_t>{tokens / kLength, (static_cast<int64_t>(next.size()) - 1) / kLength}));
    for (int64_t window = 0; window < loader.windows(); ++window) {
      Row ids(kLength), targets(kLength);
      std::vector<uint8_t> starts(kLength);
      loader.read(window, 1, ids.data(), targets.data(), starts.data());
      const bool labelled = window < tokens / kLength;
      const Row& source = labelled ? rows.tokens : next;
      for (int64_t i = 0; i < kLength; ++i) {
        const auto at = static_cast<size_t>((labelled ? window : window - tokens / kLength) * kLength + i);
        ASSERT_EQ(ids[i], source[at]) << window;
        ASSERT_EQ(starts[i], at == 0 || source[at - 1] == kEnd) << window;
        const int32_t following = labelled ? 0 : reset && source[at] == kEnd ? -1 : next[at + 1];
        ASSERT_EQ(targets[i], labelled ? rows.targets[at] : following) << window << " " << reset;
      }
    }
  }
}

TEST(Targets, DamageIsFound) {
  const Scratch scratch;
  const BuildOptions options = ids_build(scratch, many_lines(50, true));
  build_dataset(options);
  const ShardRecord record = Dataset(options.output).description().shards[0];
  const auto broken = [&](uint64_t offset, const std::string& reason) {
    const std::string path = options.output + "/shard-00000.h5", good = Scratch::read(path);
    std::string bad = good;
    bad[offset] = static_cast<char>(bad[offset] ^ 1);
    scratch.write("dataset/shard-00000.h5", bad);
    EXPECT_ERROR(all_tokens(options.output), ExitCode::bad_input, reason);
    EXPECT_THAT(verify_dataset(options.output).faults, ::testing::Contains(::testing::HasSubstr(reason)));
    scratch.write("dataset/shard-00000.h5", good);
  };
  broken(record.targets_offset + 8, "block 0 of /targets");
  broken(record.targets_block_hash_offset, "its /targets_block_hash does not match dataset.json");
  expect_whole(options.output);
}

TEST(Ids, BadLinesAreNamed) {
  const Scratch scratch;
  const std::string good = "{\"ids\": [1]}\n", counted = "{\"ids\": [1], \"targets\": [2]}\n";
  const auto expect_fault = [&](const std::string& lines, const std::string& reason) {
    EXPECT_ERROR(build_dataset(ids_build(scratch, lines)), ExitCode::bad_input, reason);
    EXPECT_FALSE(std::filesystem::exists(scratch / "dataset/dataset.json"));
  };
  expect_fault(good + "{\"ids\": [1, 10]}", "dataset.jsonl:2: id 10 at position 1 is not within the vocabulary of 10");
  expect_fault(good + "{\"ids\": [-1]}", "dataset.jsonl:2: \"ids\" at position 0 is -1, not a whole number from 0");
  expect_fault("{\"ids\": [1, 2.5]}", "dataset.jsonl:1: \"ids\" at position 1 is 2.5, not a whole number from 0");
  expect_fault("{\"ids\": [null]}", "\"ids\" at position 0 is null, not a whole number from 0");
  expect_fault("{\"ids\": 3}", "the value of \"ids\" is a number, not a list of whole numbers");
  expect_fault("{\"ids\": [1, 9]}", "id 9 at position 1 is the end-of-document token");
  expect_fault("{\"ids\": [1, 2], \"targets\": [2]}",
               "dataset.jsonl:1: 1 targets for 2 ids; give one target for each id");
  expect_fault("{\"ids\": [1], \"targets\": [10]}", "target 10 at position 0 is not within the vocabulary of 10");
  expect_fault("{\"ids\": [1], \"targets\": [-1]}",
               "\"targets\" at position 0 is -1, not a whole number from 0 or null");
  expect_fault(good + counted, "dataset.jsonl:2: has targets, but " + (scratch / "dataset.jsonl") + ":1 has none");
  expect_fault(counted + good, "dataset.jsonl:2: has no targets, but " + (scratch / "dataset.jsonl") + ":1 has them");
  expect_fault("{\"ids\": [1], \"targets\": [null]}", "none of the 2 targets of the dataset is counted");
  expect_fault("{\"text\": \"a\"}", "dataset.jsonl:1: no key \"ids\"");
  expect_fault("[1]", "dataset.jsonl:1: a JSON array, not an object");
  expect_fault("\n", "no document with ids in");
  BuildOptions outside = ids_build(scratch, good);
  outside.vocabulary.end_of_document = 10;
  EXPECT_ERROR(build_dataset(outside), ExitCode::bad_input,
               "the end-of-document token 10 is not within the vocabulary");
}

TEST(Completions, DoNotMixWithText) {
  const Scratch scratch;
  BuildOptions options;
  options.tokenizer = scratch.write("tokenizer.model", example_model());
  options.output = scratch / "dataset";
  const std::string pair = R"({"prompt": "a", "completion": "b"})", text = R"({"text": "c"})";
  const auto expect_fault = [&](const std::string& lines, const std::string& reason) {
    options.inputs = {scratch.write("a.jsonl", lines)};
    EXPECT_ERROR(build_dataset(options), ExitCode::bad_input, reason);
  };
  expect_fault(pair + "\n" + text,
               "a.jsonl:2: holds text, but " + (scratch / "a.jsonl") + ":1 holds a prompt and a completion");
  expect_fault(text + "\n" + pair, "a.jsonl:2: holds a prompt and a completion");
  expect_fault(R"({"prompt": "a", "completion": "b", "text": "c"})",
               "has both \"text\" and \"prompt\" with \"completion\"");
  expect_fault(R"({"prompt": "a"})", "has \"prompt\" but not \"completion\"");
  expect_fault(R"({"prompt": "a", "completion": 3})", "the value of \"completion\" is a number, not a string");
}

TEST(Sources, WithAndWithoutATokenizerAreNotMixed) {
  const Scratch scratch;
  const BuildOptions text = example_build(scratch, example_documents(20), "text");
  build_dataset(text);
  BuildOptions ids = ids_build(scratch, "{\"ids\": [3, 4, 5, 6, 7, 8, 3, 4, 5]}\n", "ids");  // 1 ends the texts
  build_dataset(ids);
  EXPECT_ERROR(Loader({{.directory = text.output}, {.directory = ids.output}}, 8, 0, true, true), ExitCode::bad_input,
               "data source " + ids.output + " has no tokenizer, but " + text.output + " has one");
  ids.tokenizer = text.tokenizer;  // the ids are its tokens
  ids.output = scratch / "ids of the tokenizer";
  build_dataset(ids);
  expect_whole(ids.output);
  EXPECT_EQ(Loader({{.directory = text.output}, {.directory = ids.output}}, 8, 0, true, true).vocab_size(), 330);
  BuildOptions wider = ids_build(scratch, many_lines(40, false), "wider");
  wider.vocabulary.size = 11;
  build_dataset(wider);
  EXPECT_ERROR(Loader({{.directory = scratch / "ids"}, {.directory = wider.output}}, 8, 0, true, true),
               ExitCode::bad_input, "build both with the same --vocab and --end-of-document");
}

class Counting : public DocumentGenerator {
 public:
  int32_t vocabulary() const override { return 10; }
  int32_t longest_document() const override { return 3; }
  GeneratedDocument document(uint64_t number) const override {
    return {.ids = {static_cast<int32_t>(1 + number % 9), static_cast<int32_t>(1 + number / 9 % 9)},
            .targets = {kNotCounted, static_cast<int32_t>(number % 10)}};
  }
  std::string token_name(int32_t id) const override { return std::to_string(id); }
};

TEST(WrittenDocuments, KeepTheirOrder) {
  const Scratch scratch;
  Rows expected;
  for (int32_t number = 0; number < 1000; ++number) {
    expected.tokens.insert(expected.tokens.end(), {1 + number % 9, 1 + number / 9 % 9, kEndOfGenerated});
    expected.targets.insert(expected.targets.end(), {-1, number % 10, -1});
  }
  std::string fingerprint;
  for (const int threads : {1, 3}) {
    DatasetOutput options;
    options.output = scratch / std::to_string(threads);
    options.threads = threads;
    const auto built = write_generated(Counting(), {options, 10, 1000, 0, "request", "counted"}, {});
    EXPECT_EQ(rows_in(options.output), expected);
    EXPECT_EQ(built[0].counted_targets, 1000);
    if (threads > 1) {
      EXPECT_EQ(built[0].fingerprint, fingerprint);
    }
    fingerprint = built[0].fingerprint;
  }
}

}  // namespace
}  // namespace shiftron

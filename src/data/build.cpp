// Two passes: text → tokens in buckets, buckets → shards. dataset.json is written last; without it there is no dataset.
#include "data/build.h"

#include <algorithm>
#include <filesystem>
#include <ios>
#include <memory>
#include <sstream>
#include <utility>

#include "core/check.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/ordered_work.h"
#include "core/progress.h"
#include "data/buckets.h"
#include "data/build_directory.h"
#include "data/dataset.h"
#include "data/documents.h"
#include "data/known_words.h"
#include "data/tokenizer.h"
#include "data/utf8.h"

namespace shiftron {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kTextOfThread = uint64_t{4} << 20;  // of documents that wait for it
constexpr uint64_t kBatch = uint64_t{64} << 10;        // bytes of documents that a thread takes at once, about
constexpr uint64_t kBucketText = uint64_t{64} << 20;   // text that fills a bucket, about
constexpr size_t kMostBuckets = 100;                   // two open files each, twice with validation
constexpr uint64_t kValidationSeed = 0x76616C6964;     // of the hash that splits; not the order's

struct ShardPlan {
  int64_t tokens = 0;
  int64_t documents = 0;
};

// Whole documents, in order, up to `shard_tokens` each; a longer document has a shard of its own. Throws
// Error(bad_input) where they are more than `most`.
std::vector<ShardPlan> plan_shards(const DocumentBuckets& buckets, int64_t shard_tokens, size_t most) {
  std::vector<ShardPlan> plan;
  for (size_t bucket = 0; bucket < buckets.buckets(); ++bucket) {
    for (const DocumentBuckets::Document& document : buckets.sorted(bucket)) {
      if (plan.empty() || plan.back().tokens + document.tokens > shard_tokens) {
        if (plan.size() == most) {
          // Any two neighbours hold more than shard_tokens.
          const int64_t enough = 2 * buckets.tokens() / static_cast<int64_t>(most - 1) + 1;
          throw_bad_input("--shard-tokens ", shard_tokens, " makes more than the ", most, " shards that ",
                          kDescriptionFile, " can hold; give --shard-tokens ", enough, " or more");
        }
        plan.emplace_back();
      }
      plan.back().tokens += document.tokens;
      ++plan.back().documents;
    }
  }
  return plan;
}

std::vector<ShardRecord> write_shards(const DocumentBuckets& buckets, const ShardHeader& header,
                                      const std::vector<ShardPlan>& plan, const std::string& directory,
                                      Progress& progress) {
  std::vector<ShardRecord> records;
  std::unique_ptr<ShardWriter> writer;
  int64_t documents_left = 0;
  for (size_t bucket = 0; bucket < buckets.buckets(); ++bucket) {
    const std::vector<int32_t> tokens = buckets.tokens_of(bucket);
    for (const DocumentBuckets::Document& document : buckets.sorted(bucket)) {
      if (writer == nullptr) {
        const ShardPlan& next = plan[records.size()];
        documents_left = next.documents;
        writer = std::make_unique<ShardWriter>(directory + "/" + shard_name(records.size()), header, next.tokens,
                                               next.documents);
      }
      writer->append(tokens.data() + document.first, document.tokens, document.text_bytes);
      progress.advance(static_cast<uint64_t>(document.tokens));
      if (--documents_left == 0) {
        records.push_back(writer->finish());
        writer.reset();
      }
    }
  }
  return records;
}

bool is_validation(std::string_view text, double fraction) {
  return static_cast<double>(xxh3_64(text, kValidationSeed) >> 11) * 0x1p-53 < fraction;
}

void check_options(const BuildOptions& options) {
  if (options.output.empty()) throw_bad_input("no output directory; name it with --output");
  if (options.shard_tokens < 1) throw_bad_input("shard tokens ", options.shard_tokens, ": must be at least 1");
  if (!(options.validation_fraction >= 0 && options.validation_fraction < 1)) {
    throw_bad_input("validation fraction ", options.validation_fraction, ": must be at least 0 and below 1");
  }
}

std::string names_of_inputs(const std::vector<std::string>& inputs) {
  constexpr size_t kMostNames = 20;
  std::string names;
  for (size_t i = 0; i < std::min(inputs.size(), kMostNames); ++i) {
    if (i > 0) names += ' ';
    names += printable(fs::path(inputs[i]).filename().string());
  }
  if (inputs.size() > kMostNames) names += " and " + std::to_string(inputs.size() - kMostNames) + " more";
  return names;
}

DocumentFormat format_of(const BuildOptions& options) {
  return {options.document_separator, options.text_key};
}

// On its way from the text to a bucket.
struct Document {
  std::string text;
  uint64_t before = 0;  // bytes of text read before it, about
  std::vector<int32_t> tokens = {};
  uint64_t foreign_bytes = 0;
  bool is_validation = false;
};

// Documents that one thread tokenizes: handing over a short one by itself takes longer than its tokens.
struct Batch {
  std::vector<Document> documents = {};
  uint64_t bytes = 0;  // that they hold
  uint64_t before() const { return documents.front().before; }
};

// First pass.
void tokenize(const BuildOptions& options, const Tokenizer& tokenizer, std::vector<DocumentBuckets>& buckets,
              BuildResult& result, const Progress::Output& output) {
  const uint64_t all = total_bytes(result.inputs);
  Progress progress("tokenizing", all, "bytes", output);
  uint64_t number = 0, shown = 0;
  const auto tell = [&](uint64_t bytes) { progress.update(shown = std::clamp(bytes, shown, all)); };
  const auto encode = [&](Document& document, const auto& tell_bytes, KnownWords& known) {
    document.foreign_bytes = count_foreign_bytes(document.text);
    document.tokens = tokenizer.encode(document.text, tell_bytes, &known);
    document.tokens.push_back(tokenizer.end_of_document());
    document.is_validation =
        options.validation_fraction > 0 && is_validation(document.text, options.validation_fraction);
  };
  const auto take = [&](Document& document) {
    ++number;
    tell(document.before + document.text.size());
    if (document.text.empty()) {
      ++result.empty_documents;
      return;
    }
    result.foreign_bytes += document.foreign_bytes;
    buckets[document.is_validation ? 1 : 0].add(xxh3_64(&number, sizeof number, options.seed), document.tokens,
                                                static_cast<int64_t>(document.text.size()));
  };
  OrderedWork<Batch> work(options.threads, static_cast<uint64_t>(std::max(1, options.threads)) * kTextOfThread,
                          {.work =
                               [&, known = KnownWords()](Batch& batch, const auto& tell_bytes) mutable {
                                 size_t before = 0;
                                 for (Document& document : batch.documents) {
                                   encode(
                                       document, [&](size_t done) { tell_bytes(before + done); }, known);
                                   before += document.text.size();
                                 }
                               },
                           .take = [&](Batch& batch) { std::ranges::for_each(batch.documents, take); },
                           .told = [&](const Batch& batch, size_t done) { tell(batch.before() + done); }});
  Batch batch;
  const auto hand_over = [&] {
    const uint64_t bytes = batch.bytes;
    if (!batch.documents.empty()) work.add(std::exchange(batch, {}), bytes);
  };
  read_documents(result.inputs, format_of(options), [&](std::string_view text, uint64_t bytes_read) {
    const uint64_t before = bytes_read - std::min<uint64_t>(bytes_read, text.size());
    batch.documents.push_back({.text = std::string(text), .before = before});
    batch.bytes += sizeof(Document) + text.size();
    if (batch.bytes >= kBatch) hand_over();
  });
  hand_over();
  work.finish();
  for (DocumentBuckets& part : buckets) part.finish();
}

void check_parts(const std::vector<DocumentBuckets>& buckets, const BuildOptions& options,
                 const std::vector<InputFile>& inputs) {
  int64_t documents = 0;
  for (const DocumentBuckets& part : buckets) documents += part.documents();
  if (documents == 0) {
    throw_bad_input("no document with text in ",
                    options.inputs.size() == 1 ? printable(options.inputs[0]) : names_of_inputs(options.inputs));
  }
  for (size_t i = 0; i < buckets.size(); ++i) {
    if (buckets[i].documents() == 0) {
      throw_bad_input(
          "of ", documents, " documents none falls to the ", i == 0 ? "training" : "validation",
          " part at --validation-fraction ", options.validation_fraction, "; change it",
          has_kind(inputs, InputKind::text) ? ", or say where documents end with --document-separator" : "");
    }
  }
}

// The same for equal inputs and options; files are known by name, size and time of change.
std::string request_of(const BuildOptions& options, const Tokenizer& tokenizer) {
  std::string words = detail::concatenate(tokenizer.hash(), '\0', options.document_separator, '\0', options.text_key,
                                          '\0', options.shard_tokens, ' ', options.seed, ' ', std::hexfloat,
                                          options.validation_fraction, '\0');
  for (const std::string& input : options.inputs) words += state_of_files(input);
  return to_hex(xxh3_128(words));
}

std::string note_of(const BuildResult& result) {
  return std::to_string(result.empty_documents) + " " + std::to_string(result.foreign_bytes);
}

// What a killed build made, and found whole.
void take_existing(const BuildDirectory& directory, const std::vector<std::string>& parts, BuildResult& result) {
  result.was_there = true;
  for (const std::string& part : parts) {
    const Dataset dataset(directory.target(part));
    dataset.require_shards();
    const DatasetDescription& description = dataset.description();
    result.datasets.push_back({dataset.directory(), description.documents(), description.tokens(),
                               description.text_bytes, static_cast<int64_t>(description.shards.size()),
                               dataset.fingerprint()});
  }
  std::istringstream(directory.note()) >> result.empty_documents >> result.foreign_bytes;
}

}  // namespace

BuildResult build_dataset(const BuildOptions& options, const Progress::Output& output,
                          const std::function<void(const BuildResult&)>& tell) {
  check_options(options);
  BuildResult result;
  result.inputs = recognise_inputs(options.inputs);
  check_format(result.inputs, format_of(options));
  const Tokenizer tokenizer = Tokenizer::load(options.tokenizer);
  const bool split = options.validation_fraction > 0;
  const std::vector<std::string> parts =
      split ? std::vector<std::string>{"train", "validation"} : std::vector<std::string>{""};
  BuildDirectory directory(options.output, parts, request_of(options, tokenizer));
  if (directory.is_there()) {
    take_existing(directory, parts, result);
    if (tell) tell(result);
    directory.commit();
    return result;
  }
  const size_t count = std::clamp<size_t>(total_bytes(result.inputs) / kBucketText + 1, 1, kMostBuckets);
  std::vector<std::string> texts;
  {
    std::vector<DocumentBuckets> buckets;
    for (const std::string& part : parts) buckets.emplace_back(directory.work(part), count);
    tokenize(options, tokenizer, buckets, result, output);
    check_parts(buckets, options, result.inputs);

    uint64_t all_tokens = 0;
    for (const DocumentBuckets& part : buckets) all_tokens += static_cast<uint64_t>(part.tokens());
    Progress progress("writing shards", all_tokens, "tokens", output);
    const ShardHeader header{tokenizer.vocab_size(), tokenizer.end_of_document(), tokenizer.hash(),
                             names_of_inputs(options.inputs)};
    std::vector<std::vector<ShardPlan>> plans;
    for (const DocumentBuckets& part : buckets) {
      plans.push_back(plan_shards(part, options.shard_tokens, most_described_shards(header)));
    }
    for (size_t i = 0; i < parts.size(); ++i) {
      DatasetDescription description{header, buckets[i].text_bytes(), {}};
      description.shards = write_shards(buckets[i], header, plans[i], directory.work(parts[i]), progress);
      texts.push_back(description.to_text());
      result.datasets.push_back({directory.target(parts[i]), description.documents(), description.tokens(),
                                 description.text_bytes, static_cast<int64_t>(description.shards.size()),
                                 to_hex(xxh3_128(texts.back()))});
    }
  }
  directory.remove_buckets();
  for (size_t i = 0; i < parts.size(); ++i) {
    write_file_durably(directory.work(parts[i]) + "/" + kTokenizerFile, tokenizer.model_bytes());
    for (int64_t shard = 0; shard < result.datasets[i].shards; ++shard) {
      directory.publish(parts[i], shard_name(static_cast<size_t>(shard)));
    }
    directory.publish(parts[i], kTokenizerFile);
  }
  directory.publish_descriptions(texts, note_of(result));
  if (tell) tell(result);
  directory.commit();
  return result;
}

}  // namespace shiftron

// Two passes: documents → buckets, buckets → shards. dataset.json is written last; without it there is no dataset.
#include "data/dataset_writer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/check.h"
#include "core/file.h"
#include "core/hash.h"
#include "data/buckets.h"
#include "data/build_directory.h"
#include "data/dataset.h"
#include "data/duplicates.h"
#include "data/shard_sealing.h"

namespace shiftron {
namespace {

constexpr uint64_t kBucketInput = uint64_t{64} << 20;  // bytes of the input that fill a bucket, approximately
constexpr size_t kMostBuckets = 100;                   // two open files each, twice with validation
constexpr uint64_t kValidationSeed = 0x76616C6964;     // of the hash that splits; not the seed of the order

struct ShardPlan {
  int64_t tokens = 0;
  int64_t documents = 0;
};

// End tokens that fill a window before a document of so many tokens, if all documents before it end at `position`. None
// without packing.
int64_t filling(int64_t position, int64_t tokens, int64_t pack) {
  const int64_t room = pack > 0 ? (pack - position % pack) % pack : 0;
  return room < tokens ? room : 0;
}

// Whole documents, in order, up to `shard_tokens` each; a longer document gets a shard of its own. Tokens that fill a
// window count with the document before. Throws Error(bad_input) for more than `most` shards.
std::vector<ShardPlan> plan_shards(const DocumentBuckets& buckets, int64_t shard_tokens, int64_t pack, size_t most) {
  std::vector<ShardPlan> plan;
  int64_t position = 0;
  const auto fill = [&](int64_t count) {
    if (count > 0) plan.back().tokens += count;
    position += count;
  };
  for (size_t bucket = 0; bucket < buckets.buckets(); ++bucket) {
    for (const DocumentBuckets::Document& document : buckets.sorted(bucket)) {
      fill(filling(position, document.tokens, pack));
      if (plan.empty() || plan.back().tokens + document.tokens > shard_tokens) {
        if (plan.size() == most) {
          // Any two consecutive shards together hold more than shard_tokens.
          const int64_t enough = 2 * buckets.tokens() / static_cast<int64_t>(most - 1) + 1;
          refuse_shards(shard_tokens, most, std::to_string(enough) + " or more");
        }
        plan.emplace_back();
      }
      plan.back().tokens += document.tokens;
      ++plan.back().documents;
      position += document.tokens;
    }
  }
  fill(filling(position, pack + 1, pack));  // the last window
  return plan;
}

std::vector<ShardRecord> write_shards(const DocumentBuckets& buckets, const ShardHeader& header,
                                      const std::vector<ShardPlan>& plan, const std::string& directory,
                                      Progress& progress) {
  ShardSealing shards;
  std::unique_ptr<ShardWriter> writer;
  std::string path;
  ShardPlan left;  // of the shard being written
  int64_t position = 0;
  const auto fill = [&](int64_t count) {
    writer->fill(count);
    left.tokens -= count;
    position += count;
  };
  for (size_t bucket = 0; bucket < buckets.buckets(); ++bucket) {
    const std::vector<int32_t> values = buckets.tokens_of(bucket);
    for (const DocumentBuckets::Document& document : buckets.sorted(bucket)) {
      if (writer == nullptr) {
        left = plan[shards.shards()];
        path = directory + "/" + shard_name(shards.shards());
        writer = std::make_unique<ShardWriter>(path, header, left.tokens, left.documents);
      } else {
        fill(filling(position, document.tokens, header.pack));
      }
      const int32_t* tokens = values.data() + document.first;
      writer->append(tokens, document.tokens, document.text_bytes,
                     header.has_targets ? tokens + document.tokens : nullptr);
      left.tokens -= document.tokens;
      position += document.tokens;
      progress.advance(static_cast<uint64_t>(document.tokens));
      if (--left.documents == 0) {
        fill(left.tokens);
        shards.add(path, writer->close());
        writer.reset();
      }
    }
  }
  return shards.finish();
}

void check_options(const DatasetOutput& options, const TokenVocabulary& vocabulary) {
  if (options.output.empty()) throw_bad_input("no output directory; name it with --output");
  if (options.shard_tokens < 1) throw_bad_input("shard tokens ", options.shard_tokens, ": must be at least 1");
  if (!(options.validation_fraction >= 0 && options.validation_fraction < 1)) {
    throw_bad_input("validation fraction ", options.validation_fraction, ": must be at least 0 and below 1");
  }
  if (options.pack < 0 || options.pack == 1) {
    throw_bad_input("--pack ", options.pack, ": must be at least 2 (a token and the end), or 0 for no packing");
  }
  if (vocabulary.size < 1 || vocabulary.size > INT32_MAX) {
    throw_bad_input("a vocabulary of ", vocabulary.size, " tokens: must be 1 to ", INT32_MAX);
  }
  if (vocabulary.end_of_document < 0 || vocabulary.end_of_document >= vocabulary.size) {
    throw_bad_input("the end-of-document token ", vocabulary.end_of_document, " is not within the vocabulary of ",
                    vocabulary.size, "; give one of 0 to ", vocabulary.size - 1, ", or a larger vocabulary");
  }
  if (vocabulary.tokenizer.settings.beginning_of_document == vocabulary.end_of_document) {
    throw_bad_input("token ", vocabulary.end_of_document, " of the tokenizer both ends and begins a document, but it ",
                    "stands between documents already; give --beginning-of-document none");
  }
}

}  // namespace

struct DatasetWriter::Implementation {
  DatasetOutput options;
  TokenVocabulary vocabulary;
  std::string source;
  int64_t ordered_documents;
  std::vector<std::string> parts;
  BuildDirectory directory;
  std::vector<DocumentBuckets> buckets;  // of each part
  std::optional<DuplicateFinder> duplicates;
  uint64_t number = 0;  // documents added
  std::string first;    // where the first one came from
  bool has_targets = false;
  std::optional<DatasetDescription> written;  // of shards that write_in_order() wrote

  Implementation(const DatasetOutput& given, const TokenVocabulary& tokens, const std::string& request,
                 std::string from, int64_t ordered)
      : options(given),
        vocabulary(tokens),
        source(std::move(from)),
        ordered_documents(ordered),
        parts(given.validation_fraction > 0 || given.has_validation ? std::vector<std::string>{"train", "validation"}
                                                                    : std::vector<std::string>{""}),
        directory(given.output, parts, request) {}

  // Of the document that is being added.
  uint64_t key() const {
    if (ordered_documents == 0) return xxh3_64(&number, sizeof number, options.seed);
    return static_cast<uint64_t>((static_cast<unsigned __int128>(number - 1) << 64) /
                                 static_cast<uint64_t>(ordered_documents));
  }
  ShardHeader header() const {
    ShardHeader header{.vocab_size = vocabulary.size,
                       .end_of_document = vocabulary.end_of_document,
                       .tokenizer_hash = {},
                       .source = source,
                       .has_targets = has_targets,
                       .pack = options.pack};
    if (const StoredTokenizer& tokenizer = vocabulary.tokenizer; tokenizer.is_there()) {
      header.tokenizer_hash = to_hex(xxh3_128(tokenizer.file.bytes));
      header.tokenizer_file = tokenizer.file.name;
      header.tokenizer_settings = tokenizer.settings;
    }
    return header;
  }
  std::vector<BuiltDataset> existing() const;
  void check_parts(const Words& words) const;
  DatasetDescription description_of(size_t part, const std::vector<ShardPlan>& plan, Progress& progress) const;
  std::vector<std::string> write(std::vector<BuiltDataset>& built, const Progress::Output& output);
};

DatasetWriter::DatasetWriter(const DatasetOutput& options, const TokenVocabulary& vocabulary,
                             const std::string& request, const std::string& source, uint64_t input_bytes,
                             int64_t ordered_documents) {
  check_options(options, vocabulary);
  implementation_ = std::make_unique<Implementation>(options, vocabulary, request, source, ordered_documents);
  if (was_there()) return;
  const size_t count = std::clamp<size_t>(input_bytes / kBucketInput + 1, 1, kMostBuckets);
  for (const std::string& part : implementation_->parts) {
    implementation_->buckets.emplace_back(implementation_->directory.work(part), count);
  }
  if (options.deduplicate) {
    implementation_->duplicates.emplace(implementation_->directory.work(implementation_->parts[0]), count);
  }
}

DatasetWriter::~DatasetWriter() = default;

bool DatasetWriter::was_there() const {
  return implementation_->directory.is_there();
}
const std::string& DatasetWriter::note() const {
  return implementation_->directory.note();
}

bool DatasetWriter::is_validation(const void* content, size_t bytes) const {
  const double fraction = implementation_->options.validation_fraction;
  return fraction > 0 && static_cast<double>(xxh3_64(content, bytes, kValidationSeed) >> 11) * 0x1p-53 < fraction;
}

namespace {

bool is_within(const TokenVocabulary& vocabulary, int32_t token) {
  return token >= 0 && token < vocabulary.size;
}

}  // namespace

TokenVocabulary vocabulary_of(const Tokenizer& tokenizer) {
  return {tokenizer.vocab_size(), tokenizer.end_of_document(), stored_form(tokenizer)};
}

void refuse_foreign_ids(const std::vector<int32_t>& ids, const TokenVocabulary& vocabulary, const std::string& where) {
  const std::string place = where.empty() ? "" : where + ": ";
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!is_within(vocabulary, ids[i])) {
      throw_bad_input(place, "id ", ids[i], " at position ", i, " is not within the vocabulary of ", vocabulary.size,
                      "; ids are 0 to ", vocabulary.size - 1);
    }
    if (ids[i] == vocabulary.end_of_document) {
      throw_bad_input(place, "id ", ids[i], " at position ", i,
                      " is the end-of-document token, which is added at the end of each document; leave it out");
    }
  }
}

void DatasetWriter::close(TokenDocument& document) const {
  const TokenVocabulary& vocabulary = implementation_->vocabulary;
  const int64_t pack = implementation_->options.pack;
  const std::string place = document.where.empty() ? "" : document.where + ": ";
  std::vector<int32_t>&ids = document.ids, &targets = document.targets;
  if (ids.empty()) throw_bad_input(place, "the document has no tokens");
  refuse_foreign_ids(ids, vocabulary, document.where);
  for (size_t i = 0; i < targets.size(); ++i) {
    if (targets[i] == kNotCounted || is_within(vocabulary, targets[i])) continue;
    throw_bad_input(place, "target ", targets[i], " at position ", i, " is not within the vocabulary of ",
                    vocabulary.size);
  }
  if (!targets.empty() && targets.size() != ids.size()) {
    throw_bad_input(place, targets.size(), " targets for ", ids.size(), " ids; give one target for each id");
  }
  if (document.beginning >= 0 && ids.front() != document.beginning) {
    ids.insert(ids.begin(), document.beginning);
    if (!targets.empty()) targets.insert(targets.begin(), kNotCounted);
  }
  if (pack > 0 && static_cast<int64_t>(ids.size()) + 1 > pack) {
    throw_bad_input(place, "a document of ", ids.size(), " tokens and its end do not fit into a window of --pack ",
                    pack, "; shorten it, or give --pack ", ids.size() + 1, " or more");
  }
  ids.push_back(vocabulary.end_of_document);
  if (targets.empty() && pack > 0) targets.assign(ids.begin() + 1, ids.end());
  if (!targets.empty()) targets.push_back(kNotCounted);
}

void DatasetWriter::add(const TokenDocument& document) {
  Implementation& self = *implementation_;
  const bool has_targets = !document.targets.empty();
  ++self.number;
  if (self.first.empty()) {
    self.has_targets = has_targets;
    self.first = document.where.empty() ? "the first document" : document.where;
  }
  if (has_targets != self.has_targets) {
    throw_bad_input(document.where, has_targets ? ": has targets, but " : ": has no targets, but ", self.first,
                    has_targets ? " has none" : " has them",
                    "; give them in all documents or in none, or build two datasets (data.train takes several)");
  }
  const uint32_t part = document.is_validation ? 1 : 0;
  const DocumentBuckets::Place place =
      self.buckets[part].add(self.key(), document.ids, document.text_bytes, document.targets);
  if (self.duplicates) {
    self.duplicates->add(document.content, {self.number, part, static_cast<uint32_t>(place.bucket), place.first});
  }
}

int64_t DatasetWriter::remove_duplicates() {
  Implementation& self = *implementation_;
  if (!self.duplicates) return 0;
  const int64_t removed = self.duplicates->find([&](const DuplicateFinder::Document& document) {
    self.buckets[document.part].leave_out({document.bucket, document.first});
  });
  self.duplicates.reset();
  for (DocumentBuckets& part : self.buckets) {
    part.finish();
    part.finish_leaving_out();
  }
  return removed;
}

// What a killed build finished; checks that it is complete.
std::vector<BuiltDataset> DatasetWriter::Implementation::existing() const {
  std::vector<BuiltDataset> built;
  for (const std::string& part : parts) {
    const Dataset dataset(directory.target(part));
    dataset.require_shards();
    const DatasetDescription& description = dataset.description();
    built.push_back({dataset.directory(), description.documents(), description.tokens(), description.counted_targets(),
                     dataset.has_targets(), description.text_bytes, static_cast<int64_t>(description.shards.size()),
                     dataset.fingerprint()});
  }
  return built;
}

void DatasetWriter::Implementation::check_parts(const Words& words) const {
  int64_t documents = written ? written->documents() : 0;
  for (const DocumentBuckets& part : buckets) documents += part.documents();
  if (documents == 0) throw_bad_input(words.nothing);
  for (size_t i = 0; i < buckets.size(); ++i) {
    if (written || buckets[i].documents() > 0) continue;
    if (options.has_validation) {
      throw_bad_input("none of the ", documents, " documents is in the ", i == 0 ? "training" : "validation", " part",
                      words.nothing_in);
    }
    throw_bad_input("none of the ", documents, " documents falls into the ", i == 0 ? "training" : "validation",
                    " part at --validation-fraction ", options.validation_fraction, "; change it", words.too_few);
  }
}

DatasetDescription DatasetWriter::Implementation::description_of(size_t part, const std::vector<ShardPlan>& plan,
                                                                 Progress& progress) const {
  DatasetDescription description{header(), buckets[part].text_bytes(), {}};
  description.shards = write_shards(buckets[part], description.header, plan, directory.work(parts[part]), progress);
  return description;
}

// Returns the text of each dataset.json.
std::vector<std::string> DatasetWriter::Implementation::write(std::vector<BuiltDataset>& built,
                                                              const Progress::Output& output) {
  uint64_t all_tokens = 0;
  for (const DocumentBuckets& part : buckets) all_tokens += written ? 0 : static_cast<uint64_t>(part.tokens());
  Progress progress("writing shards", all_tokens, "tokens", output);
  std::vector<std::vector<ShardPlan>> plans(parts.size());
  for (size_t i = 0; i < parts.size() && !written; ++i) {
    plans[i] = plan_shards(buckets[i], options.shard_tokens, options.pack, most_described_shards(header()));
  }
  std::vector<std::string> texts;
  for (size_t i = 0; i < parts.size(); ++i) {
    const DatasetDescription description = written ? *written : description_of(i, plans[i], progress);
    if (has_targets && description.counted_targets() == 0) {
      throw_bad_input("none of the ", description.tokens(), " targets of the ",
                      parts[i].empty() ? "dataset" : parts[i] + " part",
                      " is counted, so there is nothing to learn; give targets that are not null");
    }
    texts.push_back(description.to_text());
    built.push_back({directory.target(parts[i]), description.documents(), description.tokens(),
                     description.counted_targets(), has_targets, description.text_bytes,
                     static_cast<int64_t>(description.shards.size()), to_hex(xxh3_128(texts.back()))});
  }
  return texts;
}

std::vector<BuiltDataset> DatasetWriter::finish(const Words& words, const Progress::Output& output) {
  Implementation& self = *implementation_;
  if (was_there()) return self.existing();
  for (DocumentBuckets& part : self.buckets) part.finish();
  self.check_parts(words);
  std::vector<BuiltDataset> built;
  const std::vector<std::string> texts = self.write(built, output);
  self.buckets.clear();
  self.directory.remove_buckets();
  const StoredTokenizer& tokenizer = self.vocabulary.tokenizer;
  for (size_t i = 0; i < self.parts.size(); ++i) {
    const std::string& part = self.parts[i];
    if (tokenizer.is_there()) {
      write_file_durably(self.directory.work(part) + "/" + tokenizer.file.name, tokenizer.file.bytes);
    }
    for (int64_t shard = 0; shard < built[i].shards; ++shard) {
      self.directory.publish(part, shard_name(static_cast<size_t>(shard)));
    }
    if (tokenizer.is_there()) self.directory.publish(part, tokenizer.file.name);
  }
  self.directory.publish_descriptions(texts, words.note);
  return built;
}

void DatasetWriter::write_in_order(OrderedDocuments& documents, const std::function<void(int64_t)>& progressed) {
  Implementation& self = *implementation_;
  CHECK(self.parts.size() == 1 && self.options.pack == 0 && self.number == 0, "documents in order are written alone");
  self.has_targets = documents.has_targets();
  self.written =
      write_ordered(documents, self.header(), self.options.shard_tokens, self.directory.work(""), progressed);
}

void DatasetWriter::leave_out() {
  ++implementation_->number;
}

void DatasetWriter::commit() {
  implementation_->directory.commit();
}

}  // namespace shiftron

// Two passes: documents → buckets, buckets → shards. dataset.json is written last; without it there is no dataset.
#include "data/dataset_writer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/check.h"
#include "core/file.h"
#include "core/hash.h"
#include "data/bucket_shards.h"
#include "data/buckets.h"
#include "data/build_directory.h"
#include "data/dataset.h"
#include "data/duplicates.h"
#include "data/saved_writer.h"
#include "data/shard_journal.h"

namespace shiftron {
namespace {

constexpr uint64_t kBucketInput = uint64_t{64} << 20;  // bytes of the input that fill a bucket, approximately
constexpr size_t kMostBuckets = 100;                   // two open files each, twice with validation
constexpr uint64_t kValidationSeed = 0x76616C6964;     // of the hash that splits; not the seed of the order

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
  std::vector<DatasetDescription> written;  // of each part, if write_in_order() wrote the shards
  bool is_saved;                            // the request says so
  std::optional<std::string> saved_note;

  Implementation(const DatasetOutput& given, const TokenVocabulary& tokens, const BuildRequest& request,
                 std::string from, int64_t ordered)
      : options(given),
        vocabulary(tokens),
        source(std::move(from)),
        ordered_documents(ordered),
        parts(given.validation_fraction > 0 || given.has_validation ? std::vector<std::string>{"train", "validation"}
                                                                    : std::vector<std::string>{""}),
        directory(given.output, parts, request),
        is_saved(request.is_saved) {}

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
  void make_buckets(size_t count);
  DatasetDescription description_of(size_t part, const std::vector<ShardPlan>& plan, ShardJournal* journal,
                                    Progress& progress) const;
  std::vector<std::string> write(std::vector<BuiltDataset>& built, const Progress::Output& output);
};

DatasetWriter::DatasetWriter(const DatasetOutput& options, const TokenVocabulary& vocabulary,
                             const BuildRequest& request, const std::string& source, uint64_t input_bytes,
                             int64_t ordered_documents) {
  check_options(options, vocabulary);
  implementation_ = std::make_unique<Implementation>(options, vocabulary, request, source, ordered_documents);
  if (was_there()) return;
  implementation_->make_buckets(std::clamp<size_t>(input_bytes / kBucketInput + 1, 1, kMostBuckets));
}

void DatasetWriter::Implementation::make_buckets(size_t count) {
  SavedWriter saved;
  const bool continues = directory.saved() != nullptr;
  if (continues) {
    saved = parse_saved(*directory.saved(), options.output);
    CHECK(saved.parts.size() == parts.size(), options.output, ": ", saved.parts.size(), " saved parts");
    number = saved.number;
    first = saved.first;
    has_targets = saved.has_targets;
    saved_note = saved.note;
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    buckets.emplace_back(directory.work(parts[i]), count, continues ? &saved.parts[i] : nullptr);
  }
  if (options.deduplicate) duplicates.emplace(directory.work(parts[0]), count, saved.hashes);
}

DatasetWriter::~DatasetWriter() = default;

bool DatasetWriter::was_there() const {
  return implementation_->directory.is_there();
}
const std::string& DatasetWriter::note() const {
  return implementation_->directory.note();
}
const std::string* DatasetWriter::saved() const {
  return implementation_->saved_note ? &*implementation_->saved_note : nullptr;
}
bool DatasetWriter::has_cleared() const {
  return implementation_->directory.has_cleared();
}

void DatasetWriter::save(const std::string& note) {
  Implementation& self = *implementation_;
  SavedWriter saved{note, self.number, self.first, self.has_targets, {}, {}};
  for (DocumentBuckets& part : self.buckets) saved.parts.push_back(part.save());
  if (self.duplicates) saved.hashes = self.duplicates->save();
  self.directory.save(saved_text(saved));
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
  if (self.first.empty()) {
    self.has_targets = has_targets;
    self.first = document.where.empty() ? "the first document" : document.where;
  }
  if (has_targets != self.has_targets) {
    throw_bad_input(document.where, has_targets ? ": has targets, but " : ": has no targets, but ", self.first,
                    has_targets ? " has none" : " has them",
                    "; give them in all documents or in none, or build two datasets (data.train takes several)");
  }
  ++self.number;
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
  int64_t documents = 0;
  for (const DatasetDescription& part : written) documents += part.documents();
  for (const DocumentBuckets& part : buckets) documents += part.documents();
  if (documents == 0) throw_bad_input(words.nothing);
  for (size_t i = 0; i < buckets.size(); ++i) {
    if (!written.empty() || buckets[i].documents() > 0) continue;
    if (options.has_validation) {
      throw_bad_input("none of the ", documents, " documents is in the ", i == 0 ? "training" : "validation", " part",
                      words.nothing_in);
    }
    throw_bad_input("none of the ", documents, " documents falls into the ", i == 0 ? "training" : "validation",
                    " part at --validation-fraction ", options.validation_fraction, "; change it", words.too_few);
  }
}

DatasetDescription DatasetWriter::Implementation::description_of(size_t part, const std::vector<ShardPlan>& plan,
                                                                 ShardJournal* journal, Progress& progress) const {
  DatasetDescription description{header(), buckets[part].text_bytes(), {}};
  description.shards =
      write_shards(buckets[part], description.header, plan, directory.work(parts[part]), journal, progress);
  return description;
}

// Returns the text of each dataset.json.
std::vector<std::string> DatasetWriter::Implementation::write(std::vector<BuiltDataset>& built,
                                                              const Progress::Output& output) {
  uint64_t all_tokens = 0;
  for (const DocumentBuckets& part : buckets) all_tokens += static_cast<uint64_t>(part.tokens());
  Progress progress("writing shards", all_tokens, "tokens", output);
  std::vector<std::vector<ShardPlan>> plans(parts.size());
  for (size_t i = 0; i < parts.size() && written.empty(); ++i) {
    plans[i] = plan_shards(buckets[i], options.shard_tokens, options.pack, most_described_shards(header()));
  }
  std::vector<ShardJournal> journals;
  int64_t kept = 0;
  for (size_t i = 0; i < parts.size() && is_saved; ++i) {
    journals.emplace_back(directory.work(parts[i]), header(), options.save_seconds);
    kept += keep_planned(journals.back(), plans[i]);
  }
  if (kept > 0) progress.resume(static_cast<uint64_t>(kept));
  std::vector<std::string> texts;
  for (size_t i = 0; i < parts.size(); ++i) {
    const DatasetDescription description =
        !written.empty() ? written[i] : description_of(i, plans[i], is_saved ? &journals[i] : nullptr, progress);
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
  if (const StoredTokenizer& tokenizer = self.vocabulary.tokenizer; tokenizer.is_there()) {
    for (const std::string& part : self.parts) {
      write_file_durably(self.directory.work(part) + "/" + tokenizer.file.name, tokenizer.file.bytes);
    }
  }
  self.directory.publish(texts, words.note);
  return built;
}

void DatasetWriter::write_in_order(const std::vector<OrderedDocuments*>& parts,
                                   const std::function<void(int64_t)>& progressed) {
  Implementation& self = *implementation_;
  CHECK(self.parts.size() == parts.size() && self.number == 0, "documents in order are written alone");
  self.has_targets = parts.front()->has_targets();
  int64_t before = 0;  // tokens of the parts before
  for (size_t i = 0; i < parts.size(); ++i) {
    CHECK(self.options.pack == 0 || parts[i]->has_ends(), "documents to be packed lack their ends");
    self.written.push_back(write_ordered(*parts[i], self.header(), self.options.shard_tokens,
                                         self.directory.work(self.parts[i]),
                                         [&](int64_t tokens) { progressed(before + tokens); }));
    before += self.written.back().tokens();
  }
}

void DatasetWriter::take_shards(const DatasetDescription& description) {
  Implementation& self = *implementation_;
  CHECK(self.parts.size() == 1 && self.number == 0, "existing shards make a dataset alone");
  self.has_targets = description.header.has_targets;
  self.written = {description};
}

std::string DatasetWriter::work_directory() const {
  return implementation_->directory.work();
}

void DatasetWriter::leave_out() {
  ++implementation_->number;
}

void DatasetWriter::commit() {
  implementation_->directory.commit();
}

}  // namespace shiftron

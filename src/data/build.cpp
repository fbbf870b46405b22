// Converts files to documents of tokens for DatasetWriter.
#include "data/build.h"

#include <algorithm>
#include <filesystem>
#include <ios>
#include <memory>
#include <optional>
#include <sstream>
#include <utility>

#include "core/check.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/ordered_work.h"
#include "core/progress.h"
#include "data/id_documents.h"
#include "tokenizer/known_words.h"
#include "tokenizer/load_tokenizer.h"
#include "tokenizer/utf8.h"

namespace shiftron {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kTextOfThread = uint64_t{4} << 20;  // of documents that wait, for each thread
constexpr uint64_t kBatch = uint64_t{64} << 10;        // bytes of documents that a thread takes at once, approximately

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

// A document on its way from a file to the writer.
struct ReadDocument {
  std::string text;              // or a line of ids
  std::optional<size_t> prompt;  // how many of its first bytes are a prompt
  uint64_t before = 0;           // bytes of text read before it, approximately
  uint64_t foreign_bytes = 0;
  TokenDocument document = {};
};

// Documents that one thread tokenizes: handing over a single short one would take longer than tokenizing it.
struct Batch {
  std::vector<ReadDocument> documents = {};
  uint64_t bytes = 0;  // of the documents
  uint64_t before() const { return documents.front().before; }
};

// First pass: from files to the writer.
class DocumentReader {
 public:
  // tokenizer: null for ids without one.
  DocumentReader(const BuildOptions& options, const Tokenizer* tokenizer, DatasetWriter& writer, BuildResult& result)
      : options_(options), tokenizer_(tokenizer), writer_(writer), result_(result) {}

  void run(const Progress::Output& output) {
    const uint64_t all = total_bytes(result_.inputs);
    Progress progress(options_.ids ? "reading ids" : "tokenizing", all, "bytes", output);
    uint64_t shown = 0;
    const auto notify = [&](uint64_t bytes) { progress.update(shown = std::clamp(bytes, shown, all)); };
    OrderedWork<Batch> work(options_.threads, static_cast<uint64_t>(std::max(1, options_.threads)) * kTextOfThread,
                            {.work =
                                 [this, known = KnownWords()](Batch& batch, const auto& report_bytes) mutable {
                                   size_t before = 0;
                                   for (ReadDocument& document : batch.documents) {
                                     encode(
                                         document, [&](size_t done) { report_bytes(before + done); }, known);
                                     before += document.text.size();
                                   }
                                 },
                             .take =
                                 [&](Batch& batch) {
                                   for (const ReadDocument& document : batch.documents) {
                                     notify(document.before + document.text.size());
                                     take(document);
                                   }
                                 },
                             .progressed = [&](const Batch& batch, size_t done) { notify(batch.before() + done); }});
    Batch batch;
    const auto hand_over = [&] {
      const uint64_t bytes = batch.bytes;
      if (!batch.documents.empty()) work.add(std::exchange(batch, {}), bytes);
    };
    const auto read = [&](const TextDocument& document) {
      const uint64_t before = document.bytes_read - std::min<uint64_t>(document.bytes_read, document.text.size());
      batch.documents.push_back({.text = std::string(document.text), .prompt = document.prompt, .before = before});
      batch.documents.back().document.where = document.place();
      batch.bytes += sizeof(ReadDocument) + document.text.size();
      if (batch.bytes >= kBatch) hand_over();
    };
    if (options_.ids) {
      read_lines(result_.inputs, read);
    } else {
      read_documents(result_.inputs, format_of(options_), read);
    }
    hand_over();
    work.finish();
  }

 private:
  // On any thread.
  void encode(ReadDocument& read, const std::function<void(size_t)>& report_bytes, KnownWords& known) const {
    TokenDocument& document = read.document;
    if (options_.ids) {
      document = parse_ids(read.text, document.where);
      document.is_validation = writer_.is_validation(document.ids.data(), document.ids.size() * sizeof(int32_t));
    } else {
      read.foreign_bytes = count_foreign_bytes(read.text);
      document.text_bytes = static_cast<int64_t>(read.text.size());
      document.is_validation = writer_.is_validation(read.text.data(), read.text.size());
      encode_text(read, report_bytes, known);
    }
    if (document.ids.empty()) return;
    writer_.close(document);
    if (!options_.ids || tokenizer_ == nullptr) return;
    for (const int32_t token : document.ids) document.text_bytes += tokenizer_->bytes_of(token);
  }

  // A prompt and its completion are tokenized separately, as is a prompt that a model continues.
  void encode_text(ReadDocument& read, const std::function<void(size_t)>& report_bytes, KnownWords& known) const {
    std::vector<int32_t>& ids = read.document.ids;
    const std::string_view text = read.text;
    if (!read.prompt) {
      ids = tokenizer_->encode(text, report_bytes, &known);
      return;
    }
    ids = tokenizer_->encode(text.substr(0, *read.prompt), report_bytes, &known);
    const size_t prompt = ids.size();
    const auto report_more_bytes = [&](size_t done) { report_bytes(*read.prompt + done); };
    const auto completion = tokenizer_->encode(text.substr(*read.prompt), report_more_bytes, &known);
    ids.insert(ids.end(), completion.begin(), completion.end());
    for (size_t i = 0; i < ids.size(); ++i) {
      const int32_t next = i + 1 < ids.size() ? ids[i + 1] : tokenizer_->end_of_document();
      read.document.targets.push_back(i + 1 < prompt ? kNotCounted : next);
    }
  }

  void take(const ReadDocument& read) {
    if (read.document.ids.empty()) {
      ++result_.empty_documents;
      return writer_.leave_out();
    }
    result_.foreign_bytes += read.foreign_bytes;
    writer_.add(read.document);
  }

  const BuildOptions& options_;
  const Tokenizer* tokenizer_;
  DatasetWriter& writer_;
  BuildResult& result_;
};

// The same for equal inputs and options; files are identified by name, size and modification time.
std::string request_of(const BuildOptions& options, const TokenVocabulary& vocabulary) {
  const TokenizerSettings& settings = vocabulary.tokenizer.settings;
  std::string words = detail::concatenate(
      to_hex(xxh3_128(vocabulary.tokenizer.file.bytes)), '\0', options.document_separator, '\0', options.text_key, '\0',
      options.shard_tokens, ' ', options.seed, ' ', options.pack, ' ', options.ids, ' ', vocabulary.size, ' ',
      vocabulary.end_of_document, ' ', settings.beginning_of_document, ' ', settings.special_text, ' ', std::hexfloat, options.validation_fraction, '\0');
  for (const std::string& input : options.inputs) words += state_of_files(input);
  return to_hex(xxh3_128(words));
}

std::string note_of(const BuildResult& result) {
  return std::to_string(result.empty_documents) + " " + std::to_string(result.foreign_bytes);
}

}  // namespace

BuildResult build_dataset(const BuildOptions& options, const Progress::Output& output,
                          const std::function<void(const BuildResult&)>& notify) {
  BuildResult result;
  result.inputs = recognise_inputs(options.inputs);
  if (!options.ids) check_format(result.inputs, format_of(options));
  std::unique_ptr<const Tokenizer> tokenizer;
  TokenVocabulary vocabulary = options.vocabulary;
  if (!options.ids || !options.tokenizer.empty()) {
    tokenizer = load_tokenizer(options.tokenizer, options.tokenizer_choice);
    vocabulary = {tokenizer->vocab_size(), tokenizer->end_of_document(), stored_form(*tokenizer)};
  }
  DatasetWriter writer(options, vocabulary, request_of(options, vocabulary), names_of_inputs(options.inputs),
                       total_bytes(result.inputs));
  result.was_there = writer.was_there();
  if (result.was_there) {
    std::istringstream(writer.note()) >> result.empty_documents >> result.foreign_bytes;
  } else {
    DocumentReader(options, tokenizer.get(), writer, result).run(output);
  }
  const bool text = has_kind(result.inputs, InputKind::text);
  const std::string inputs =
      options.inputs.size() == 1 ? printable(options.inputs[0]) : names_of_inputs(options.inputs);
  result.datasets =
      writer.finish({.nothing = (options.ids ? "no document with ids in " : "no document with text in ") + inputs,
                     .too_few = text ? ", or mark where documents end, with --document-separator" : "",
                     .note = note_of(result)},
                    output);
  if (notify) notify(result);
  writer.commit();
  return result;
}

}  // namespace shiftron

// Converts files to documents of tokens for DatasetWriter.
#include "data/build.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
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
#include "data/bad_lines.h"
#include "data/chat_documents.h"
#include "data/id_documents.h"
#include "tokenizer/known_words.h"
#include "tokenizer/load_tokenizer.h"
#include "tokenizer/utf8.h"

namespace shiftron {
namespace {

constexpr uint64_t kTextOfThread = uint64_t{4} << 20;  // of documents that wait, for each thread
constexpr uint64_t kBatch = uint64_t{64} << 10;        // bytes of documents that a thread takes at once, approximately

DocumentFormat format_of(const BuildOptions& options) {
  return {options.document_separator, options.text_key};
}

// A document on its way from a file to the writer.
struct ReadDocument {
  std::string text;              // or a line of ids or messages
  std::optional<size_t> prompt;  // how many of its first bytes are a prompt
  uint64_t before = 0;           // bytes of text read before it, approximately
  uint64_t bytes_read = 0;       // of the inputs
  uint64_t foreign_bytes = 0;
  uint64_t replaced = 0;
  std::string fault = {};  // of a broken line of ids
  TokenDocument document = {};
};

// A prompt and its completion differ from a text with the same bytes.
Hash128 content_of(const std::string& text, std::optional<size_t> prompt) {
  if (!prompt) return xxh3_128(text);
  HashStream hash;
  const uint64_t size = *prompt;
  hash.update(text.data(), text.size());
  hash.update(&size, sizeof size);
  return hash.digest_128();
}

// Documents that one thread tokenizes: handing over a single short one would take longer than tokenizing it.
struct Batch {
  std::vector<ReadDocument> documents = {};
  uint64_t bytes = 0;  // of the documents
  uint64_t before() const { return documents.front().before; }
};

// First pass: from files to the writer.
class DocumentReader {
 public:
  // tokenizer: null for ids without one. chat: null unless the inputs are lines of messages.
  DocumentReader(const BuildOptions& options, const Tokenizer* tokenizer, const ChatEncoder* chat,
                 DatasetWriter& writer, BuildResult& result)
      : options_(options), tokenizer_(tokenizer), chat_(chat), writer_(writer), result_(result) {}

  void run(const Progress::Output& output) {
    const uint64_t all = total_bytes(result_.inputs);
    Progress progress(options_.ids ? "reading ids" : "tokenizing", all, "bytes", output);
    uint64_t shown = 0;
    const auto notify = [&](uint64_t bytes) {  // the end of a pipe is unknown
      progress.update(shown = std::clamp(bytes, shown, std::max(shown, all > 0 ? all : bytes)));
    };
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
      batch.documents.push_back({.text = std::string(document.text),
                                 .prompt = document.prompt,
                                 .before = before,
                                 .bytes_read = document.bytes_read,
                                 .replaced = document.replaced});
      batch.documents.back().document.where = document.place();
      batch.documents.back().document.is_validation = document.file_number < options_.validation_inputs.size();
      batch.bytes += sizeof(ReadDocument) + document.text.size();
      if (batch.bytes >= kBatch) hand_over();
    };
    if (options_.ids || chat_ != nullptr) {
      is_all_read_ = read_lines(result_.inputs, read, bad_);
    } else {
      read_documents(result_.inputs, format_of(options_), read, bad_);
    }
    hand_over();
    work.finish();
    bad_.check(is_all_read_);
    result_.bad_lines = bad_.count();
    result_.first_bad = bad_.first();
  }

 private:
  // On any thread.
  void encode(ReadDocument& read, const std::function<void(size_t)>& report_bytes, KnownWords& known) const {
    TokenDocument& document = read.document;
    if (options_.ids || chat_ != nullptr) {
      read_line(read, known);
    } else {
      read.foreign_bytes = count_foreign_bytes(read.text);
      document.text_bytes = static_cast<int64_t>(read.text.size());
      document.is_validation |= writer_.is_validation(read.text.data(), read.text.size());
      if (options_.deduplicate) document.content = content_of(read.text, read.prompt);
      encode_text(read, report_bytes, known);
    }
    if (document.ids.empty()) return;
    if (tokenizer_ != nullptr) document.beginning = tokenizer_->beginning_of_document();
    writer_.close(document);
    if (tokenizer_ == nullptr) return;
    document.text_bytes = 0;  // what the tokens stand for, which is not the text if the tokenizer changes it
    for (const int32_t token : document.ids) document.text_bytes += tokenizer_->bytes_of(token);
  }

  void read_line(ReadDocument& read, KnownWords& known) const {
    TokenDocument& document = read.document;
    try {
      ChatEncoder::Counts counts;
      TokenDocument parsed = chat_ == nullptr ? parse_ids(read.text, document.where)
                                              : chat_->encode(read.text, document.where, known, counts);
      document.ids = std::move(parsed.ids);
      document.targets = std::move(parsed.targets);
      document.text_bytes = parsed.text_bytes;
      read.foreign_bytes = counts.foreign_bytes;
      read.replaced = counts.replaced;
    } catch (const Error& error) {
      read.fault = error.what();
      return;
    }
    const std::vector<int32_t>&ids = document.ids, &targets = document.targets;
    document.is_validation |= writer_.is_validation(ids.data(), ids.size() * sizeof(int32_t));
    if (!options_.deduplicate) return;
    HashStream hash;
    hash.update(ids.data(), ids.size() * sizeof(int32_t));
    hash.update(targets.data(), targets.size() * sizeof(int32_t));
    document.content = hash.digest_128();
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
    if (!read.fault.empty()) return bad_.add(read.fault, read.bytes_read);
    if (bad_.too_many()) return;  // what is left is only checked
    if (read.document.ids.empty()) {
      ++result_.empty_documents;
      return writer_.leave_out();
    }
    result_.foreign_bytes += read.foreign_bytes;
    result_.replaced_surrogates += read.replaced;
    writer_.add(read.document);
  }

  const BuildOptions& options_;
  const Tokenizer* tokenizer_;
  const ChatEncoder* chat_;
  DatasetWriter& writer_;
  BuildResult& result_;
  BadLines bad_{options_.skip_bad};
  bool is_all_read_ = true;
};

// The same for equal inputs and options; files are identified by name, size and modification time. What a pipe delivers
// cannot be known, so that a build of one never equals another.
std::string request_of(const BuildOptions& options, const TokenVocabulary& vocabulary,
                       const std::vector<InputFile>& inputs) {
  const TokenizerSettings& settings = vocabulary.tokenizer.settings;
  std::string words = detail::concatenate(
      to_hex(xxh3_128(vocabulary.tokenizer.file.bytes)), '\0', options.document_separator, '\0', options.text_key, '\0',
      options.shard_tokens, ' ', options.seed, ' ', options.pack, ' ', options.ids, ' ', vocabulary.size, ' ',
      vocabulary.end_of_document, ' ', settings.beginning_of_document, ' ', settings.special_text, ' ', std::hexfloat,
      options.validation_fraction, '\0');
  words += detail::concatenate(options.validation_inputs.size(), ' ', options.skip_bad, ' ', options.deduplicate, ' ',
                               options.chat_template, '\0');
  for (const InputFile& input : inputs) {
    words += input.stream == nullptr ? state_of_files(input.path)
                                     : detail::concatenate(input.path, ' ', ::getpid(), ' ',
                                                           std::chrono::system_clock::now().time_since_epoch().count());
  }
  return to_hex(xxh3_128(words));
}

std::string note_of(const BuildResult& result) {
  return detail::concatenate(result.empty_documents, ' ', result.foreign_bytes, ' ', result.replaced_surrogates, ' ',
                             result.bad_lines, ' ', result.duplicates);
}

void read_note(const std::string& note, BuildResult& result) {
  std::istringstream(note) >> result.empty_documents >> result.foreign_bytes >> result.replaced_surrogates >>
      result.bad_lines >> result.duplicates;
}

}  // namespace

BuildResult build_dataset(const BuildOptions& options, const Progress::Output& output,
                          const std::function<void(const BuildResult&)>& notify) {
  BuildResult result;
  if (options.inputs.empty()) throw_bad_input("no input file; name at least one with --input");
  std::vector<std::string> paths = options.validation_inputs;  // first, so that training data lose the duplicates
  paths.insert(paths.end(), options.inputs.begin(), options.inputs.end());
  result.inputs = recognise_inputs(paths);
  if (!options.ids && options.chat_template.empty()) check_format(result.inputs, format_of(options));
  std::unique_ptr<const Tokenizer> tokenizer;
  TokenVocabulary vocabulary = options.vocabulary;
  if (!options.ids || !options.tokenizer.empty()) {
    tokenizer = options.stored_tokenizer ? make_tokenizer(*options.stored_tokenizer, options.tokenizer)
                                         : load_tokenizer(options.tokenizer, options.tokenizer_choice);
    vocabulary = vocabulary_of(*tokenizer);
  }
  std::optional<ChatEncoder> chat;
  if (!options.chat_template.empty()) chat.emplace(chat_template_of(options.chat_template), *tokenizer);
  DatasetOutput target = options;
  target.has_validation = !options.validation_inputs.empty();
  DatasetWriter writer(target, vocabulary, request_of(options, vocabulary, result.inputs), names_of_inputs(paths),
                       expected_text_bytes(result.inputs));
  result.was_there = writer.was_there();
  if (result.was_there) {
    read_note(writer.note(), result);
  } else {
    DocumentReader(options, tokenizer.get(), chat ? &*chat : nullptr, writer, result).run(output);
    result.duplicates = writer.remove_duplicates();
  }
  const bool text = has_kind(result.inputs, InputKind::text);
  const std::string inputs = paths.size() == 1 ? printable(paths[0]) : names_of_inputs(paths);
  result.datasets =
      writer.finish({.nothing = (options.ids ? "no document with ids in " : "no document with text in ") + inputs,
                     .too_few = text ? ", or mark where documents end, with --document-separator" : "",
                     .nothing_in = "; give other files with --input and --validation-input",
                     .note = note_of(result)},
                    output);
  if (notify) notify(result);
  writer.commit();
  return result;
}

}  // namespace shiftron

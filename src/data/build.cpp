// Converts files to documents of tokens for DatasetWriter.
#include "data/build.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <utility>

#include "core/check.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/ordered_work.h"
#include "core/progress.h"
#include "data/bad_lines.h"
#include "data/chat_documents.h"
#include "data/id_documents.h"
#include "data/save_clock.h"
#include "data/saved_writer.h"
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
  std::string fault = {};  // why the document cannot be taken
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

bool learns_nothing(const TokenDocument& document) {
  return std::ranges::all_of(document.targets, [](int32_t target) { return target == kNotCounted; });
}

// Documents that one thread tokenizes: handing over a single short one would take longer than tokenizing it.
struct Batch {
  std::vector<ReadDocument> documents = {};
  uint64_t bytes = 0;  // of the documents
  uint64_t before() const { return documents.front().before; }
};

// Where a killed build had arrived, as DatasetWriter::save() keeps it.
std::string note_of(const ReadPosition& position, const BuildResult& result, uint64_t bytes_read, const BadLines& bad) {
  return nlohmann::ordered_json{{"file", position.file},
                                {"byte", position.byte},
                                {"number", position.number},
                                {"first", position.first},
                                {"has_prompt", position.has_prompt},
                                {"bytes_read", bytes_read},
                                {"empty_documents", result.empty_documents},
                                {"unlearned_chats", result.unlearned_chats},
                                {"foreign_bytes", result.foreign_bytes},
                                {"replaced_surrogates", result.replaced_surrogates},
                                {"bad_lines", bad.count()},
                                {"first_bad", bad.first()}}
      .dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

// First pass: from files to the writer.
class DocumentReader {
 public:
  // tokenizer: null for ids without one. chat: null unless the inputs are lines of messages.
  DocumentReader(const BuildOptions& options, const Tokenizer* tokenizer, const ChatEncoder* chat,
                 DatasetWriter& writer, bool is_saved, BuildResult& result)
      : options_(options),
        tokenizer_(tokenizer),
        chat_(chat),
        writer_(writer),
        is_saved_(is_saved),
        result_(result),
        clock_(options.save_seconds) {
    if (writer.saved() != nullptr) restore(*writer.saved());
  }

  void run(const Progress::Output& output) {
    const uint64_t all = total_bytes(result_.inputs);
    Progress progress(options_.ids ? "reading ids" : "tokenizing", all, "bytes", output);
    uint64_t shown = kept_;
    if (writer_.saved() != nullptr) progress.resume(kept_);
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
      pass(document);
      if (is_saved_ && clock_.is_due()) {
        hand_over();
        work.finish();
        if (!bad_.too_many()) clock_.run([&] { save(document.bytes_read); });
      } else if (batch.bytes >= kBatch) {
        hand_over();
      }
    };
    const ReadPosition begin = position_;
    if (options_.ids || chat_ != nullptr) {
      is_all_read_ = read_lines(result_.inputs, read, bad_, begin);
    } else {
      read_documents(result_.inputs, format_of(options_), read, bad_, begin);
    }
    hand_over();
    work.finish();
    bad_.check(is_all_read_);
    if (is_saved_ && position_.file < result_.inputs.size()) {
      position_.file = result_.inputs.size();
      position_.byte = 0;
      position_.number = 1;
      save(all);
    }
    result_.bad_lines = bad_.count();
    result_.first_bad = bad_.first();
  }

 private:
  void restore(const std::string& note) {
    try {
      const nlohmann::json json = nlohmann::json::parse(note);
      position_ = {json.at("file"), json.at("byte"), json.at("number"), json.at("first"), json.at("has_prompt")};
      kept_ = json.at("bytes_read");
      result_.empty_documents = json.at("empty_documents");
      result_.unlearned_chats = json.at("unlearned_chats");
      result_.foreign_bytes = json.at("foreign_bytes");
      result_.replaced_surrogates = json.at("replaced_surrogates");
      bad_ = BadLines(options_.skip_bad, json.at("bad_lines"), json.at("first_bad"));
    } catch (const nlohmann::json::exception&) {
      throw_damaged_save(options_.output);
    }
  }
  // The document is the last one that was read.
  void pass(const TextDocument& document) {
    position_.file = document.file_number;
    position_.byte = document.end;
    position_.number = document.number + 1;
    if (!position_.first.empty()) return;
    position_.first = document.place();
    position_.has_prompt = document.prompt.has_value();
  }
  // All that was read must have been taken.
  void save(uint64_t bytes_read) { writer_.save(note_of(position_, result_, bytes_read, bad_)); }

  // On any thread.
  void encode(ReadDocument& read, const std::function<void(size_t)>& report_bytes, KnownWords& known) const {
    try {
      make_document(read, report_bytes, known);
    } catch (const Error& error) {
      if (error.code() != ExitCode::bad_input) throw;
      read.fault = error.what();
    }
  }

  void make_document(ReadDocument& read, const std::function<void(size_t)>& report_bytes, KnownWords& known) const {
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
    ChatEncoder::Counts counts;
    TokenDocument parsed = chat_ == nullptr ? parse_ids(read.text, document.where)
                                            : chat_->encode(read.text, document.where, known, counts);
    document.ids = std::move(parsed.ids);
    document.targets = std::move(parsed.targets);
    document.text_bytes = parsed.text_bytes;
    read.foreign_bytes = counts.foreign_bytes;
    read.replaced = counts.replaced;
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
    try {
      writer_.add(read.document);
    } catch (const Error& error) {
      if (error.code() != ExitCode::bad_input) throw;
      return bad_.add(error.what(), read.bytes_read);
    }
    result_.foreign_bytes += read.foreign_bytes;
    result_.replaced_surrogates += read.replaced;
    if (chat_ != nullptr) result_.unlearned_chats += learns_nothing(read.document);
  }

  const BuildOptions& options_;
  const Tokenizer* tokenizer_;
  const ChatEncoder* chat_;
  DatasetWriter& writer_;
  const bool is_saved_;
  BuildResult& result_;
  SaveClock clock_;
  ReadPosition position_;
  uint64_t kept_ = 0;  // bytes that a killed build had read
  BadLines bad_{options_.skip_bad};
  bool is_all_read_ = true;
};

// Names, sizes and times of change; empty for a pipe.
std::vector<std::string> states_of(const std::vector<InputFile>& inputs) {
  std::vector<std::string> states;
  for (const InputFile& input : inputs) states.push_back(input.stream == nullptr ? state_of_files(input.path) : "");
  return states;
}

// states: of `inputs`. What a pipe delivers cannot be known, so that a build of one never equals another.
BuildRequest request_of(const BuildOptions& options, const TokenVocabulary& vocabulary,
                        const std::vector<InputFile>& inputs, const std::vector<std::string>& states) {
  const TokenizerSettings& settings = vocabulary.tokenizer.settings;
  const auto text = [](const auto& value) { return detail::concatenate(value); };
  const auto given = [](bool value) { return value ? "given" : "not given"; };
  const auto hash = [](const std::string& value) { return "#" + to_hex(xxh3_128(value)); };
  const std::string chat = options.chat_template.empty() ? "" : to_string(chat_template_of(options.chat_template));
  BuildRequest request{.words = {{"the version of shiftron", options.program},
                                 {"the tokenizer's file", hash(vocabulary.tokenizer.file.bytes)},
                                 {"--vocab", text(vocabulary.size)},
                                 {"--end-of-document", text(vocabulary.end_of_document)},
                                 {"--beginning-of-document", text(settings.beginning_of_document)},
                                 {"--special-text", given(settings.special_text)},
                                 {"--document-separator", hash(options.document_separator)},
                                 {"--text-key", options.text_key},
                                 {"--chat-template", chat},
                                 {"--ids", given(options.ids)},
                                 {"--skip-bad", text(options.skip_bad)},
                                 {"--deduplicate", given(options.deduplicate)},
                                 {"--validation-fraction", nlohmann::json(options.validation_fraction).dump()},
                                 {"--pack", text(options.pack)},
                                 {"--shard-tokens", text(options.shard_tokens)},
                                 {"--seed", text(options.seed)}},
                       .is_saved = true};
  for (size_t i = 0; i < inputs.size(); ++i) {
    const InputFile& input = inputs[i];
    const std::string name = i < options.validation_inputs.size() ? "--validation-input " : "--input ";
    const bool is_pipe = input.stream != nullptr;
    request.words.emplace_back(
        name + input.path,
        hash(is_pipe ? detail::concatenate(::getpid(), ' ', std::chrono::system_clock::now().time_since_epoch().count())
                     : states[i]));
    if (is_pipe) request.is_saved = false;
  }
  return request;
}

// Documents may be missing, or cut.
void refuse_changed_inputs(const std::vector<InputFile>& inputs, const std::vector<std::string>& states) {
  const std::vector<std::string> now = states_of(inputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (now[i] == states[i]) continue;
    throw_bad_input(inputs[i].path, " changed while it was read; build again once no program writes to it");
  }
}

std::string note_of(const BuildResult& result) {
  return detail::concatenate(result.empty_documents, ' ', result.foreign_bytes, ' ', result.replaced_surrogates, ' ',
                             result.bad_lines, ' ', result.duplicates, ' ', result.unlearned_chats);
}

void read_note(const std::string& note, BuildResult& result) {
  std::istringstream(note) >> result.empty_documents >> result.foreign_bytes >> result.replaced_surrogates >>
      result.bad_lines >> result.duplicates >> result.unlearned_chats;
}

void note_cleared(const std::string& output, const BuildRequest& request) {
  print_to_stderr(detail::concatenate("data build: note: an interrupted build in ", output,
                                      " had saved nothing, so this one starts from the beginning",
                                      request.is_saved ? "" : "; a build that reads a pipe cannot be continued"));
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
  if (tokenizer && tokenizer->loses_characters()) {
    print_to_stderr(
        detail::concatenate("data build: warning: ", tokenizer->name(),
                            " has no tokens for some characters and no unknown token, so these characters "
                            "are left out of the dataset; `shiftron tokenizer encode` shows it for a text"));
  }
  std::optional<ChatEncoder> chat;
  if (!options.chat_template.empty()) chat.emplace(chat_template_of(options.chat_template), *tokenizer);
  DatasetOutput target = options;
  target.has_validation = !options.validation_inputs.empty();
  const std::vector<std::string> states = states_of(result.inputs);
  const BuildRequest request = request_of(options, vocabulary, result.inputs, states);
  DatasetWriter writer(target, vocabulary, request, names_of_inputs(paths), expected_text_bytes(result.inputs));
  result.was_there = writer.was_there();
  if (writer.has_cleared()) note_cleared(options.output, request);
  if (result.was_there) {
    read_note(writer.note(), result);
  } else {
    DocumentReader(options, tokenizer.get(), chat ? &*chat : nullptr, writer, request.is_saved, result).run(output);
    refuse_changed_inputs(result.inputs, states);
    result.duplicates = writer.remove_duplicates();
  }
  const bool text = has_kind(result.inputs, InputKind::text);
  const std::string inputs = paths.size() == 1 ? printable(paths[0]) : names_of_inputs(paths);
  std::string left_out;
  for (const std::string& fault : result.first_bad) left_out += fault + "\n";
  if (result.bad_lines > 0) {
    left_out += detail::concatenate(result.bad_lines, result.bad_lines == 1 ? " broken line was" : " broken lines were",
                                    " left out; ");
  }
  result.datasets = writer.finish(
      {.nothing = left_out + (options.ids ? "no document with ids in " : "no document with text in ") + inputs,
       .too_few = text ? ", or mark where documents end, with --document-separator" : "",
       .nothing_in = "; give other files with --input and --validation-input",
       .note = note_of(result)},
      output);
  if (notify) notify(result);
  writer.commit();
  return result;
}

}  // namespace shiftron

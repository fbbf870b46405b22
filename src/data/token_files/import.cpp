// Passes documents of token files to DatasetWriter.
#include "data/token_files/import.h"

#include <algorithm>
#include <ios>
#include <sstream>
#include <utility>

#include "core/check.h"
#include "core/file.h"
#include "core/hash.h"
#include "data/documents.h"
#include "data/token_files/format.h"
#include "data/token_files/npy.h"
#include "tokenizer/load_tokenizer.h"

namespace shiftron {
namespace {

std::vector<TokenFile> open_token_files(const TokenImport& options) {
  if (options.inputs.empty()) throw_bad_input("no file of tokens; name at least one");
  if (!options.masks.empty() && options.masks.size() != options.inputs.size()) {
    throw_bad_input(options.masks.size(), " masks for ", options.inputs.size(),
                    " files of tokens; give --targets one mask for each file, in the same order");
  }
  std::vector<TokenFile> files;
  for (size_t i = 0; i < options.inputs.size(); ++i) {
    TokenFile& file = files.emplace_back(open_token_file(options.inputs[i], options.format, options.element));
    if (options.masks.empty()) continue;
    if (file.mask) throw_bad_input(file.path, " has its own mask, ", file.mask->path, "; omit --targets");
    file.mask = open_mask(options.masks[i], file.tokens);
    file.files.push_back(options.masks[i]);
  }
  return files;
}

std::string names_of_files(const std::vector<TokenFile>& files) {
  std::vector<std::string> paths;
  for (const TokenFile& file : files) paths.push_back(file.path);
  return names_of_inputs(paths);
}

uint64_t bytes_of_files(const std::vector<TokenFile>& files) {
  uint64_t bytes = 0;
  for (const TokenFile& file : files) bytes += file.tokens * size_of(file.element);
  return bytes;
}

// The same for equal files and options; files are identified by name, size and modification time.
BuildRequest request_of_import(const TokenImport& options, const TokenVocabulary& vocabulary,
                               const std::vector<TokenFile>& files) {
  std::string words =
      detail::concatenate("import ", to_hex(xxh3_128(vocabulary.tokenizer.file.bytes)), ' ', vocabulary.size, ' ',
                          vocabulary.tokenizer.settings.beginning_of_document, ' ', vocabulary.end_of_document, ' ',
                          options.shard_tokens, ' ', options.seed, ' ', options.pack, ' ', options.shuffle, ' ',
                          std::hexfloat, options.validation_fraction, '\0');
  for (const TokenFile& file : files) {
    words += file.format + ' ' + to_string(file.element) + '\0';
    for (const std::string& path : file.files) words += state_of_files(path);
  }
  return {.words = {{"the files and options of data import", "#" + to_hex(xxh3_128(words))}}};
}

// Bytes of text of each id, as far as a tokenizer says; and what the ids mean.
TokenVocabulary read_vocabulary(const TokenImport& options, std::vector<int32_t>& bytes_of_ids) {
  if (options.tokenizer.empty()) return options.vocabulary;
  const std::unique_ptr<const Tokenizer> tokenizer = options.stored_tokenizer
                                                         ? make_tokenizer(*options.stored_tokenizer, options.tokenizer)
                                                         : load_tokenizer(options.tokenizer);
  for (int32_t id = 0; id < tokenizer->vocab_size(); ++id) {
    bytes_of_ids.push_back(static_cast<int32_t>(tokenizer->bytes_of(id)));
  }
  return vocabulary_of(*tokenizer);
}

// Packing, shuffling and parts need each document as a whole.
class Import {
 public:
  Import(const TokenImport& options, const std::vector<TokenFile>& files, TokenDocuments& documents,
         const Progress::Output& output)
      : options_(options), documents_(documents), bytes_(bytes_of_files(files)), output_(output) {
    for (const TokenFile& file : files) tokens_ += file.tokens;
  }

  bool is_in_order() const { return !options_.shuffle && options_.pack == 0 && options_.validation_fraction == 0; }

  // The number of documents, for a writer that keeps their order; 0 if it need not know.
  int64_t documents_in_order() {
    if (options_.shuffle || is_in_order()) return 0;
    Progress progress("counting documents", bytes_, "bytes", output_);
    int64_t count = 0;
    for (; documents_.next(); ++count) progress.update(documents_.passed());
    documents_.restart();
    return count;
  }

  void write(DatasetWriter& writer) {
    if (is_in_order()) return write_in_order(writer);
    Progress progress("importing", bytes_, "bytes", output_);
    while (const auto document = documents_.next()) {
      TokenDocument whole = documents_.whole(*document);
      whole.is_validation = writer.is_validation(whole.ids.data(), whole.ids.size() * sizeof whole.ids[0]);
      writer.close(whole);
      writer.add(whole);
      progress.update(documents_.passed());
    }
  }

 private:
  void write_in_order(DatasetWriter& writer) {
    Progress progress("importing", tokens_, "tokens", output_);
    writer.write_in_order({&documents_}, [&](int64_t written) {  // with end tokens that the source may lack
      progress.update(std::min(static_cast<uint64_t>(written), tokens_));
    });
  }

  const TokenImport& options_;
  TokenDocuments& documents_;
  uint64_t bytes_, tokens_ = 0;  // of the files
  const Progress::Output& output_;
};

std::string note_of_counts(const DocumentCounts& counts) {
  return detail::concatenate(counts.empty, ' ', counts.split, ' ', counts.open);
}

}  // namespace

TokenImportResult import_tokens(const TokenImport& options, const Progress::Output& output,
                                const std::function<void(const TokenImportResult&)>& notify) {
  TokenImportResult result;
  result.files = open_token_files(options);
  std::vector<int32_t> bytes_of_ids;
  const TokenVocabulary vocabulary = read_vocabulary(options, bytes_of_ids);
  TokenDocuments documents(result.files, vocabulary, std::move(bytes_of_ids));
  Import importing(options, result.files, documents, output);
  const uint64_t of_buckets = importing.is_in_order() ? 0 : bytes_of_files(result.files);
  DatasetWriter writer(options, vocabulary, request_of_import(options, vocabulary, result.files),
                       names_of_files(result.files), of_buckets, importing.documents_in_order());
  result.was_there = writer.was_there();
  if (result.was_there) {
    std::istringstream(writer.note()) >> result.counts.empty >> result.counts.split >> result.counts.open;
  } else {
    importing.write(writer);
    result.counts = documents.counts();
  }
  result.datasets = writer.finish({.nothing = "no document with tokens in " + names_of_files(result.files),
                                   .too_few = "",
                                   .note = note_of_counts(result.counts)},
                                  output);
  if (notify) notify(result);
  writer.commit();
  return result;
}

}  // namespace shiftron

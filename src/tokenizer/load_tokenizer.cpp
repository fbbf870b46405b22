// Which kind a file is, and the table of the kinds.
#include "tokenizer/load_tokenizer.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <utility>

#include "core/check.h"
#include "core/file.h"
#include "core/foreign_text.h"
#include "core/system_error.h"
#include "tokenizer/hugging_face/hugging_face_tokenizer.h"
#include "tokenizer/hugging_face/load_hugging_face.h"
#include "tokenizer/sentencepiece_conversion.h"
#include "tokenizer/sentencepiece_tokenizer.h"

namespace shiftron {
namespace {

constexpr uint64_t kLargestFile = uint64_t{1} << 30;

struct TokenizerKind {
  const char* file_name;                         // TokenizerFile::name
  bool (*recognises)(const std::string& bytes);  // a file, whatever its name is
  // load: of a user's file at `path`, whose neighbours may say more about it; make: of a stored one.
  std::unique_ptr<Tokenizer> (*load)(std::string bytes, const std::string& path, const TokenizerChoice& choice,
                                     const std::string& advice);
  std::unique_ptr<Tokenizer> (*make)(std::string bytes, const TokenizerSettings& settings, const std::string& name,
                                     const std::string& advice);
};

// A model that does not keep every text is converted, unless its neighbour already is what it would become.
std::unique_ptr<Tokenizer> load_sentencepiece_or_convert(std::string bytes, const std::string& path,
                                                         const TokenizerChoice& choice, const std::string& advice) {
  if (!needs_conversion(bytes, path)) return load_sentencepiece(std::move(bytes), path, choice, advice);
  const std::string other = std::filesystem::path(path).replace_filename(kHuggingFaceFile);
  if (name_exists(other)) throw_bad_input(path, " changes text: it adds or folds spaces; use ", other);
  return load_hugging_face(converted_sentencepiece(bytes, path), path, choice, advice);
}

// In the order in which a directory is searched for their files. A file that none recognises is given to the first.
constexpr TokenizerKind kKinds[] = {
    {kSentencePieceFile, recognises_sentencepiece, load_sentencepiece_or_convert, make_sentencepiece},
    {kHuggingFaceFile, recognises_hugging_face, load_hugging_face, make_hugging_face},
};

std::unique_ptr<Tokenizer> load_file(const std::string& path, const TokenizerChoice& choice,
                                     const std::string& advice) {
  std::string bytes = read_file(path, kLargestFile);
  const auto* kind = std::ranges::find_if(kKinds, [&](const TokenizerKind& one) { return one.recognises(bytes); });
  return (kind == std::end(kKinds) ? kKinds[0] : *kind).load(std::move(bytes), path, choice, advice);
}

// A directory may have the same tokenizer in several forms: the first one that is supported.
std::unique_ptr<Tokenizer> load_directory(const std::string& directory, const TokenizerChoice& choice,
                                          const std::string& advice) {
  std::exception_ptr refusal;
  std::string names;
  for (const TokenizerKind& kind : kKinds) {
    const std::string path = directory + "/" + kind.file_name;
    names += (names.empty() ? "" : " or ") + std::string(kind.file_name);
    if (!name_exists(path)) continue;
    try {
      return load_file(path, choice, advice);
    } catch (const Error& error) {
      rethrow_system_error(error);
      refusal = std::current_exception();  // of the last, which has most to say
    }
  }
  if (refusal) std::rethrow_exception(refusal);
  throw_bad_input(printable(directory), " has no ", names, "; ", advice);
}

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path, const TokenizerChoice& choice,
                                          const std::string& advice) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return load_directory(path, choice, advice);
  return load_file(path, choice, advice);
}

std::vector<std::string> tokenizer_file_names() {
  std::vector<std::string> names;
  for (const TokenizerKind& kind : kKinds) names.emplace_back(kind.file_name);
  return names;
}

std::unique_ptr<Tokenizer> make_tokenizer(TokenizerFile file, const TokenizerSettings& settings,
                                          const std::string& name, const std::string& advice) {
  for (const TokenizerKind& kind : kKinds) {
    if (file.name == kind.file_name) return kind.make(std::move(file.bytes), settings, name, advice);
  }
  throw_bad_input(name, " is stored as \"", printable(file.name), "\", which this version cannot read");
}

}  // namespace shiftron

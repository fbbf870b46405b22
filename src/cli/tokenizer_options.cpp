// See the header.
#include "cli/tokenizer_options.h"

#include <filesystem>

#include "checkpoint/restore.h"
#include "checkpoint/steps.h"
#include "core/check.h"
#include "core/file.h"
#include "core/foreign_text.h"
#include "data/dataset.h"

namespace shiftron::cli {

std::vector<CommandOption> tokenizer_options() {
  return {text_option("end-of-document", "TOKEN",
                      "token that ends a document; default: the one that the tokenizer's files state"),
          beginning_of_document(), special_text()};
}

CommandOption beginning_of_document() {
  return text_option("beginning-of-document", "TOKEN",
                     "token that begins a document, or none; default: as the tokenizer's files state");
}

CommandOption special_text() {
  return flag("special-text", "turn names of special tokens in the text into these tokens");
}

TokenizerChoice tokenizer_choice(const CommandLine& line) {
  TokenizerChoice choice;
  if (line.has("end-of-document")) choice.end_of_document = line.text("end-of-document");
  if (line.has("beginning-of-document")) choice.beginning_of_document = line.text("beginning-of-document");
  choice.special_text = line.has("special-text");
  return choice;
}

bool has_tokenizer_choice(const CommandLine& line) {
  return line.has("end-of-document") || line.has("beginning-of-document") || line.has("special-text");
}

int32_t end_of_document_id(const CommandLine& line) {
  int32_t id = -1;
  if (!read_value(line.text("end-of-document"), id).empty()) {
    throw_bad_input("--end-of-document '", printable(line.text("end-of-document")),
                    "' must be an id, because there is no --tokenizer");
  }
  return id;
}

std::optional<StoredTokenizer> stored_tokenizer_at(const CommandLine& line) {
  if (has_tokenizer_choice(line)) return std::nullopt;
  const std::string path = line.text("tokenizer");
  std::error_code ignored;
  const bool is_directory = std::filesystem::is_directory(path, ignored);
  const std::string directory = is_directory ? path : parent_directory(path);
  const std::string file = is_directory ? "" : std::filesystem::path(path).filename().string();
  const auto wanted = [&](StoredTokenizer stored) -> std::optional<StoredTokenizer> {
    if (!stored.is_there() || (!is_directory && file != stored.file.name)) return std::nullopt;
    return stored;
  };
  if (name_exists(directory + "/" + kDescriptionFile)) return wanted(Dataset(directory).tokenizer());
  if (name_exists(directory + "/" + kManifestName)) return wanted(read_content(directory).tokenizer);
  return std::nullopt;
}

}  // namespace shiftron::cli

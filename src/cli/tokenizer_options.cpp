// See the header.
#include "cli/tokenizer_options.h"

namespace shiftron::cli {

std::vector<CommandOption> tokenizer_options() {
  return {text_option("end-of-document", "TOKEN",
                      "token that ends a document; default: the one that the tokenizer's files state"),
          text_option("beginning-of-document", "TOKEN",
                      "token that begins a document, or none; default: as the tokenizer's files state"),
          flag("special-text", "turn names of special tokens in the text into these tokens")};
}

TokenizerChoice tokenizer_choice(const CommandLine& line) {
  TokenizerChoice choice;
  if (line.has("end-of-document")) choice.end_of_document = line.text("end-of-document");
  if (line.has("beginning-of-document")) choice.beginning_of_document = line.text("beginning-of-document");
  choice.special_text = line.has("special-text");
  return choice;
}

}  // namespace shiftron::cli

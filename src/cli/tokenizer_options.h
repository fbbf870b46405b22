// Options of commands that read a tokenizer: what its files leave open.
#pragma once

#include <optional>
#include <vector>

#include "cli/command_line.h"
#include "tokenizer/stored_tokenizer.h"

namespace shiftron::cli {

std::vector<CommandOption> tokenizer_options();
CommandOption beginning_of_document();
CommandOption special_text();
TokenizerChoice tokenizer_choice(const CommandLine& line);
bool has_tokenizer_choice(const CommandLine& line);  // whether the line has an option that makes a choice
// --end-of-document where there is no --tokenizer. Throws Error(bad_input).
int32_t end_of_document_id(const CommandLine& line);

// If --tokenizer names a dataset, a step or a tokenizer in one, and no option chooses something else: what is stored
// there, because the file alone does not state the choices that were made about it.
std::optional<StoredTokenizer> stored_tokenizer_at(const CommandLine& line);

}  // namespace shiftron::cli

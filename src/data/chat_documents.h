// Lines {"messages": [{"role": …, "content": …}…]} of a chat, as documents of which the assistant's part is learned.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "data/chat_template.h"
#include "data/dataset_writer.h"
#include "tokenizer/known_words.h"
#include "tokenizer/tokenizer.h"

namespace shiftron {

// Read-only after construction; may be used from several threads.
class ChatEncoder {
 public:
  // `tokenizer` must outlive it. Throws Error(bad_input) if it lacks a special token of the template.
  ChatEncoder(ChatTemplate chat, const Tokenizer& tokenizer);

  struct Counts {
    uint64_t foreign_bytes = 0;
    uint64_t replaced = 0;  // surrogates
  };
  // The document in a line: each target is the next token if the assistant says it, otherwise kNotCounted. The text of
  // special tokens within a message stays text. A special token at the end that ends documents anyway is left to the
  // writer. `where` names the line in messages. Throws Error(bad_input): bad JSON, no messages, a role or content that
  // is no string, several turns if the template ends each with the token that ends documents.
  TokenDocument encode(std::string_view line, const std::string& where, KnownWords& known, Counts& counts) const;

 private:
  std::vector<ChatSegment> segments_of(std::string_view line, const std::string& where, Counts& counts) const;

  ChatTemplate chat_;
  const Tokenizer& tokenizer_;
  std::map<std::string, int32_t> special_;  // tokens of the template
};

}  // namespace shiftron

// Conversations as text with special tokens, as ChatML, Llama 2 and Llama 3 write them.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "core/enum_names.h"

namespace shiftron {

enum class ChatTemplate { chatml, llama2, llama3 };
constexpr std::array<const char*, 3> names_of(ChatTemplate) {
  return {"chatml", "llama2", "llama3"};
}

struct ChatMessage {
  std::string role, content;
};

// A part of a conversation.
struct ChatSegment {
  std::string text;
  bool is_special = false;  // the name of one special token, otherwise plain text
  bool is_counted = false;  // said by the assistant, so that it is learned
  bool operator==(const ChatSegment&) const = default;
};

// `name`: of a template, or a file with its Jinja text: tokenizer_config.json, chat_template.json, or the text itself.
// The text is recognised by its hash. Throws Error(bad_input) for every other template.
ChatTemplate chat_template_of(const std::string& name);

// XXH3-128 of a template's text, hexadecimal: without blanks within {% %} and {{ }} but outside of quotes, and without
// blanks at the end; \n within quotes is a line feed.
std::string chat_template_hash(std::string_view jinja);

// Neighbours differ in `is_special` or `is_counted`, or are special. Throws Error(bad_input) for roles that the
// template does not allow.
std::vector<ChatSegment> render_chat(ChatTemplate chat, const std::vector<ChatMessage>& messages);

}  // namespace shiftron

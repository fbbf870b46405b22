// Tokenizes a chat segment by segment.
#include "data/chat_documents.h"

#include "core/check.h"
#include "core/foreign_text.h"
#include "data/json_line.h"
#include "data/shard.h"
#include "tokenizer/utf8.h"

namespace shiftron {
namespace {

constexpr char kMessages[] = "messages", kRole[] = "role", kContent[] = "content";

std::string string_of(const JsonLine& message, const char* key, const std::string& where, uint64_t& replaced) {
  if (!message.has(key)) {
    throw_bad_input(where, ": a message has no \"", key, "\" (it has: ", message.keys(), ")");
  }
  return message.text(key, replaced);
}

}  // namespace

ChatEncoder::ChatEncoder(ChatTemplate chat, const Tokenizer& tokenizer) : chat_(chat), tokenizer_(tokenizer) {
  // Each role once: all special tokens of the template occur.
  for (const ChatSegment& segment : render_chat(chat, {{"user", "a"}, {"assistant", "b"}})) {
    if (segment.is_special) special_.emplace(segment.text, -1);
  }
  for (int32_t token = 0; token < tokenizer.vocab_size(); ++token) {
    if (!tokenizer.is_special(token)) continue;
    const auto found = special_.find(tokenizer.piece(token));
    if (found != special_.end()) found->second = token;
  }
  for (const auto& [name, token] : special_) {
    if (token >= 0) continue;
    throw_bad_input("--chat-template ", to_string(chat), " needs the special token ", name, ", which ",
                    tokenizer.name(), " does not have; give a tokenizer that was made for such chats");
  }
}

std::vector<ChatSegment> ChatEncoder::segments_of(std::string_view line, const std::string& where,
                                                  Counts& counts) const {
  const JsonLine object(line, where);
  if (!object.has(kMessages)) {
    throw_bad_input(where, ": no key \"", kMessages, "\" (it has: ", object.keys(),
                    "); leave --chat-template out for other lines");
  }
  std::vector<ChatMessage> messages;
  for (const std::string_view element : object.elements(kMessages)) {
    const JsonLine message(element, where + ", message " + std::to_string(messages.size()));
    messages.push_back(
        {string_of(message, kRole, where, counts.replaced), string_of(message, kContent, where, counts.replaced)});
    counts.foreign_bytes += count_foreign_bytes(messages.back().content);
  }
  try {
    return render_chat(chat_, messages);
  } catch (const Error& error) {
    throw_bad_input(where, ": ", error.what());
  }
}

TokenDocument ChatEncoder::encode(std::string_view line, const std::string& where, KnownWords& known,
                                  Counts& counts) const {
  TokenDocument document;
  document.where = where;
  std::vector<bool> is_counted;  // of each token
  for (const ChatSegment& segment : segments_of(line, where, counts)) {
    if (segment.is_special) {
      document.ids.push_back(special_.at(segment.text));
    } else {
      const std::vector<int32_t> ids = tokenizer_.encode(segment.text, {}, &known);
      document.ids.insert(document.ids.end(), ids.begin(), ids.end());
    }
    is_counted.resize(document.ids.size(), segment.is_counted);
  }
  const int32_t end = tokenizer_.end_of_document();
  const bool ends_itself = !document.ids.empty() && document.ids.back() == end;
  if (ends_itself) document.ids.pop_back();
  for (size_t i = 0; i < document.ids.size(); ++i) {
    if (document.ids[i] == end) {
      throw_bad_input(where, ": ", tokenizer_.piece(end), " ends documents and, in ", to_string(chat_),
                      ", each turn, so that a chat of several turns would be cut; end documents with another special "
                      "token of the tokenizer: --end-of-document TOKEN, or split the chat into chats of one turn");
    }
    const bool has_next = i + 1 < document.ids.size();
    const int32_t next = has_next ? document.ids[i + 1] : end;
    document.targets.push_back((has_next || ends_itself) && is_counted[i + 1] ? next : kNotCounted);
  }
  for (const int32_t token : document.ids) document.text_bytes += tokenizer_.bytes_of(token);
  return document;
}

}  // namespace shiftron

// The templates as published with the models of these names: what they print, not their Jinja text.
#include "data/chat_template.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/check.h"
#include "core/file.h"
#include "core/foreign_text.h"
#include "core/hash.h"
#include "tokenizer/python_space.h"

namespace shiftron {
namespace {

constexpr uint64_t kLargestTemplateFile = uint64_t{64} << 20;  // bytes

struct KnownTemplate {
  const char* hash;
  ChatTemplate chat;
};
constexpr KnownTemplate kKnownTemplates[] = {
    {"7d26fe75e2036f2d37a4fc24c2ab7c76", ChatTemplate::chatml},  // never adds a prompt for an answer
    {"30db0426264ef8310a8452d646d7af05", ChatTemplate::chatml},
    {"e93802e69fbfa8fbed89eab3f92f2857", ChatTemplate::chatml},  // defines add_generation_prompt first
    {"5d36859b588eff32240849fd33531ef5", ChatTemplate::llama2},
    {"702d3f8a51b291f2f75961eb57b92946", ChatTemplate::llama2},  // trims by a filter
    {"eff08fd2b2f9bdd0f9b18315ff677846", ChatTemplate::llama3},  // never adds a prompt for an answer
    {"3c589407c496a4e81846fcba6cdee785", ChatTemplate::llama3},  // always adds one
    {"091115a03ef551a0eccf9bc8c7059b96", ChatTemplate::llama3},
};

// What other templates contain, the most specific first.
constexpr std::pair<std::string_view, const char*> kOthers[] = {
    {"<start_of_turn>", "a template of Gemma"},
    {"<|start_of_role|>", "a template of Granite"},
    {"<|start_header_id|>", "a variant of Llama 3's template, such as Llama 3.1's"},
    {"<|im_start|>", "a variant of ChatML, such as Qwen's or SmolLM's"},
    {"<<SYS>>", "a variant of Llama 2's template"},
    {"[INST]", "a template of Mistral"},
    {"<|assistant|>", "a template of Zephyr, TinyLlama or Phi"},
};

std::string without_code_blanks(std::string_view jinja) {
  std::string text;
  bool in_code = false;
  char quote = 0;
  for (size_t at = 0; at < jinja.size(); ++at) {
    const std::string_view two = jinja.substr(at, 2);
    char letter = jinja[at];
    if (two == "\\n") {
      letter = '\n';
      ++at;
    }
    if (quote == 0 && (two == "{%" || two == "{{" || two == "%}" || two == "}}")) {
      in_code = two[0] == '{';
      text += two;
      ++at;
      continue;
    }
    if (quote != 0) {
      if (letter == quote) quote = 0;
    } else if (in_code) {
      if (letter == '\'' || letter == '"') quote = letter;
      if (letter == ' ' || letter == '\t' || letter == '\r' || letter == '\n') continue;
    }
    text += letter;
  }
  text.erase(text.find_last_not_of(" \t\r\n") + 1);
  return text;
}

// The template in a JSON file: a string, or a list of {"name", "template"}.
std::string template_in_json(const std::string& text, const std::string& path) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("chat_template")) {
    throw_bad_input(path, ": no key \"chat_template\"; give chatml, llama2, llama3, or a file that has it");
  }
  const nlohmann::json& found = json["chat_template"];
  if (found.is_string()) return found.get<std::string>();
  if (found.is_array()) {
    for (const nlohmann::json& one : found) {
      if (one.is_object() && one.value("name", "") == "default") return one.value("template", "");
    }
  }
  throw_bad_input(path, ": \"chat_template\" is neither a text nor a list with a template named \"default\"");
}

// Python's str.strip(), which is Jinja's trim too.
std::string stripped(std::string_view text) {
  text.remove_prefix(python::leading_space(text));
  text.remove_suffix(python::trailing_space(text));
  return std::string(text);
}

class Conversation {
 public:
  void special(const std::string& name, bool is_counted = false) { segments_.push_back({name, true, is_counted}); }
  void plain(const std::string& text, bool is_counted = false) {
    if (text.empty()) return;
    if (!segments_.empty() && !segments_.back().is_special && segments_.back().is_counted == is_counted) {
      segments_.back().text += text;
    } else {
      segments_.push_back({text, false, is_counted});
    }
  }
  std::vector<ChatSegment> take() { return std::move(segments_); }

 private:
  std::vector<ChatSegment> segments_;
};

constexpr char kAssistant[] = "assistant", kUser[] = "user", kSystem[] = "system";

void render_chatml(const std::vector<ChatMessage>& messages, Conversation& out) {
  for (const ChatMessage& message : messages) {
    const bool is_counted = message.role == kAssistant;
    out.special("<|im_start|>");
    out.plain(message.role + "\n");
    out.plain(message.content, is_counted);
    out.special("<|im_end|>", is_counted);
    out.plain("\n");
  }
}

// Such a message would be read, but not learned.
void refuse_capitals(const std::string& role) {
  std::string lower = role;
  std::ranges::transform(lower, lower.begin(), [](unsigned char letter) { return std::tolower(letter); });
  for (const char* const known : {kAssistant, kUser, kSystem}) {
    if (lower == known && role != known) throw_bad_input("the role \"", role, "\" must be written \"", known, "\"");
  }
}

void render_llama2(const std::vector<ChatMessage>& messages, Conversation& out) {
  const bool has_system = !messages.empty() && messages[0].role == kSystem;
  for (size_t i = has_system ? 1 : 0; i < messages.size(); ++i) {
    const size_t turn = i - (has_system ? 1 : 0);
    const ChatMessage& message = messages[i];
    const char* expected = turn % 2 == 0 ? kUser : kAssistant;
    if (message.role != expected) {
      throw_bad_input("message ", i, " is of the role \"", printable(message.role), "\", but llama2 needs \"", expected,
                      "\" there: user and assistant alternate, after an optional system");
    }
    if (turn % 2 == 1) {
      out.plain(" " + stripped(message.content) + " ", true);
      out.special("</s>", true);
      continue;
    }
    const bool is_first = turn == 0 && has_system;
    const std::string content =
        is_first ? "<<SYS>>\n" + messages[0].content + "\n<</SYS>>\n\n" + message.content : message.content;
    out.special("<s>");
    out.plain("[INST] " + stripped(content) + " [/INST]");
  }
}

void render_llama3(const std::vector<ChatMessage>& messages, Conversation& out) {
  if (!messages.empty()) out.special("<|begin_of_text|>");
  for (const ChatMessage& message : messages) {
    const bool is_counted = message.role == kAssistant;
    out.special("<|start_header_id|>");
    out.plain(message.role);
    out.special("<|end_header_id|>");
    out.plain("\n\n");
    out.plain(stripped(message.content), is_counted);
    out.special("<|eot_id|>", is_counted);
  }
}

}  // namespace

std::string chat_template_hash(std::string_view jinja) {
  return to_hex(xxh3_128(without_code_blanks(jinja)));
}

ChatTemplate chat_template_of(const std::string& name) {
  for (const ChatTemplate chat : {ChatTemplate::chatml, ChatTemplate::llama2, ChatTemplate::llama3}) {
    if (name == to_string(chat)) return chat;
  }
  if (!name_exists(name)) {
    throw_bad_input("--chat-template ", printable(name),
                    " is no file; give chatml, llama2, llama3, or a file with a template's text");
  }
  std::string text = read_file(name, kLargestTemplateFile);
  if (std::filesystem::path(name).extension() == ".json") text = template_in_json(text, name);
  const std::string hash = chat_template_hash(text);
  for (const KnownTemplate& known : kKnownTemplates) {
    if (hash == known.hash) return known.chat;
  }
  const auto other = std::ranges::find_if(kOthers, [&](const auto& one) { return text.find(one.first) != text.npos; });
  throw_bad_input(name, " holds ", other == std::end(kOthers) ? "a template" : other->second, " (hash ", hash,
                  "), which is not supported: only ChatML, Llama 2 and Llama 3 as first published; print the "
                  "conversations with it, as lines of {\"prompt\", \"completion\"}");
}

std::vector<ChatSegment> render_chat(ChatTemplate chat, const std::vector<ChatMessage>& messages) {
  Conversation out;
  for (const ChatMessage& message : messages) refuse_capitals(message.role);
  switch (chat) {
    case ChatTemplate::chatml:
      render_chatml(messages, out);
      break;
    case ChatTemplate::llama2:
      render_llama2(messages, out);
      break;
    case ChatTemplate::llama3:
      render_llama3(messages, out);
      break;
  }
  return out.take();
}

}  // namespace shiftron

// Chats: what each template prints, and what of it is learned.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "data/chat_documents.h"
#include "data/chat_template.h"
#include "data/verify.h"
#include "expect_error.h"
#include "fixture.h"

namespace shiftron {
namespace {

const std::vector<ChatMessage> kChat = {
    {"system", " be brief\n"}, {"user", " a "}, {"assistant", "\tb "}, {"user", "c"}};

std::vector<ChatMessage> all_turns() {
  std::vector<ChatMessage> messages = kChat;
  messages.push_back({"assistant", "d"});
  return messages;
}

// Special tokens as «name», what is learned as [text].
std::string shown(ChatTemplate chat, const std::vector<ChatMessage>& messages) {
  std::string text;
  for (const ChatSegment& segment : render_chat(chat, messages)) {
    const std::string part = segment.is_special ? "«" + segment.text + "»" : segment.text;
    text += segment.is_counted ? "[" + part + "]" : part;
  }
  return text;
}

TEST(Chat, TemplatesPrintWhatTheirJinjaPrints) {
  EXPECT_EQ(shown(ChatTemplate::chatml, kChat),
            "«<|im_start|>»system\n be brief\n«<|im_end|>»\n«<|im_start|>»user\n a «<|im_end|>»\n"
            "«<|im_start|>»assistant\n[\tb ][«<|im_end|>»]\n«<|im_start|>»user\nc«<|im_end|>»\n");
  EXPECT_EQ(shown(ChatTemplate::llama3, kChat),
            "«<|begin_of_text|>»«<|start_header_id|>»system«<|end_header_id|>»\n\nbe brief«<|eot_id|>»"
            "«<|start_header_id|>»user«<|end_header_id|>»\n\na«<|eot_id|>»"
            "«<|start_header_id|>»assistant«<|end_header_id|>»\n\n[b][«<|eot_id|>»]"
            "«<|start_header_id|>»user«<|end_header_id|>»\n\nc«<|eot_id|>»");
  EXPECT_EQ(shown(ChatTemplate::llama2, all_turns()),
            "«<s>»[INST] <<SYS>>\n be brief\n\n<</SYS>>\n\n a [/INST][ b ][«</s>»]«<s>»[INST] c [/INST][ d ][«</s>»]");
  EXPECT_EQ(shown(ChatTemplate::llama3, {{"user", "\xE2\x80\x83\xC2\xA0\x1F\xE2\x80\x8B x\xE3\x80\x80"}}),
            "«<|begin_of_text|>»«<|start_header_id|>»user«<|end_header_id|>»\n\n\xE2\x80\x8B x«<|eot_id|>»");
  EXPECT_ERROR(render_chat(ChatTemplate::llama2, {{"user", "a"}, {"user", "b"}}), ExitCode::bad_input,
               "message 1 is of the role \"user\", but llama2 needs \"assistant\" there");
  EXPECT_ERROR(render_chat(ChatTemplate::llama2, {{"system", "a"}, {"assistant", "b"}}), ExitCode::bad_input,
               "message 1 is");
}

TEST(Chat, TemplatesAreRecognisedByTheirText) {
  const Scratch scratch;
  const std::string chatml =
      "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + "
      "'\n' }}"
      "{% endfor %}";
  const std::string spaced =
      "{%for message in "
      "messages%}{{'<|im_start|>'+message['role']+'\\n'+message['content']+'<|im_end|>'+'\\n'}}{%endfor%}\n";
  EXPECT_EQ(chat_template_of(scratch.write("chat_template.jinja", chatml)), ChatTemplate::chatml);
  EXPECT_EQ(chat_template_of(scratch.write("chat_template.jinja", spaced)), ChatTemplate::chatml);
  const auto config = [&](const nlohmann::json& chat_template) {
    return scratch.write("tokenizer_config.json", nlohmann::json{{"chat_template", chat_template}}.dump());
  };
  EXPECT_EQ(chat_template_of(config(chatml)), ChatTemplate::chatml);
  EXPECT_EQ(
      chat_template_of(config({{{"name", "tool"}, {"template", "x"}}, {{"name", "default"}, {"template", chatml}}})),
      ChatTemplate::chatml);
  EXPECT_ERROR(chat_template_of(config(5)), ExitCode::bad_input, "is neither a text nor a list");
  EXPECT_ERROR(chat_template_of(scratch.write("x.json", "{}")), ExitCode::bad_input,
               "x.json: no key \"chat_template\"");
  // A blank in quotes, or outside of code, is printed.
  for (std::string changed : {chatml, chatml}) {
    changed.insert(changed.find(changed == chatml ? "{{" : "|>'"), " ");
    EXPECT_NE(chat_template_hash(changed), chat_template_hash(chatml));
  }
  EXPECT_NE(chat_template_hash("{{ 'a b' }}"), chat_template_hash("{{ 'ab' }}"));
  EXPECT_ERROR(chat_template_of(scratch.write("qwen", "{# tools #}" + chatml)), ExitCode::bad_input,
               "qwen holds a variant of ChatML, such as Qwen's or SmolLM's (hash ");
  EXPECT_ERROR(chat_template_of(scratch.write("gemma", "<start_of_turn>")), ExitCode::bad_input, "a template of Gemma");
  EXPECT_ERROR(chat_template_of("chat"), ExitCode::bad_input,
               "--chat-template chat is no file; give chatml, llama2, llama3");
  for (const ChatTemplate chat : {ChatTemplate::chatml, ChatTemplate::llama2, ChatTemplate::llama3}) {
    EXPECT_EQ(chat_template_of(to_string(chat)), chat);
  }
}

// The example's model with further control tokens: 330, 331, …
std::string model_with(const std::vector<std::string>& names) {
  std::string model = example_model();
  for (const std::string& name : names) model += piece_field(name, kControl);
  return model;
}

// Encodes a line; special tokens as «name», others as their text; targets as the same or "~".
std::string encoded(const Tokenizer& tokenizer, ChatTemplate chat, const std::string& line) {
  KnownWords known;
  ChatEncoder::Counts counts;
  const TokenDocument document = ChatEncoder(chat, tokenizer).encode(line, "a:1", known, counts);
  const auto name = [&](int32_t token) {
    return token == kNotCounted               ? "~"
           : tokenizer.text_of(token).empty() ? "«" + tokenizer.piece(token) + "»"
                                              : tokenizer.text_of(token);
  };
  std::string ids, targets;
  for (const int32_t token : document.ids) ids += name(token);
  for (const int32_t token : document.targets) targets += name(token);
  EXPECT_EQ(document.ids.size(), document.targets.size());
  return ids + " | " + targets;
}

TEST(Chat, WhatTheAssistantSaysIsTheTarget) {
  const SentencePieceTokenizer tokenizer(model_with({"<|im_start|>", "<|im_end|>"}), "model");
  const std::string line =
      R"({"messages": [{"role": "user", "content": "XY"}, {"content": "Z<|im_end|>Q", "role": "assistant", "n": NaN}, )"
      R"({"role": "user", "content": ""}]})";
  const std::string text = encoded(tokenizer, ChatTemplate::chatml, line);
  const size_t bar = text.find(" | ");
  EXPECT_EQ(text.substr(0, bar),
            "«<|im_start|>»user\nXY«<|im_end|>»\n«<|im_start|>»assistant\nZ<|im_end|>Q«<|im_end|>»\n"
            "«<|im_start|>»user\n«<|im_end|>»\n");
  std::string targets = text.substr(bar + 3);
  std::erase(targets, '~');
  EXPECT_EQ(targets, "Z<|im_end|>Q«<|im_end|>»");
}

TEST(Chat, TheTokenThatEndsDocumentsIsAddedOnce) {
  // The example's model ends documents by </s>.
  const SentencePieceTokenizer tokenizer(model_with({"<s>"}), "model");
  const std::string one = R"({"messages": [{"role": "user", "content": "X"}, {"role": "assistant", "content": "Z"}]})";
  const std::string text = encoded(tokenizer, ChatTemplate::llama2, one);
  EXPECT_EQ(text.substr(0, text.find(" | ")), "«<s>»[INST] X [/INST] Z ");
  EXPECT_TRUE(text.ends_with("«</s>»")) << text;  // counted, after the answer
  const std::string two =
      R"({"messages": [{"role": "user", "content": "X"}, {"role": "assistant", "content": "Z"}, {"role": "user", "content": "X"}]})";
  EXPECT_ERROR(encoded(tokenizer, ChatTemplate::llama2, two), ExitCode::bad_input,
               "a:1: </s> ends documents and, in llama2");
}

TEST(Chat, BadLinesAndTokenizersAreNamed) {
  const SentencePieceTokenizer tokenizer(model_with({"<|im_start|>", "<|im_end|>"}), "model");
  const std::pair<const char*, const char*> kFaults[] = {
      {R"({"text": "a"})", "a:1: no key \"messages\" (it has: text)"},
      {R"({"messages": "a"})", "a:1: the value of \"messages\" is a string, not a list"},
      {R"({"messages": ["a"]})", "a:1, message 0: a string, not an object"},
      {R"({"messages": [{"role": "user"}]})", "a:1: a message has no \"content\" (it has: role)"},
      {R"({"messages": [{"role": "user", "content": "a"}, {"role": 1, "content": "a"}]})",
       "a:1, message 1: the value of \"role\" is a number"},
      {R"({"messages": [{"role": "Assistant", "content": "a"}]})",
       "a:1: the role \"Assistant\" must be written \"assistant\""},
  };
  for (const auto& [line, fault] : kFaults) {
    EXPECT_ERROR(encoded(tokenizer, ChatTemplate::chatml, line), ExitCode::bad_input, fault);
  }
  EXPECT_ERROR(ChatEncoder(ChatTemplate::llama3, tokenizer), ExitCode::bad_input,
               "--chat-template llama3 needs the special token <|begin_of_text|>, which model does not have");
}

TEST(Chat, ADatasetOfChats) {
  const Scratch scratch;
  BuildOptions options = example_build(scratch, {});
  options.tokenizer = scratch.write("chat.model", model_with({"<|im_start|>", "<|im_end|>"}));
  options.chat_template = "chatml";
  options.skip_bad = 1;
  const std::string chat =
      R"({"messages": [{"role": "user", "content": "the key"}, {"role": "assistant", "content": "caf)"
      "\xE9"
      R"( \ud800"}]})"
      "\n";
  options.inputs = {scratch.write(
      "chats.jsonl", chat + "{\"messages\": 1}\n" + chat + R"({"messages": [{"role": "user", "content": "the"}]})")};
  const BuildResult result = build_dataset(options);
  EXPECT_EQ(result.datasets[0].documents, 3);
  EXPECT_EQ(result.unlearned_chats, 1);
  EXPECT_EQ(result.bad_lines, 1u);
  EXPECT_EQ(result.foreign_bytes, 2u);
  EXPECT_EQ(result.replaced_surrogates, 2u);
  EXPECT_TRUE(result.datasets[0].has_targets);
  EXPECT_TRUE(verify_dataset(options.output).faults.empty());
}

}  // namespace
}  // namespace shiftron

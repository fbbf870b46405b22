// The ids that llama.cpp gives with a vocabulary of the kind "llama", by plain loops. tests/interchange/check_gguf.py
// checks that llama.cpp gives those of the tokenizer.
#pragma once

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/check.h"
#include "interchange/gguf_vocabulary.h"
#include "tokenizer/utf8.h"

namespace shiftron {

class LlamaCppVocabulary {
 public:
  // finds_control: whether names of control tokens in a text become them (parse_special).
  explicit LlamaCppVocabulary(const GgufTokenizer& entries, bool finds_control = false) : entries_(entries) {
    for (size_t id = 0; id < entries.pieces.size(); ++id) {
      const bool is_new = ids_.emplace(entries.pieces[id].c_str(), id).second;  // as it reads names
      CHECK(is_new && !entries.pieces[id].empty(), "llama.cpp does not load two tokens of the same name");
      const int32_t type = entries.types[id];
      if (type == 4 || (finds_control && (type == 2 || type == 3))) found_.push_back(id);
    }
    std::ranges::stable_sort(found_, std::greater(), [&](size_t id) { return entries.pieces[id].size(); });
  }

  std::vector<int32_t> encode(const std::string& text) const {
    std::vector<Part> parts = {{text, -1}};
    for (const size_t id : found_) parts = split_at(parts, id);
    std::vector<int32_t> ids;
    bool follows_token = true;
    for (const Part& part : parts) {
      if (part.id >= 0) {
        ids.push_back(part.id);
      } else if (!part.text.empty()) {
        join((entries_.add_space_prefix && follows_token ? " " : "") + part.text, ids);
      }
      follows_token = part.id >= 0 || (follows_token && part.text.empty());
    }
    return ids;
  }

 private:
  struct Part {
    std::string text;
    int32_t id;  // -1: text
  };

  std::vector<Part> split_at(const std::vector<Part>& parts, size_t id) const {
    const std::string& name = entries_.pieces[id];
    std::vector<Part> result;
    for (const Part& part : parts) {
      size_t begin = 0;
      for (size_t at; part.id < 0 && (at = part.text.find(name, begin)) != std::string::npos;) {
        result.push_back({part.text.substr(begin, at - begin), -1});
        result.push_back({"", static_cast<int32_t>(id)});
        begin = at + name.size();
      }
      result.push_back({part.text.substr(begin), part.id});
    }
    return result;
  }

  void join(const std::string& text, std::vector<int32_t>& ids) const {
    std::vector<std::string> symbols;
    for (size_t at = 0; at < text.size();
         at += symbols.back() == kSpaceMark && text[at] == ' ' ? 1 : symbols.back().size()) {
      const std::string_view rest = std::string_view(text).substr(at);
      symbols.emplace_back(rest[0] == ' ' ? kSpaceMark : rest.substr(0, utf8_length(rest)));
    }
    while (true) {
      size_t best = symbols.size();
      float score = 0;
      for (size_t i = 0; i + 1 < symbols.size(); ++i) {
        const auto found = ids_.find(symbols[i] + symbols[i + 1]);
        if (found == ids_.end() || (best < symbols.size() && entries_.scores[found->second] <= score)) continue;
        best = i;
        score = entries_.scores[found->second];
      }
      if (best == symbols.size()) break;
      symbols[best] += symbols[best + 1];
      symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
    for (const std::string& symbol : symbols) append(symbol, ids);
  }

  void append(const std::string& symbol, std::vector<int32_t>& ids) const {
    if (const auto found = ids_.find(symbol); found != ids_.end()) {
      ids.push_back(static_cast<int32_t>(found->second));
      return;
    }
    for (const char byte : symbol) {
      char name[8];
      std::snprintf(name, sizeof(name), "<0x%02X>", static_cast<unsigned>(static_cast<unsigned char>(byte)));
      ids.push_back(static_cast<int32_t>(ids_.at(name)));
    }
  }

  const GgufTokenizer& entries_;
  std::map<std::string, size_t> ids_;
  std::vector<size_t> found_;  // in texts, longest first
};

}  // namespace shiftron

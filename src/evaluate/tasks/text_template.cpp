// Templates: parsed once, filled for each item.
#include "evaluate/tasks/text_template.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/check.h"
#include "core/nearest_name.h"
#include "evaluate/tasks/python_json.h"
#include "evaluate/tasks/python_text.h"
#include "evaluate/tasks/wikitext.h"
#include "tokenizer/utf8.h"

namespace shiftron {
namespace {

using Json = nlohmann::ordered_json;

std::string last_word(const std::string& text) {
  return python::split(text, " ").back();
}

std::string words_but_last(const std::string& text) {
  const size_t at = text.rfind(' ');
  return at == std::string::npos ? "" : text.substr(0, at);
}

// Letters of choices: A, B, …
std::string letter(size_t number) {
  return std::string(1, static_cast<char>('A' + number));
}

Json letters(const Json& list) {
  Json result = Json::array();
  for (size_t i = 0; i < list.size(); ++i) result.push_back(letter(i));
  return result;
}

Json lettered(const Json& list) {
  std::string text;
  for (size_t i = 0; i < list.size(); ++i) {
    text += (i > 0 ? "\n" : "") + letter(i) + ". " + list[i].get<std::string>();
  }
  return text;
}

enum class Takes { text, texts, text_or_number };

struct Filter {
  FilterHelp help;
  Takes takes;
  Json (*apply)(const Json& value) = nullptr;
  Json (*look_up)(const Json& value, const FilterTable& table) = nullptr;  // instead of apply; null if not found
};

const std::string& text_in(const Json& value) {
  return value.get_ref<const std::string&>();
}

// A text or a number as it stands in a prompt; nothing for other values.
std::optional<std::string> prompt_text(const Json& value) {
  if (value.is_string()) return text_in(value);
  if (value.is_number_float()) return python::repr(value.get<double>());
  if (value.is_number()) return value.dump();
  return std::nullopt;
}

std::string first_in_lower_case(const std::string& text) {
  const size_t first = utf8_length(text);
  return python::lower(text.substr(0, first)) + text.substr(first);
}

std::string without_last(const std::string& text) {
  size_t end = text.empty() ? 0 : text.size() - 1;
  while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80) --end;  // not within a character
  return text.substr(0, end);
}

Json one_of(const Json& value, const FilterTable& table) {
  for (const auto& [from, to] : table) {
    if (from == prompt_text(value)) return to;
  }
  return nullptr;
}

const Filter kFilters[] = {
    {{"strip", "without white space at both ends"},
     Takes::text,
     [](const Json& v) -> Json { return python::strip(text_in(v)); }},
    {{"strip_left", "without white space at the beginning"},
     Takes::text,
     [](const Json& v) -> Json { return python::strip_left(text_in(v)); }},
    {{"strip_right", "without white space at the end"},
     Takes::text,
     [](const Json& v) -> Json { return python::strip_right(text_in(v)); }},
    {{"lower_first", "the first letter in lower case"},
     Takes::text,
     [](const Json& v) -> Json { return first_in_lower_case(text_in(v)); }},
    {{"without_last", "without the last character"},
     Takes::text,
     [](const Json& v) -> Json { return without_last(text_in(v)); }},
    {{"one_of", "one_of:cause=because,effect=therefore: the text that stands for the value"},
     Takes::text_or_number,
     nullptr,
     one_of},
    {{"last_word", "the text after the last space"},
     Takes::text,
     [](const Json& v) -> Json { return last_word(text_in(v)); }},
    {{"words_but_last", "the text before the last space"},
     Takes::text,
     [](const Json& v) -> Json { return words_but_last(text_in(v)); }},
    {{"before_blank", "the text before the first underscore"},
     Takes::text,
     [](const Json& v) -> Json { return text_in(v).substr(0, text_in(v).find('_')); }},
    {{"after_blank", "the text after the first underscore"},
     Takes::text,
     [](const Json& v) -> Json {
       const size_t at = text_in(v).find('_');
       return at == std::string::npos ? "" : text_in(v).substr(at + 1);
     }},
    {{"detokenized", "without WikiText's spaces around punctuation"},
     Takes::text,
     [](const Json& v) -> Json { return detokenized_wikitext(text_in(v)); }},
    {{"letters", "for a list: its letters A, B, …"}, Takes::texts, letters},
    {{"lettered", "for a list: lines \"A. …\", \"B. …\""}, Takes::texts, lettered},
};

const Filter* find_filter(const std::string& name) {
  for (const Filter& filter : kFilters) {
    if (name == filter.help.name) return &filter;
  }
  return nullptr;
}

// "a=b,c=d". Throws Error(bad_input) if it is something else.
FilterTable table_of(const std::string& text, const std::string& where) {
  FilterTable table;
  for (const std::string& pair : python::split(text, ",")) {
    const size_t at = pair.find('=');
    if (at == std::string::npos) throw_bad_input(where, ": \"", printable(pair), "\" is not VALUE=TEXT");
    table.emplace_back(pair.substr(0, at), pair.substr(at + 1));
  }
  return table;
}

bool is_list_of_texts(const Json& value) {
  if (!value.is_array() || value.size() > 26) return false;
  for (const Json& part : value) {
    if (!part.is_string()) return false;
  }
  return true;
}

bool is_taken(Takes takes, const Json& value) {
  if (takes == Takes::texts) return is_list_of_texts(value);
  return value.is_string() || (takes == Takes::text_or_number && value.is_number());
}

const char* taken_text(Takes takes) {
  if (takes == Takes::texts) return "list of at most 26 texts";
  return takes == Takes::text ? "text" : "text or number";
}

std::string keys_of(const Json& object) {
  std::string keys;
  for (const auto& item : object.items()) keys += (keys.empty() ? "" : ", ") + item.key();
  return printable(keys);
}

// The part of `value` with that name or index; null if there is none.
const Json* part_of(const Json& value, const std::string& name) {
  if (value.is_object()) {
    const auto found = value.find(name);
    return found == value.end() ? nullptr : &*found;
  }
  size_t index = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
  const bool whole = error == std::errc() && end == name.data() + name.size();
  return value.is_array() && whole && index < value.size() ? &value[index] : nullptr;
}

}  // namespace

std::vector<FilterHelp> template_filters() {
  std::vector<FilterHelp> result;
  for (const Filter& filter : kFilters) result.push_back(filter.help);
  return result;
}

ItemValue::ItemValue(std::string_view text, const std::string& where) : text_(text) {
  std::vector<std::string> parts = python::split(text, "|");
  for (size_t i = 1; i < parts.size(); ++i) {
    const size_t colon = parts[i].find(':');
    const std::string called = parts[i].substr(0, colon);
    const Filter* filter = find_filter(called);
    if (filter == nullptr) {
      std::vector<std::string> names;
      for (const Filter& each : kFilters) names.emplace_back(each.help.name);
      std::string known;
      for (const std::string& name : names) known += (known.empty() ? "" : ", ") + name;
      throw_bad_input(where, ": {", printable(text), "}: no filter ", printable(called), suggestion(called, names),
                      "; filters are ", known);
    }
    const bool has_table = colon != std::string::npos;
    if (has_table != (filter->look_up != nullptr)) {
      throw_bad_input(where, ": {", printable(text), "}: ", called,
                      has_table ? " takes no values" : " needs values, as in one_of:cause=because,effect=therefore");
    }
    filters_.push_back({called, has_table ? table_of(parts[i].substr(colon + 1), where) : FilterTable()});
  }
  path_ = python::split(parts[0], ".");
  for (const std::string& name : path_) {
    if (name.empty()) {
      throw_bad_input(where, ": {", printable(text), "} names no column; for a literal brace, write {{ or }}");
    }
  }
}

Json ItemValue::of(const Json& item, const std::string& where) const {
  const Json* value = &item;
  for (const std::string& name : path_) {
    const Json* part = part_of(*value, name);
    if (part == nullptr) {
      const std::string has = value->is_object()  ? "it has " + keys_of(*value)
                              : value->is_array() ? "a list of " + std::to_string(value->size()) + ", counted from 0"
                                                  : std::string("a ") + value->type_name();
      throw_bad_input(where, ": {", text_, "}: no ", name, " (", has, ")");
    }
    value = part;
  }
  Json result = *value;
  for (const auto& [name, table] : filters_) {
    const Filter& filter = *find_filter(name);
    if (!is_taken(filter.takes, result)) {
      throw_bad_input(where, ": {", text_, "}: ", name, " takes a ", taken_text(filter.takes), ", not a ",
                      result.type_name());
    }
    if (filter.look_up == nullptr) {
      result = filter.apply(result);
      continue;
    }
    const Json found = filter.look_up(result, table);
    if (found.is_null()) {
      std::string known;
      for (const auto& [from, to] : table) known += (known.empty() ? "" : ", ") + from;
      throw_bad_input(where, ": {", text_, "}: the value is \"", printable(*prompt_text(result)), "\", not one of ",
                      known);
    }
    result = found;
  }
  return result;
}

std::vector<std::string> ItemValue::texts_of(const Json& item, const std::string& where) const {
  const Json value = of(item, where);
  std::vector<std::string> texts;
  for (const Json& part : value.is_array() ? value : Json::array()) {
    if (part.is_string()) texts.push_back(part.get<std::string>());
  }
  if (!value.is_array() || texts.size() != value.size() || texts.empty()) {
    throw_bad_input(where, ": ", text_, " is not a list of texts");
  }
  return texts;
}

TextTemplate::TextTemplate(std::string_view text, const std::string& where) {
  std::string literal;
  for (size_t at = 0; at < text.size(); ++at) {
    const bool brace = text[at] == '{' || text[at] == '}';
    if (!brace) {
      literal += text[at];
    } else if (at + 1 < text.size() && text[at + 1] == text[at]) {
      literal += text[at++];
    } else if (const size_t end = text.find('}', at); text[at] == '{' && end != std::string_view::npos) {
      pieces_.push_back({literal, ItemValue(text.substr(at + 1, end - at - 1), where)});
      literal.clear();
      at = end;
    } else {
      throw_bad_input(where, ": \"", printable(text), "\" has a single ", text[at],
                      "; for a literal brace, write it twice");
    }
  }
  if (!literal.empty()) pieces_.push_back({literal, {}});
}

std::string TextTemplate::of(const Json& item, const std::string& where) const {
  std::string text;
  for (const Piece& piece : pieces_) {
    text += piece.literal;
    if (piece.value.text().empty()) continue;
    const Json value = piece.value.of(item, where);
    if (const auto filled = prompt_text(value)) {
      text += *filled;
    } else {
      throw_bad_input(where, ": {", piece.value.text(), "} is a JSON ", value.type_name(), ", not a text or a number");
    }
  }
  return text;
}

}  // namespace shiftron

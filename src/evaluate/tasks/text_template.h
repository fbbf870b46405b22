// Text templates filled with the columns of an item: "Question: {question|strip}\nAnswer:".
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shiftron {

// "cause=because,effect=therefore" after a filter's name and a colon: which text stands for which.
using FilterTable = std::vector<std::pair<std::string, std::string>>;

// A value from an item: a column, parts of it after dots (choices.text, options.0), then filters after bars.
class ItemValue {
 public:
  ItemValue() = default;
  // Throws Error(bad_input), beginning with `where`, for an unknown filter, a wrong table or an empty name.
  ItemValue(std::string_view text, const std::string& where);
  // Throws Error(bad_input), beginning with `where`, if there is no such column or a filter cannot be applied.
  nlohmann::ordered_json of(const nlohmann::ordered_json& item, const std::string& where) const;
  // A list of texts.
  std::vector<std::string> texts_of(const nlohmann::ordered_json& item, const std::string& where) const;
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::vector<std::string> path_;
  struct Use {
    std::string filter;
    FilterTable table;
  };
  std::vector<Use> filters_;
};

// Braces contain an ItemValue that is a text or a number; {{ and }} are literal braces.
class TextTemplate {
 public:
  TextTemplate() = default;
  TextTemplate(std::string_view text, const std::string& where);
  std::string of(const nlohmann::ordered_json& item, const std::string& where) const;

 private:
  struct Piece {
    std::string literal;
    ItemValue value;  // used if its text is not empty
  };
  std::vector<Piece> pieces_;
};

// The filters' names with what they do, for the documentation and for messages.
struct FilterHelp {
  const char* name;
  const char* help;
};
std::vector<FilterHelp> template_filters();

}  // namespace shiftron

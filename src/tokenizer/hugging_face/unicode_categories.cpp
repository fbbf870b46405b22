// From PropertyValueAliases.txt of the Unicode Character Database.
#include "tokenizer/hugging_face/unicode_categories.h"

#include <cctype>
#include <utility>

namespace shiftron {
namespace {

// clang-format off
constexpr std::pair<std::string_view, std::string_view> kCategories[] = {
    {"L", "letter"}, {"L&", "casedletter"}, {"Lu", "uppercaseletter"}, {"Ll", "lowercaseletter"}, {"Lt", "titlecaseletter"},
    {"Lm", "modifierletter"}, {"Lo", "otherletter"}, {"M", "mark"}, {"Mn", "nonspacingmark"}, {"Mc", "spacingmark"},
    {"Me", "enclosingmark"}, {"N", "number"}, {"Nd", "decimalnumber"}, {"Nl", "letternumber"}, {"No", "othernumber"},
    {"P", "punctuation"}, {"Pc", "connectorpunctuation"}, {"Pd", "dashpunctuation"}, {"Ps", "openpunctuation"},
    {"Pe", "closepunctuation"}, {"Pi", "initialpunctuation"}, {"Pf", "finalpunctuation"}, {"Po", "otherpunctuation"},
    {"S", "symbol"}, {"Sm", "mathsymbol"}, {"Sc", "currencysymbol"}, {"Sk", "modifiersymbol"}, {"So", "othersymbol"},
    {"Z", "separator"}, {"Zs", "spaceseparator"}, {"Zl", "lineseparator"}, {"Zp", "paragraphseparator"}, {"C", "other"},
    {"Cc", "control"}, {"Cf", "format"}, {"Cs", "surrogate"}, {"Co", "privateuse"}, {"Cn", "unassigned"}, {"Any", "any"},
};
// clang-format on

std::string lower(std::string_view text) {
  std::string result;
  for (const char letter : text) {
    if (letter != ' ' && letter != '_' && letter != '-')
      result += static_cast<char>(std::tolower(static_cast<uint8_t>(letter)));
  }
  return result;
}

}  // namespace

std::string general_category(std::string_view name) {
  const std::string key = lower(name);
  for (const auto& [own, words] : kCategories) {
    if (key == words || key == lower(own) || (key == "lc" && own == "L&")) return std::string(own);
  }
  return "";
}

}  // namespace shiftron

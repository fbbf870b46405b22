// A recursive descent over the pattern that writes its translation.
#include "tokenizer/hugging_face/pattern_translation.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/hugging_face/character_set.h"
#include "tokenizer/hugging_face/code_points.h"
#include "tokenizer/hugging_face/recent_characters.h"
#include "tokenizer/hugging_face/unicode_categories.h"

namespace shiftron {
namespace {

constexpr std::string_view kSpaces =
    "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{"
    "2029}\\x{202f}\\x{205f}\\x{3000}";
constexpr std::string_view kNoSpaces =
    "\\x00-\\x08\\x0e-\\x1f\\x21-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{"
    "1681}-\\x{1fff}\\x{200b}-\\x{2027}"
    "\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{"
    "10ffff}";
constexpr std::string_view kWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
// Oniguruma takes these for word characters too, but not within a set.
constexpr std::string_view kMoreWord = "\\xb2\\xb3\\xb9\\xbc-\\xbe";

class Translation {
 public:
  Translation(std::string_view pattern, const JsonPart& where, bool knows_recent)
      : pattern_(pattern), where_(where), knows_recent_(knows_recent), word_in_sets_(kWord), digits_("\\p{Nd}") {
    if (knows_recent) {
      for (const char* const category : {"L", "M", "Nd", "Nl", "Pc"}) word_in_sets_ += recent_characters(category);
      digits_ += recent_characters("Nd");
    }
    word_ = word_in_sets_ + std::string(kMoreWord);
  }

  std::string run() {
    alternatives();
    if (!at_end()) refuse("a ) without its (");
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    where_.refuse("the regular expression has ", what, ", which is not supported: ", printable(pattern_));
  }
  bool at_end() const { return at_ == pattern_.size(); }
  bool takes(std::string_view text) {
    if (pattern_.substr(at_).substr(0, text.size()) != text) return false;
    at_ += text.size();
    return true;
  }
  char peek() const { return at_end() ? '\0' : pattern_[at_]; }
  char32_t take_character() {
    if (at_end()) refuse("an incomplete end");
    const CodePoint character = first_code_point(pattern_.substr(at_));
    at_ += character.bytes;
    return character.value;
  }

  // Up to the end of the pattern or of the group.
  void alternatives() {
    size_t atom = std::string::npos;  // where the last one begins in out_; npos:
                                      // none that can be repeated
    for (bool first = true; !at_end() && peek() != ')'; first = false) {
      if (takes("|")) {
        out_ += '|';
        atom = std::string::npos;
      } else if (is_quantifier()) {
        if (atom == std::string::npos) refuse("a quantifier of nothing");
        quantify(atom);
        atom = std::string::npos;  // a further quantifier is refused
      } else {
        atom = out_.size();
        if (!one(first)) atom = std::string::npos;
      }
    }
  }

  // {n}, {n,}, {,m} or {n,m} at this place.
  struct Interval {
    std::string text;
    size_t end;
    bool is_fixed;
  };
  std::optional<Interval> interval() const {
    if (peek() != '{') return std::nullopt;
    size_t at = at_ + 1;
    const auto number = [&] {
      std::string digits;
      while (at < pattern_.size() && std::isdigit(static_cast<uint8_t>(pattern_[at])) != 0) digits += pattern_[at++];
      return digits;
    };
    std::string least = number();
    const bool has_comma = at < pattern_.size() && pattern_[at] == ',';
    if (has_comma) ++at;
    const std::string most = has_comma ? number() : "";
    if (at >= pattern_.size() || pattern_[at] != '}' || (least.empty() && most.empty())) return std::nullopt;
    if (least.empty()) least = "0";
    return Interval{"{" + least + (has_comma ? "," : "") + most + "}", at + 1, !has_comma};
  }
  bool is_quantifier() const { return peek() == '*' || peek() == '+' || peek() == '?' || interval().has_value(); }
  void quantify(size_t atom) {
    const auto repeated = interval();
    if (!repeated) {
      out_ += pattern_[at_++];
      if (peek() == '?' || peek() == '+') out_ += pattern_[at_++];
    } else {
      out_ += repeated->text;
      at_ = repeated->end;
      if (takes("?")) {
        if (repeated->is_fixed) out_.insert(atom, "(?:").append(")");
        out_ += '?';
      } else if (takes("+")) {  // in Ruby, a repetition of the repetition
        out_.insert(atom, "(?:").append(")+");
      }
    }
    if (is_quantifier()) refuse("a quantifier of a quantifier");
  }

  // Returns whether it can be repeated.
  bool one(bool first) {
    if (takes("[")) {
      out_ += bracket();
    } else if (takes("(")) {
      return group(first);
    } else if (takes("\\")) {
      return escape();
    } else if (takes("^") || takes("$")) {
      out_ += pattern_[at_ - 1];
      return false;
    } else if (takes(".")) {
      out_ += '.';
    } else {
      out_ += escaped(take_character());
    }
    return true;
  }

  bool group(bool first) {
    static constexpr std::string_view kKinds[] = {"?:", "?=", "?!", "?<=", "?<!", "?>"};
    if (takes("?#")) {
      while (!at_end() && peek() != ')') ++at_;
      close();
      return false;
    }
    const auto* const kind = std::ranges::find_if(kKinds, [this](std::string_view one) { return takes(one); });
    std::string opening;
    bool is_width = true;
    if (kind != std::end(kKinds)) {
      opening = *kind;
      is_width = opening == "?:" || opening == "?>";
    } else if (takes("?<") || takes("?'")) {
      while (!at_end() && peek() != '>' && peek() != '\'') ++at_;
      if (at_end()) refuse("a name without an end");
      ++at_;
      opening = "?:";
    } else if (takes("?")) {
      opening = "?" + options();
      if (takes(")")) {
        if (!first) refuse("options within a group");
        out_ += "(" + opening + ")";
        return false;
      }
      if (!takes(":")) refuse("an unknown kind of group");
      opening += ":";
    } else {
      opening = "?:";
    }
    out_ += "(" + opening;
    if (++depth_ > kMostGroups) refuse("too many groups in one another");
    alternatives();
    --depth_;
    out_ += ")";
    close();
    return is_width;
  }
  void close() {
    if (!takes(")")) refuse("a ( without its )");
  }
  std::string options() {
    std::string found;
    for (;; ++at_) {
      if (peek() == 'i' || peek() == '-') {
        found += peek();
      } else if (peek() == 'm') {  // Ruby's name for it
        found += 's';
      } else {
        return found;
      }
    }
  }

  bool escape() {
    if (takes("b") || takes("B")) {
      const std::string word = "[" + word_ + "]";
      const bool is_border = pattern_[at_ - 1] == 'b';
      out_ += "(?:(?<=" + word + ")" + (is_border ? "(?!" : "(?=") + word + ")|(?<!" + word + ")" +
              (is_border ? "(?=" : "(?!") + word + "))";
      return false;
    }
    if (takes("A") || takes("z") || takes("Z")) {
      out_ += std::string("\\") + pattern_[at_ - 1];
      return false;
    }
    if (takes("R")) {
      out_ += "(?>\\x0d\\x0a|[\\x0a-\\x0d\\x{85}\\x{2028}\\x{2029}])";
      return true;
    }
    if (const auto set = named_set(word_)) {
      out_ += positive(*set);
    } else {
      out_ += escaped(escaped_character());
    }
    return true;
  }

  // After a backslash: \s, \p{…} and so on. word: what \w stands for at this place.
  std::optional<CharacterSet> named_set(const std::string& word) {
    if (takes("s")) return CharacterSet{std::string(kSpaces)};
    if (takes("S")) return CharacterSet{std::string(kNoSpaces)};
    if (takes("d")) return CharacterSet{digits_};
    if (takes("D")) return CharacterSet{.others = {"[^" + digits_ + "]"}};
    if (takes("h")) return CharacterSet{"0-9a-fA-F"};
    if (takes("H")) return CharacterSet{.others = {"[^0-9a-fA-F]"}};
    if (takes("w")) return CharacterSet{word};
    if (takes("W")) return CharacterSet{.others = {"[^" + word + "]"}};
    if (!takes("p{") && !takes("P{")) return std::nullopt;
    bool is_negative = pattern_[at_ - 2] == 'P';
    if (takes("^")) is_negative = !is_negative;
    const size_t end = pattern_.find('}', at_);
    if (end == std::string_view::npos) refuse("a property without an end");
    const std::string_view name = pattern_.substr(at_, end - at_);
    at_ = end + 1;
    return property(name, is_negative, word);
  }

  CharacterSet property(std::string_view name, bool is_negative, const std::string& word) const {
    std::string key;
    for (const char letter : name) {
      const bool is_letter = std::isalnum(static_cast<uint8_t>(letter)) != 0;
      if (!is_letter && letter != '_' && letter != ' ' && letter != '-' && letter != '&') {
        refuse("the property " + printable(name));
      }
      if (is_letter || letter == '&') key += static_cast<char>(std::tolower(static_cast<uint8_t>(letter)));
    }
    const auto inside = [&](std::string_view text) {
      return is_negative ? CharacterSet{.others = {"[^" + std::string(text) + "]"}} : CharacterSet{std::string(text)};
    };
    if (key == "alpha") return inside("\\p{Alphabetic}");
    if (key == "alnum") return inside("\\p{Alphabetic}" + digits_);
    if (key == "space" || key == "whitespace")
      return is_negative ? CharacterSet{std::string(kNoSpaces)} : inside(kSpaces);
    if (key == "digit") return inside(digits_);
    if (key == "word") return inside(word);
    if (key == "upper") return inside("\\p{Uppercase}");
    if (key == "lower") return inside("\\p{Lowercase}");
    std::string own = general_category(name);
    if (own.empty()) own = "sc:" + key;  // PCRE2 refuses what is no script
    std::string recent;
    if (knows_recent_) {
      recent = own.starts_with("sc:") ? recent_script_characters(key)
               : own == "L&"          ? recent_characters("Lu") + recent_characters("Ll")
                                      : recent_characters(own);
    }
    if (recent.empty()) return CharacterSet{std::string(is_negative ? "\\P{" : "\\p{") + own + "}"};
    return inside("\\p{" + own + "}" + recent);
  }

  // After a backslash: one character.
  char32_t escaped_character() {
    const char32_t letter = take_character();
    static constexpr std::pair<char32_t, char32_t> kControls[] = {{'n', '\n'}, {'r', '\r'}, {'t', '\t'}, {'f', '\f'},
                                                                  {'v', '\v'}, {'a', '\a'}, {'e', 0x1B}, {'0', 0}};
    const auto* const control = std::ranges::find(kControls, letter, &std::pair<char32_t, char32_t>::first);
    if (control != std::end(kControls)) return control->second;
    if (letter == 'u') return hexadecimal(4, 4);
    if (letter == 'x') {
      if (!takes("{")) return hexadecimal(1, 2);
      const char32_t value = hexadecimal(1, 8);
      if (!takes("}")) refuse("a number without an end");
      return value;
    }
    if (letter < 0x80 && std::isalnum(static_cast<int>(letter)) != 0) {
      refuse(std::string("\\") + static_cast<char>(letter));
    }
    return letter;
  }
  char32_t hexadecimal(int least, int most) {
    char32_t value = 0;
    int digits = 0;
    for (; digits < most && !at_end() && std::isxdigit(static_cast<uint8_t>(peek())) != 0; ++digits) {
      const char digit = pattern_[at_++];
      value = value * 16 + static_cast<char32_t>(digit <= '9' ? digit - '0' : (digit | 32) - 'a' + 10);
    }
    if (digits < least || value > 0x10FFFF) refuse("a character number that is none");
    return value;
  }

  // After a [: up to its ]. An expression of one character.
  std::string bracket() {
    if (++depth_ > kMostGroups) refuse("too many sets in one another");
    const bool is_negative = takes("^");
    std::vector<CharacterSet> met(1);                               // joined by &&
    for (bool first = true; first || !takes("]"); first = false) {  // a ] that comes first is a character
      if (at_end()) refuse("a [ without its ]");
      if (takes("&&")) {
        met.emplace_back();
      } else {
        member(met.back());
      }
    }
    --depth_;
    if (met.size() == 1) return is_negative ? negative(met[0]) : positive(met[0]);
    std::string all;
    for (size_t i = 0; i + 1 < met.size(); ++i) all += "(?=" + positive(met[i]) + ")";
    all += positive(met.back());
    return is_negative ? "(?:(?!" + all + ")(?s:.))" : "(?:" + all + ")";
  }

  void member(CharacterSet& set) {
    if (takes("[:")) {
      const bool is_negative = takes("^");
      const size_t end = pattern_.find(":]", at_);
      if (end == std::string_view::npos) refuse("a [: without its :]");
      static constexpr std::string_view kNames[] = {"alpha", "alnum", "space", "digit", "word", "upper", "lower"};
      const std::string_view name = pattern_.substr(at_, end - at_);
      if (std::ranges::find(kNames, name) == std::end(kNames)) refuse("[:" + printable(name) + ":]");
      at_ = end + 2;
      return add(set, property(name, is_negative, word_in_sets_));
    }
    if (takes("[")) {
      set.others.push_back(bracket());
      return;
    }
    if (takes("\\")) {
      if (const auto named = named_set(word_in_sets_)) return add(set, *named);
      return range(set, takes("b") ? U'\b' : escaped_character());
    }
    range(set, take_character());
  }
  static void add(CharacterSet& set, const CharacterSet& more) {
    set.inside += more.inside;
    set.others.insert(set.others.end(), more.others.begin(), more.others.end());
  }
  void range(CharacterSet& set, char32_t first) {
    set.inside += escaped(first);
    const std::string_view rest = pattern_.substr(at_);
    if (!rest.starts_with("-") || rest.size() < 2 || rest[1] == ']' || rest[1] == '[') return;
    const size_t before = at_++;
    char32_t last = 0;
    if (takes("\\")) {
      if (named_set(word_in_sets_)) {  // as in [a-\s]: a hyphen
        at_ = before;
        return;
      }
      last = escaped_character();
    } else {
      last = take_character();
    }
    if (last < first) refuse("a range that ends before it begins");
    set.inside += "-" + escaped(last);
  }

  static constexpr int kMostGroups = 50;
  std::string_view pattern_;
  const JsonPart& where_;
  bool knows_recent_;
  std::string word_in_sets_, digits_;  // insides of sets
  std::string word_;                   // likewise, outside of a pattern's sets
  size_t at_ = 0;
  int depth_ = 0;
  std::string out_{};
};

}  // namespace

std::string translate_pattern(const std::string& pattern, const JsonPart& where, bool knows_recent) {
  return Translation(pattern, where, knows_recent).run();
}

}  // namespace shiftron

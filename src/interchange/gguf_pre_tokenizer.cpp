// The names are those of llama-vocab.cpp; tests/interchange/check_gguf.py compares each with the package `tokenizers`.
#include "interchange/gguf_pre_tokenizer.h"

#include <algorithm>
#include <vector>

#include "core/check.h"
#include "core/foreign_text.h"

namespace shiftron {
namespace {

struct KnownPreTokenizer {
  const char* name;
  bool ignores_merges;             // of the model
  std::vector<std::string> steps;  // see steps_of()
  const char* difference = "";
};

const char* const kCase = "it tells upper case from lower case only in the letters A to Z";
const char* const kDigits = "Digits";           // each digit alone
const char* const kNumbers = "Digits in runs";  // digits together
const char* const kWords = "ByteLevel";         // with GPT-2's expression
const std::string kContractions = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const std::string kRest = R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string kThreeDigits = kContractions + R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})" + kRest;  // Llama 3's
const std::string kLowerWord = R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)";
const std::string kUpperWord = R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)";
const std::string kRestWithSlash = R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

const std::vector<KnownPreTokenizer>& known_pre_tokenizers() {
  static const std::vector<KnownPreTokenizer> list = {
      {"gpt-2", false, {kWords}},
      {"smollm", false, {kDigits, kWords}},
      {"llama-bpe", true, {kThreeDigits}},
      {"dbrx", false, {kThreeDigits}},
      {"qwen2", false, {kContractions + R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})" + kRest}},
      {"qwen35",
       false,
       {kContractions +
        R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}},
      {"deepseek-v3",
       false,
       {R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+",
        R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
        R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}},
      {"deepseek-coder", false, {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", "[一-龥ࠀ-一가-퟿]+", kDigits}},
      {"gpt-4o",
       false,
       {kLowerWord + kContractions + "?" + kUpperWord + kContractions + "?" + R"(|\p{N}{1,3})" + kRestWithSlash},
       kCase},
      {"tekken", true, {kLowerWord + kUpperWord + R"(|\p{N})" + kRestWithSlash}, kCase},
      {"bloom", false, {R"( ?[^(\s|[.,!?…。，、।۔،])]+)"}}};
  return list;
}

// Files state line ends as such or as escapes, and escape quotes or not.
std::string in_one_form(const std::string& pattern) {
  std::string text;
  for (size_t at = 0; at < pattern.size(); ++at) {
    const char character = pattern[at];
    if (character == '\\' && at + 1 < pattern.size()) {
      if (pattern[at + 1] != '"') text += character;
      text += pattern[++at];
    } else if (character == '\r' || character == '\n') {
      text += character == '\r' ? "\\r" : "\\n";
    } else {
      text += character;
    }
  }
  return text;
}

void require_isolated(const JsonPart& part) {
  const std::string behaviour = part["behavior"].text();
  if (behaviour == "Isolated" && !part["invert"].boolean_or(false)) return;
  part.refuse("llama.cpp cuts at matches, which is \"behavior\": \"Isolated\" and \"invert\": false; this is ",
              printable(behaviour), part["invert"].boolean_or(false) ? ", inverted" : "");
}

void add_steps(const JsonPart& part, std::vector<std::string>& steps) {
  const std::string type = part["type"].text();
  if (type == "Sequence") {
    for (const JsonPart& one : part["pretokenizers"].list()) add_steps(one, steps);
  } else if (type == "Split") {
    require_isolated(part);
    steps.push_back(in_one_form(part["pattern"]["Regex"].text_or("")));
    if (steps.back().empty()) part["pattern"].refuse("is not a regular expression");
  } else if (type == "Digits") {
    steps.emplace_back(part["individual_digits"].boolean_or(false) ? kDigits : kNumbers);
  } else if (type == "ByteLevel") {
    if (part["add_prefix_space"].boolean()) {
      part["add_prefix_space"].refuse("is true, but llama.cpp puts no space in front of a text");
    }
    if (part["use_regex"].boolean_or(true)) steps.emplace_back(kWords);
  } else {
    part.refuse("llama.cpp does not know the pre-tokenizer ", printable(type));
  }
}

}  // namespace

GgufPreTokenizer gguf_pre_tokenizer(const JsonPart& file) {
  const JsonPart part = file["pre_tokenizer"];
  std::vector<std::string> steps;
  add_steps(part, steps);
  const bool ignores_merges = file["model"]["ignore_merges"].boolean_or(false);
  bool has_steps = false;
  for (const KnownPreTokenizer& one : known_pre_tokenizers()) {
    if (one.steps != steps) continue;
    if (one.ignores_merges == ignores_merges) return {one.name, one.difference};
    has_steps = true;
  }
  if (has_steps) {
    file["model"]["ignore_merges"].refuse("llama.cpp knows this pre-tokenizer only with ",
                                          ignores_merges ? "false" : "true");
  }
  std::string list;
  for (const std::string& step : steps) list += (list.empty() ? "\"" : ", \"") + printable(step) + "\"";
  std::string names;
  for (const KnownPreTokenizer& one : known_pre_tokenizers())
    names += (names.empty() ? "" : ", ") + std::string(one.name);
  part.refuse("llama.cpp has no name for the way it cuts words: ", list, "; names with known expressions: ", names);
}

}  // namespace shiftron

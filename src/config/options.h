// The table of all configuration keys: parsing, help, text, JSON and comparison all use it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "config/run_config.h"

namespace shiftron {

struct Option {
  std::string key;          // "model.hidden"
  std::string help;         // one line, with the unit
  std::string values;       // "N", "true|false", "free|gate|clamp|project"
  bool required = false;    // by the commands that use it; has no default
  bool is_list = false;     // may be given several times
  bool is_text = false;     // JSON form is a string
  bool may_differ = false;  // on resume
  // Reads `text` into the value (lists: appends); returns "" or what is wrong, as in "is not a whole number".
  std::function<std::string(RunConfig&, const std::string& text)> read;
  // The value as texts that `read` understands: one, or one per element of a list; none for a required key without a
  // value.
  std::function<std::vector<std::string>(const RunConfig&)> write;
  // "" or what is wrong with the value, as in "must be >= 1".
  std::function<std::string(const RunConfig&)> check;
  // Sets the value to that of RunConfig{}.
  std::function<void(RunConfig&)> reset;

  std::string section() const { return key.substr(0, key.find('.')); }
  std::string name() const { return key.substr(key.find('.') + 1); }
};

// Values of a key that this version implements; the others are read and refused.
struct ImplementedValues {
  const char* key;
  std::vector<std::string> values;
  std::string listed() const;  // "free, gate, clamp"
};
std::vector<ImplementedValues> implemented_values();

// Every key, section by section in the order in which files list them.
std::vector<Option> option_table();

// " " between the texts of a value.
std::string joined(const std::vector<std::string>& texts);

// Its help, with the values that this version implements if there are others.
std::string full_help(const Option& option);

}  // namespace shiftron

// The only reader of command lines: the options of a command as a table, the values that the words give them, and every
// fault.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "config/option_value.h"

namespace shiftron::cli {

// One option of a command. A flag has no value_name.
struct CommandOption {
  enum class Kind { text, whole, real };
  std::string name;        // "dry-run", without the dashes
  std::string value_name;  // "N"; empty = a flag
  std::string help;
  Kind kind = Kind::text;
  Limits limits{};                     // of a number
  std::string otherwise{};             // its value if it is not given
  std::vector<std::string> choices{};  // of a text; empty = any
  bool required = false;               // must be given, and not empty
  size_t values = 1;                   // takes at most this many
  bool takes_rest = false;             // every word up to the next option is a value of it
  bool bare = false;                   // a word without an option before it is a value of it
};
constexpr size_t kUnlimited = SIZE_MAX;

CommandOption flag(const std::string& name, const std::string& help);
CommandOption text_option(const std::string& name, const std::string& value_name, const std::string& help,
                          const std::string& otherwise = "");
CommandOption integer_option(const std::string& name, const std::string& help, Limits limits,
                             const std::string& otherwise = "");
CommandOption real_option(const std::string& name, const std::string& help, Limits limits,
                          const std::string& otherwise = "");
CommandOption required(CommandOption option);
// Directories that may be given without the option's name; all `count` of them must be given.
CommandOption directories(const std::string& help, size_t count = 1);
CommandOption json_flag();

// What a command line says.
struct CommandLine {
  std::vector<CommandOption> options;                      // that the line may hold
  std::map<std::string, std::vector<std::string>> values;  // of the options that were given; flags: {""}
  std::vector<std::string> faults;                         // one line each
  bool help = false;                                       // --help was given; then nothing else counts
  bool help_all = false;                                   // --help all

  bool has(const std::string& name) const { return values.count(name) > 0; }
  // The value given, otherwise the option's default, otherwise `otherwise`.
  std::string text(const std::string& name, const std::string& otherwise = "") const;
  const std::vector<std::string>& texts(const std::string& name) const;  // all of them
  // For options of that kind, on a command line without faults.
  int64_t integer(const std::string& name, int64_t otherwise = 0) const;
  double real(const std::string& name, double otherwise = 0) const;
};

// Reads `words`. Never throws: unknown options (with the nearest one), stray words, missing and repeated values,
// values that are no numbers or out of their limits all become faults. A word that begins with "--" is never taken as
// a value; such a value is written --name=--value. Configuration keys are options like others: see read_config().
CommandLine parse_command_line(const std::vector<std::string>& words, const std::vector<CommandOption>& options);

}  // namespace shiftron::cli

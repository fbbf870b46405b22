// Reads configuration files with Boost.Program_options, line by line, so that every fault is collected.
#include "cli/config_reader.h"

#include <algorithm>
#include <boost/program_options.hpp>
#include <sstream>
#include <string_view>
#include <utility>

#include "config/config_text.h"
#include "config/options.h"
#include "core/check.h"
#include "core/file.h"
#include "tokenizer/utf8.h"

namespace shiftron::cli {
namespace {

namespace po = boost::program_options;

constexpr const char* kCommandLine = "command line";

constexpr std::string_view kBlanks = " \t\r";

// "[train]" of "[ train ]", which Boost would take for another section.
std::string without_blanks(const std::string& line) {
  const std::size_t open = line.find('['), close = line.find(']');
  if (close == std::string::npos) return line;
  const std::size_t first = line.find_first_not_of(kBlanks, open + 1), last = line.find_last_not_of(kBlanks, close - 1);
  if (first >= close) return line;
  return line.substr(0, open + 1) + line.substr(first, last + 1 - first) + line.substr(close);
}

// What Boost would silently misread in a line; "" if nothing.
std::string misread(const std::string& line, bool is_section) {
  const std::size_t comment = line.find('#');
  if (comment != std::string::npos && comment > 0 && kBlanks.find(line[comment - 1]) == kBlanks.npos) {
    return "begins a comment inside a word: put a blank before '#', or use a value without '#'";
  }
  const std::size_t close = line.find(']');
  if (!is_section || close == std::string::npos) return "";
  const std::size_t rest = line.find_first_not_of(kBlanks, close + 1);
  return rest == std::string::npos || rest == comment ? ""
                                                      : "has text after its ']': put [section] on a line of its own";
}

// Settings of a file's text. Each line is given to Boost alone, under its section, so that its number is known and a
// fault hides no later line.
std::vector<Setting> read_lines(std::istream& stream, const std::string& source, std::vector<std::string>& faults) {
  std::vector<Setting> settings;
  std::string section, line;
  bool has_nul = false;
  for (int number = 1; std::getline(stream, line); ++number) {
    if (number == 1) line.erase(0, byte_order_mark(line));
    const Origin origin{.file = source, .line = number};
    if (line.find('\0') != line.npos) {  // at which a value would silently end
      if (!std::exchange(has_nul, true)) {
        faults.push_back(
            "a NUL byte: the file is not text, or it is UTF-16; convert it with iconv -f UTF-16 -t UTF-8 (" +
            to_string(origin) + ")");
      }
      continue;
    }
    const std::size_t first = line.find_first_not_of(" \t");
    const bool is_section = first != std::string::npos && line[first] == '[';
    const std::string header = is_section ? without_blanks(line) : "";
    if (const std::string fault = misread(line, is_section); !fault.empty()) {
      faults.push_back("'" + printable(line.substr(first)) + "' " + fault + " (" + to_string(origin) + ")");
      if (is_section) section = header.substr(0, header.find(']') + 1);
      continue;
    }
    std::istringstream text(is_section ? header : section + "\n" + line);
    try {
      const auto parsed = po::parse_config_file(text, po::options_description(), true);
      for (const po::option& option : parsed.options) {
        settings.push_back({option.string_key, option.value.empty() ? "" : option.value.front(), origin});
      }
      if (is_section) section = header;
    } catch (const po::error&) {
      faults.push_back("'" + printable(line.substr(first)) + "' is neither 'key = value' nor '[section]' (" +
                       to_string(origin) + ")");
    }
  }
  return settings;
}

void apply_file(RunConfig& config, const std::string& path) {
  std::istringstream text;
  try {
    text.str(read_file(path, kLargestConfiguration));
  } catch (const Error& error) {
    config.reading_faults.push_back(std::string("cannot read a configuration file: ") + error.what());
    config.is_partial = true;
    return;
  }
  const std::vector<Setting> settings = read_lines(text, path, config.reading_faults);
  apply_level(config, settings);
}

}  // namespace

std::vector<CommandOption> with_configuration(const std::vector<CommandOption>& own) {
  std::vector<CommandOption> options = {
      text_option("config", "FILE",
                  "configuration file; repeatable: later files override earlier ones, the command line overrides all")};
  options.front().values = kUnlimited;
  options.insert(options.end(), own.begin(), own.end());
  for (const Option& key : option_table()) {
    CommandOption& option = options.emplace_back(text_option(key.key, key.values, key.help));
    option.values = kUnlimited;  // the last one wins, a list takes all
  }
  return options;
}

RunConfig read_config(const CommandLine& line, const RunConfig& base) {
  RunConfig config = base;
  for (const std::string& file : line.texts("config")) apply_file(config, file);
  for (const std::string& fault : line.faults) config.reading_faults.push_back(fault + " (" + kCommandLine + ")");
  std::vector<Setting> settings;
  for (const Option& key : option_table()) {
    for (const std::string& text : line.texts(key.key)) settings.push_back({key.key, text, {.file = kCommandLine}});
  }
  apply_level(config, settings, true);
  resolve(config);
  return config;
}

ParsedConfig parse_config(const std::vector<std::string>& words, const std::vector<CommandOption>& own) {
  const CommandLine line = parse_command_line(words, with_configuration(own));
  return {line, read_config(line)};
}

RunConfig read_config_text(const std::string& text, const std::string& source) {
  RunConfig config;
  std::istringstream stream(text);
  const std::vector<Setting> settings = read_lines(stream, source, config.reading_faults);
  apply_level(config, settings);
  resolve(config);
  return config;
}

}  // namespace shiftron::cli

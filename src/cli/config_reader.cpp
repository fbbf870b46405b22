// Boost.Program_options under a reader that collects every fault instead of stopping at the first.
#include "cli/config_reader.h"

#include <algorithm>
#include <boost/program_options.hpp>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "core/check.h"
#include "core/nearest_name.h"
#include "train/options.h"

namespace shiftron::cli {
namespace {

namespace po = boost::program_options;

constexpr const char* kCommandLine = "command line";

// Settings of a file's text. Each line goes to Boost alone, under its section, so that its number is known and a fault
// hides no later line.
std::vector<Setting> read_lines(std::istream& stream, const std::string& source, std::vector<std::string>& faults) {
  std::vector<Setting> settings;
  std::string section, line;
  for (int number = 1; std::getline(stream, line); ++number) {
    const Origin origin{.file = source, .line = number};
    const std::size_t first = line.find_first_not_of(" \t");
    const bool is_section = first != std::string::npos && line[first] == '[';
    std::istringstream text(is_section ? line : section + "\n" + line);
    try {
      const auto parsed = po::parse_config_file(text, po::options_description(), true);
      for (const po::option& option : parsed.options) {
        settings.push_back({option.string_key, option.value.empty() ? "" : option.value.front(), origin});
      }
      if (is_section) section = line;
    } catch (const po::error&) {
      faults.push_back("'" + line.substr(first) + "' is no 'key = value' and no '[section]' (" + to_string(origin) +
                       ")");
    }
  }
  return settings;
}

void apply_file(RunConfig& config, const std::string& path) {
  std::ifstream file(path);
  std::error_code ignored;
  if (!file || std::filesystem::is_directory(path, ignored)) {
    config.reading_faults.push_back("cannot read the configuration file " + path);
    return;
  }
  const std::vector<Setting> settings = read_lines(file, path, config.reading_faults);
  apply_level(config, settings);
}

// Names that may stand behind "--".
struct Names {
  std::set<std::string> keys, extra, flags;
  std::vector<std::string> all;
};

Names known_names(const std::vector<ExtraOption>& extra) {
  Names names;
  for (const Option& option : option_table()) names.keys.insert(option.key);
  for (const ExtraOption& option : extra) (option.value_name.empty() ? names.flags : names.extra).insert(option.name);
  names.flags.insert("help");
  names.extra.insert("config");
  for (const auto* set : {&names.keys, &names.extra, &names.flags})
    names.all.insert(names.all.end(), set->begin(), set->end());
  return names;
}

po::options_description describe(const Names& names) {
  po::options_description description;
  for (const auto* set : {&names.keys, &names.extra}) {
    for (const std::string& name : *set) description.add_options()(name.c_str(), po::value<std::string>(), "");
  }
  for (const std::string& name : names.flags) description.add_options()(name.c_str(), "");
  return description;
}

// Boost refuses "--key=": make it "--key" and an empty word, which empties a list or a text.
std::vector<std::string> with_empty_values(const std::vector<std::string>& arguments) {
  std::vector<std::string> words;
  for (const std::string& argument : arguments) {
    const bool is_empty = argument.rfind("--", 0) == 0 && argument.find('=') == argument.size() - 1;
    words.push_back(is_empty ? argument.substr(0, argument.size() - 1) : argument);
    if (is_empty) words.emplace_back();
  }
  return words;
}

// Boost stops at the first malformed option: note it, drop its word, and try the rest.
std::vector<po::option> parse_words(std::vector<std::string> words, const Names& names,
                                    std::vector<std::string>& faults) {
  using namespace po::command_line_style;
  const po::options_description description = describe(names);
  while (true) {
    try {
      return po::command_line_parser(words)
          .options(description)
          .style(allow_long | long_allow_next | long_allow_adjacent)
          .allow_unregistered()
          .run()
          .options;
    } catch (const po::error_with_option_name& fault) {
      const std::string name = fault.get_option_name();
      const auto is_faulty = [&](const std::string& word) { return word == name || word.rfind(name + "=", 0) == 0; };
      const auto found = std::find_if(words.rbegin(), words.rend(), is_faulty);
      const bool is_flag = found != words.rend() && found->size() > name.size();
      faults.push_back(name + (is_flag ? " takes no value" : " needs a value") + " (" + kCommandLine + ")");
      if (found == words.rend()) return {};
      words.erase(std::next(found).base());
    }
  }
}

}  // namespace

std::string ParsedConfig::text(const std::string& name, const std::string& otherwise) const {
  const auto found = extra.find(name);
  return found == extra.end() ? otherwise : found->second.back();
}

int64_t ParsedConfig::integer(const std::string& name, int64_t otherwise, int64_t minimum) const {
  if (!has(name)) return otherwise;
  const std::string given = text(name);
  int64_t value = 0;
  const auto result = std::from_chars(given.data(), given.data() + given.size(), value);
  if (result.ec != std::errc{} || result.ptr != given.data() + given.size() || value < minimum) {
    throw_bad_input("--", name, " '", given, "' is not a whole number of at least ", minimum);
  }
  return value;
}

ParsedConfig read_config(const std::vector<std::string>& arguments, const std::vector<ExtraOption>& extra,
                         const RunConfig& base) {
  ParsedConfig parsed;
  parsed.config = base;
  std::vector<std::string>& faults = parsed.config.reading_faults;
  const Names names = known_names(extra);
  std::vector<Setting> settings;
  std::vector<std::string> files;
  bool follows_unknown = false;  // the word behind an unknown option is taken as its value
  std::vector<std::string> line_faults;
  for (const po::option& option : parse_words(with_empty_values(arguments), names, line_faults)) {
    const std::string& key = option.string_key;
    const std::string value = option.value.empty() ? "" : option.value.front();
    if (key.empty()) {
      if (!follows_unknown) line_faults.push_back("unexpected word '" + value + "' (" + kCommandLine + ")");
    } else if (names.keys.count(key)) {
      settings.push_back({key, value, {.file = kCommandLine}});
    } else if (key == "config") {
      files.push_back(value);
    } else if (key == "help") {
      parsed.help = true;
    } else if (names.extra.count(key) || names.flags.count(key)) {
      parsed.extra[key].push_back(value);
    } else {
      const std::string nearest = nearest_name(key, names.all);
      line_faults.push_back("unknown option --" + key + (nearest.empty() ? "" : ", nearest is --" + nearest) + " (" +
                            kCommandLine + ")");
    }
    follows_unknown = option.unregistered;
  }
  for (const std::string& file : files) apply_file(parsed.config, file);
  faults.insert(faults.end(), line_faults.begin(), line_faults.end());
  apply_level(parsed.config, settings, true);
  resolve(parsed.config);
  return parsed;
}

RunConfig read_config_text(const std::string& text, const std::string& source) {
  RunConfig config;
  std::istringstream stream(text);
  const std::vector<Setting> settings = read_lines(stream, source, config.reading_faults);
  apply_level(config, settings);
  resolve(config);
  return config;
}

std::string config_help(const std::string& usage, const std::vector<ExtraOption>& extra) {
  std::string text = usage + "\n\nOptions:\n";
  std::vector<ExtraOption> all = {
      {"config", "FILE", "configuration file, repeatable: later ones win, the command line over all"}};
  all.insert(all.end(), extra.begin(), extra.end());
  all.push_back({"help", "", "this text"});
  for (const ExtraOption& option : all) {
    std::string left = "  --" + option.name + (option.value_name.empty() ? "" : " " + option.value_name);
    left.resize(std::max<std::size_t>(48, left.size() + 2), ' ');
    text += left + option.help + "\n";
  }
  return text + "\nConfiguration, in files as 'key = value' under '[section]':\n" + options_help();
}

}  // namespace shiftron::cli

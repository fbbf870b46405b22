// Reads words into options.
#include "cli/command_line.h"

#include <algorithm>

#include "config/familiar_names.h"
#include "tokenizer/utf8.h"

namespace shiftron::cli {
namespace {

bool asks_for_help(const std::string& word) {
  return word == "--help" || word == "-h";
}

bool is_option(const std::string& word) {
  return word.rfind("--", 0) == 0 || word == "-h";
}

class Reader {
 public:
  Reader(const std::vector<std::string>& words, const std::vector<CommandOption>& options) : words_(words) {
    line_.options = options;
    for (const CommandOption& option : options) names_.push_back(option.name);
    names_.emplace_back("help");
  }

  CommandLine run() {
    while (at_ < words_.size()) {
      const std::string& word = words_[at_++];
      if (asks_for_help(word)) {
        line_.help = true;
        if (at_ < words_.size() && words_[at_] == "all") {
          line_.help_all = true;
          ++at_;
        }
      } else if (is_option(word) && word.size() > 2) {
        read_option(word.substr(2));
      } else {
        read_bare(word);
      }
    }
    for (const CommandOption& option : line_.options) check(option);
    return std::move(line_);
  }

 private:
  void fault(const std::string& text) { line_.faults.push_back(text); }
  const CommandOption* find(const std::string& name) const {
    const auto found = std::find_if(line_.options.begin(), line_.options.end(),
                                    [&](const CommandOption& option) { return option.name == name; });
    return found == line_.options.end() ? nullptr : &*found;
  }
  std::string suggested(const std::string& name) const { return suggested_key(name, names_, "--"); }
  bool value_follows() const { return at_ < words_.size() && !is_option(words_[at_]); }

  void read_option(const std::string& word) {
    const size_t equal = word.find('=');
    const std::string name = word.substr(0, equal);
    const CommandOption* option = find(name);
    if (option == nullptr) {
      fault("unknown option --" + printable(name) + suggested(name));
      if (equal == std::string::npos && value_follows()) ++at_;  // taken as its value
      return;
    }
    if (option->value_name.empty()) {
      if (equal != std::string::npos) fault("--" + name + " takes no value");
      line_.values[name] = {""};
    } else if (equal != std::string::npos) {
      line_.values[name].push_back(word.substr(equal + 1));
    } else if (value_follows()) {
      do {
        line_.values[name].push_back(words_[at_++]);
      } while (option->takes_rest && value_follows());
    } else {
      unset_.push_back(name);
      fault("--" + name + " needs a value" +
            (at_ < words_.size() ? " (write a value that begins with dashes as --" + name + "=--…)" : ""));
    }
  }

  void read_bare(const std::string& word) {
    for (const CommandOption& option : line_.options) {
      if (!option.bare) continue;
      line_.values[option.name].push_back(word);
      return;
    }
    fault("unexpected word '" + printable(word) + "'" + (word.rfind('-', 0) == 0 ? suggested(word.substr(1)) : ""));
  }

  void check(const CommandOption& option) {
    const auto given = line_.values.find(option.name);
    const bool is_reported = std::count(unset_.begin(), unset_.end(), option.name) > 0;
    if (given == line_.values.end()) {
      if (option.required && !is_reported) {
        fault("--" + option.name + " " + option.value_name + " is missing" +
              (option.bare ? "; the option's name can be omitted" : ""));
      }
      return;
    }
    const std::vector<std::string>& values = given->second;
    const bool exact = option.bare && option.values > 1 && option.values != kUnlimited;
    if (values.size() > option.values || (exact && values.size() < option.values)) {
      fault("--" + option.name + " takes " + std::to_string(option.values) +
            (option.values == 1 ? " value, " : " values, ") + std::to_string(values.size()) +
            (values.size() == 1 ? " is given" : " are given"));
    }
    for (const std::string& value : values) {
      const std::string wrong = value_fault(option, value);
      if (!wrong.empty()) fault("--" + option.name + " '" + printable(value) + "' " + wrong);
    }
  }

  static std::string value_fault(const CommandOption& option, const std::string& value) {
    if (option.required && value.empty()) return "is empty";
    if (option.kind == CommandOption::Kind::text) {
      if (option.choices.empty() || std::count(option.choices.begin(), option.choices.end(), value) > 0) return "";
      std::string known;
      for (const std::string& choice : option.choices) known += (known.empty() ? "" : ", ") + choice;
      return "is not one of " + known;
    }
    int64_t whole = 0;
    double real = 0;
    const bool is_whole = option.kind == CommandOption::Kind::whole;
    const std::string wrong = is_whole ? read_value(value, whole) : read_value(value, real);
    return wrong.empty() ? option.limits.fault(is_whole ? static_cast<double>(whole) : real) : wrong;
  }

  const std::vector<std::string>& words_;
  size_t at_ = 0;
  std::vector<std::string> names_;  // that may follow "--"
  std::vector<std::string> unset_;  // given without a value
  CommandLine line_;
};

CommandOption number_option(CommandOption::Kind kind, const std::string& name, const std::string& help, Limits limits,
                            const std::string& otherwise) {
  CommandOption option = text_option(name, kind == CommandOption::Kind::whole ? "N" : "X", help, otherwise);
  option.kind = kind;
  option.limits = limits;
  return option;
}

}  // namespace

CommandOption flag(const std::string& name, const std::string& help) {
  return text_option(name, "", help);
}

CommandOption text_option(const std::string& name, const std::string& value_name, const std::string& help,
                          const std::string& otherwise) {
  CommandOption option;
  option.name = name;
  option.value_name = value_name;
  option.help = help;
  option.otherwise = otherwise;
  return option;
}

CommandOption integer_option(const std::string& name, const std::string& help, Limits limits,
                             const std::string& otherwise) {
  return number_option(CommandOption::Kind::whole, name, help, limits, otherwise);
}

CommandOption real_option(const std::string& name, const std::string& help, Limits limits,
                          const std::string& otherwise) {
  return number_option(CommandOption::Kind::real, name, help, limits, otherwise);
}

CommandOption required(CommandOption option) {
  option.required = true;
  return option;
}

CommandOption directories(const std::string& help, size_t count) {
  CommandOption option = required(text_option("directory", "DIR", help + "; --directory can be omitted"));
  option.values = count;
  option.bare = true;
  return option;
}

CommandOption json_flag() {
  return flag("json", "print the result as JSON");
}

std::string CommandLine::text(const std::string& name, const std::string& otherwise) const {
  if (const auto found = values.find(name); found != values.end()) return found->second.back();
  for (const CommandOption& option : options) {
    if (option.name == name && !option.otherwise.empty()) return option.otherwise;
  }
  return otherwise;
}

const std::vector<std::string>& CommandLine::texts(const std::string& name) const {
  static const std::vector<std::string> kNone;
  const auto found = values.find(name);
  return found == values.end() ? kNone : found->second;
}

int64_t CommandLine::integer(const std::string& name, int64_t otherwise) const {
  read_value(text(name), otherwise);
  return otherwise;
}

double CommandLine::real(const std::string& name, double otherwise) const {
  read_value(text(name), otherwise);
  return otherwise;
}

CommandLine parse_command_line(const std::vector<std::string>& words, const std::vector<CommandOption>& options) {
  return Reader(words, options).run();
}

}  // namespace shiftron::cli

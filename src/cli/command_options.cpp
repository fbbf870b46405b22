// Options by Boost.Program_options.
#include "cli/command_options.h"

#include <iostream>

#include "core/check.h"
#include "core/nearest_name.h"

namespace shiftron::cli {

namespace po = boost::program_options;

bool parse_options(const std::vector<std::string>& arguments, const std::string& usage,
                   po::options_description& options, po::variables_map& values, const std::string& positional,
                   int bare_words) {
  options.add_options()("json", po::bool_switch(), "print the answer as JSON")("help,h", "print this text");
  po::positional_options_description bare;
  if (!positional.empty()) bare.add(positional.c_str(), bare_words);
  try {
    constexpr int kStyle = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
    po::store(po::command_line_parser(arguments).options(options).positional(bare).style(kStyle).run(), values);
    if (values.count("help") > 0) {
      std::cout << "usage: shiftron " << usage << "\n" << options;
      return false;
    }
    po::notify(values);
  } catch (const po::unknown_option& error) {
    std::vector<std::string> names;
    for (const auto& option : options.options()) names.push_back(option->long_name());
    const std::string name = error.get_option_name().substr(error.get_option_name().find_first_not_of('-'));
    const std::string nearest = nearest_name(name, names);
    throw_bad_input(error.what(), nearest.empty() ? "" : "; did you mean --" + nearest, " (usage: shiftron ", usage,
                    ")");
  } catch (const po::error& error) {
    throw_bad_input(error.what(), " (usage: shiftron ", usage, "; more with --help)");
  }
  return true;
}

}  // namespace shiftron::cli

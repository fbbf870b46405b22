// Options of commands that take no configuration.
#pragma once

#include <boost/program_options.hpp>
#include <string>
#include <vector>

namespace shiftron::cli {

// Adds --json and --help to `options` and parses; `positional` names the option that up to `bare_words` bare words
// stand for.
// Returns false where help was asked for, and prints it. Throws Error(bad_input): unknown or missing option, bad value.
bool parse_options(const std::vector<std::string>& arguments, const std::string& usage,
                   boost::program_options::options_description& options, boost::program_options::variables_map& values,
                   const std::string& positional = "", int bare_words = 1);

}  // namespace shiftron::cli

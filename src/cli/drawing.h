// Drawings that commands write if an option names a file.
#pragma once

#include <string>

namespace shiftron::cli {

// An older drawing may be replaced. Throws Error(bad_input) that names `option` if the file holds anything else.
void refuse_to_replace(const std::string& option, const std::string& path);

// Throws Error(bad_input) that names `option` if the file cannot be written.
void write_drawing(const std::string& option, const std::string& path, const std::string& drawing);

}  // namespace shiftron::cli

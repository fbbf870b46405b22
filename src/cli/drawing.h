// Drawings that commands write where an option names a file.
#pragma once

#include <string>

namespace shiftron::cli {

// An older drawing is replaced; anything else that somebody wrote is not: throws Error(bad_input) that names `option`.
void refuse_to_replace(const std::string& option, const std::string& path);

// Throws Error(bad_input) that names `option` where the file cannot be written.
void write_drawing(const std::string& option, const std::string& path, const std::string& drawing);

}  // namespace shiftron::cli

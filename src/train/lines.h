// Files of lines: from the first or from the last one on.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "core/file.h"

namespace shiftron {

// Calls `visit` for every line of the file, in their order; the last one may be cut. A file that is missing has none.
void for_each_line(const std::string& path, const std::function<void(const std::string& line)>& visit);

// From the last line to the first while `visit` returns true; each with its end, and with the byte where it begins.
// Reads little more than it visits.
void for_each_line_from_the_end(const FileDescriptor& file,
                                const std::function<bool(uint64_t begin, std::string_view line)>& visit);

}  // namespace shiftron

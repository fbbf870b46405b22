// Files of lines: from the first or from the last one on, or what has come since a look before.
#pragma once

#include <cstdint>
#include <fstream>
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

// Of a file that grows: each whole line once, over all calls of read().
class GrowingLines {
 public:
  explicit GrowingLines(std::string path) : path_(std::move(path)) {}
  // Visits lines that have come since the last call. Where the file was cut, replaced or removed meanwhile, calls
  // `begin_anew` and visits all that there are.
  void read(const std::function<void()>& begin_anew, const std::function<void(const std::string& line)>& visit);

 private:
  std::string path_;
  std::streamoff end_ = 0;  // of the lines that were visited
  std::string last_;        // of them: our rows do not repeat
};

}  // namespace shiftron

// Reads the lines of files: forwards, backwards, or only those added since an earlier read.
#pragma once

#include <cstdint>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>

#include "core/file.h"

namespace shiftron {

// Calls `visit` for every line of the file, in order; the last one may be cut. A missing file has no lines.
void for_each_line(const std::string& path, const std::function<void(const std::string& line)>& visit);

// From the last line to the first, while `visit` returns true. Passes each line with its line end, and the byte where
// it begins. Reads little more than it visits.
void for_each_line_backward(const FileDescriptor& file,
                            const std::function<bool(uint64_t begin, std::string_view line)>& visit);

// Visits each whole line of a growing file once, over all calls of read().
class GrowingLines {
 public:
  explicit GrowingLines(std::string path) : path_(std::move(path)) {}
  // Visits the lines added since the last call. If the file was cut, replaced or removed meanwhile, calls `on_restart`
  // and visits all of its lines.
  void read(const std::function<void()>& on_restart, const std::function<void(const std::string& line)>& visit);

 private:
  std::string path_;
  std::streamoff end_ = 0;  // end of the visited lines
  std::string last_;        // visited line: shows whether the file is still the same, as rows do not repeat
};

}  // namespace shiftron

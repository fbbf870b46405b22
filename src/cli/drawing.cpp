// An older drawing is recognised by its first element, which is SVG's.
#include "cli/drawing.h"

#include <filesystem>

#include "core/check.h"
#include "core/file.h"

namespace shiftron::cli {

void refuse_to_replace(const std::string& option, const std::string& path) {
  if (path.empty()) throw_bad_input("--", option, " is empty; give a file name");
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none) || std::filesystem::file_size(path, none) == 0) return;
  std::string start(5, '\0');
  FileDescriptor file = FileDescriptor::open_for_reading(path);
  start.resize(file.read_some(start.data(), start.size()));
  if (start == "<svg ") return;
  throw_bad_input("--", option, " ", path, " exists and is not a drawing, so it is not replaced; choose another file");
}

void write_drawing(const std::string& option, const std::string& path, const std::string& drawing) {
  try {
    write_file_durably(path, drawing);
  } catch (const Error& error) {
    throw_bad_input("the drawing cannot be written, choose another --", option, ": ", error.what());
  }
}

}  // namespace shiftron::cli

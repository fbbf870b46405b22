// Bytes as the index, or as the file, of every format of token files. What is accepted lies within the file, and
// documents end where tokens are.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "core/file.h"
#include "data/token_files/format.h"
#include "fuzz/input.h"

namespace shiftron::fuzz {
namespace {

// A folder that ends with the process.
class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "shiftron-fuzz-XXXXXX").string();
    require(::mkdtemp(pattern.data()) != nullptr, "there is a folder for inputs");
    path_ = pattern;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string write(const std::string& name, std::string_view bytes) const {
    std::ofstream(path_ + "/" + name, std::ios::binary) << bytes;
    return path_ + "/" + name;
  }

 private:
  std::string path_;
};

void read_file_of_tokens(const std::string& path) {
  const TokenFile file = open_token_file(path, "", std::nullopt);
  const uint64_t bytes = FileDescriptor::open_for_reading(file.path).size();
  require(file.offset <= bytes && file.tokens <= (bytes - file.offset) / size_of(file.element),
          "tokens are in the file");
  if (file.ends == nullptr) return;
  const auto ends = file.ends();
  uint64_t end = 0;
  while (const std::optional<uint64_t> next = ends->next()) {
    require(end <= *next && *next <= file.tokens, "documents end in the file, one after the other");
    end = *next;
  }
  require(end == file.tokens, "the last document ends with the file");
}

}  // namespace

std::string read_input(std::string_view bytes) {
  static const Folder folder;
  const std::string tokens(24, '\1');
  folder.write("x.bin", tokens);
  folder.write("x.ds", tokens);
  const std::string paths[] = {folder.write("x.idx", bytes), folder.write("x.ds.index", bytes),
                               folder.write("y.npy", bytes)};
  std::string refused;
  for (const std::string& path : paths) {
    const std::string message = refusal_of([&] { read_file_of_tokens(path); });
    if (!message.empty()) refused += (refused.empty() ? "" : "; ") + message;
  }
  return refused;
}

}  // namespace shiftron::fuzz

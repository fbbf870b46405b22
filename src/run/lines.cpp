// Reads forwards with streams, backwards in blocks.
#include "run/lines.h"

#include <algorithm>

namespace shiftron {
namespace {

std::ifstream open_lines(const std::string& path) {
  if (name_exists(path)) FileDescriptor::open_for_reading(path);  // throws the reason if it cannot be read
  return std::ifstream(path);
}

}  // namespace

void for_each_line(const std::string& path, const std::function<void(const std::string& line)>& visit) {
  std::ifstream input = open_lines(path);
  for (std::string line; std::getline(input, line);) visit(line);
}

void for_each_line_backward(const FileDescriptor& file,
                            const std::function<bool(uint64_t begin, std::string_view line)>& visit) {
  constexpr uint64_t kBlock = uint64_t{64} << 10;
  std::string text;              // read but not yet visited
  uint64_t begin = file.size();  // of `text`
  while (begin > 0 || !text.empty()) {
    const size_t end_before = text.size() < 2 ? std::string::npos : text.rfind('\n', text.size() - 2);
    if (end_before == std::string::npos && begin > 0) {
      std::string block(std::min(begin, std::max<uint64_t>(kBlock, text.size())), '\0');
      begin -= block.size();
      file.read_at(begin, block.data(), block.size());
      text.insert(0, block);
      continue;
    }
    const size_t first = end_before == std::string::npos ? 0 : end_before + 1;
    if (!visit(begin + first, std::string_view(text).substr(first))) return;
    text.resize(first);
  }
}

void GrowingLines::read(const std::function<void()>& on_restart,
                        const std::function<void(const std::string& line)>& visit) {
  std::ifstream input = open_lines(path_);
  std::string line;
  if (end_ > 0) {
    input.seekg(end_ - static_cast<std::streamoff>(last_.size()) - 1);
    if (!std::getline(input, line) || input.eof() || line != last_) {
      on_restart();
      end_ = 0;
      last_.clear();
      input.clear();
      input.seekg(0);
    }
  }
  while (std::getline(input, line) && !input.eof()) {
    end_ += static_cast<std::streamoff>(line.size()) + 1;
    visit(line);
    last_.swap(line);
  }
}

}  // namespace shiftron

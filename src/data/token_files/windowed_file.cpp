// Fills the buffer from the element that is asked for.
#include "data/token_files/windowed_file.h"

#include <algorithm>

#include "core/check.h"

namespace shiftron {

WindowedFile::WindowedFile(const std::string& path, uint64_t offset, uint64_t count, size_t width, size_t window)
    : file_(FileDescriptor::open_for_reading(path)),
      offset_(offset),
      count_(count),
      width_(width),
      most_(std::min<uint64_t>(std::max<size_t>(1, window / width), std::max<uint64_t>(1, count))) {
  file_.expect_front_to_back();
}

std::string_view WindowedFile::from(uint64_t first, uint64_t most) {
  CHECK(first < count_ && most > 0, path(), ": element ", first, " of ", count_);
  if (first < begin_ || first >= begin_ + held_) {
    buffer_.resize(static_cast<size_t>(most_) * width_);
    const uint64_t held = std::min(most_, count_ - first);
    held_ = 0;
    file_.read_at(offset_ + first * width_, buffer_.data(), static_cast<size_t>(held) * width_);
    begin_ = first;
    held_ = held;
  }
  const uint64_t given = std::min(most, begin_ + held_ - first);
  return {buffer_.data() + static_cast<size_t>(first - begin_) * width_, static_cast<size_t>(given) * width_};
}

}  // namespace shiftron

// Counts broken lines and quotes the first.
#include "data/bad_lines.h"

#include "core/check.h"

namespace shiftron {
namespace {

constexpr size_t kMostShown = 10;
constexpr uint64_t kReadFurther = uint64_t{1} << 30;  // bytes; a second or two

}  // namespace

void BadLines::add(const std::string& fault, uint64_t bytes_read) {
  if (first_.size() < kMostShown) first_.push_back(fault);
  if (++count_ == most_ + 1) excess_at_ = bytes_read;
}

bool BadLines::is_enough(uint64_t bytes_read) const {
  return too_many() && bytes_read > excess_at_ + kReadFurther;
}

void BadLines::check(bool is_all) const {
  if (!too_many()) return;
  std::string faults;
  for (const std::string& fault : first_) faults += fault + "\n";
  const uint64_t more = count_ - first_.size();
  if (more > 0) faults += "and " + std::to_string(more) + " more\n";
  throw_bad_input(faults, is_all ? "" : "at least ", count_, count_ == 1 ? " broken line" : " broken lines",
                  is_all ? "" : " (the rest of the input was not read)", "; correct ", count_ == 1 ? "it" : "them",
                  ", or leave ", count_ == 1 ? "it" : "them", " out with --skip-bad ",
                  is_all ? std::to_string(count_) : "N");
}

}  // namespace shiftron

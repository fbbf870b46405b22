// The mark says that the directory may be swept; its lock, that somebody works there.
#include "checkpoint/export_under_way.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "checkpoint/steps.h"
#include "core/check.h"
#include "core/file.h"

namespace shiftron {

namespace fs = std::filesystem;

namespace {

constexpr char kMark[] = "export-that-is-under-way";

std::string without_slashes(const std::string& named) {
  return named.substr(0, std::max<size_t>(1, named.find_last_not_of('/') + 1));
}

}  // namespace

ExportUnderWay::ExportUnderWay(const std::string& named) : name_(without_slashes(named)), temporary_(name_ + ".tmp") {
  refuse_inside_a_step(name_);
  if (fs::exists(fs::symlink_status(name_))) throw_bad_input(name_, " is there already; choose a new name");
  const std::string mark = temporary_ + "/" + kMark;
  if (fs::exists(fs::symlink_status(temporary_)) && !fs::exists(mark)) {
    throw_bad_input(temporary_, " is there already and no remains of an export; rename it, or choose another name");
  }
  create_directories_durably(temporary_);
  lock_ = FileLock::take(mark);
  if (!lock_) throw_bad_input(temporary_, " is in use by another export; wait for it, or choose another name");
  std::vector<fs::path> remains;
  for (const auto& entry : fs::directory_iterator(temporary_)) {
    if (entry.path().filename() != kMark) remains.push_back(entry.path());
  }
  for (const fs::path& path : remains) fs::remove_all(path);
  fsync_directory(temporary_);
}

ExportUnderWay::~ExportUnderWay() {
  std::error_code ignored;
  if (lock_) fs::remove_all(temporary_, ignored);
}

void ExportUnderWay::remove_mark() {
  fs::remove(temporary_ + "/" + kMark);
}

void ExportUnderWay::finish() {
  remove_mark();
  rename_durably(temporary_, name_);
  lock_.reset();
}

void ExportUnderWay::finish_file(const std::string& file) {
  rename_durably(temporary_ + "/" + file, name_);
}

}  // namespace shiftron

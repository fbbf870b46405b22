// The mark says that the directory may be swept; its lock, that an export is working there. It stays locked until the
// directory has its final name. Only an export that made the directory or found it empty makes the mark, so nothing
// else can be marked.
#include "interchange/unfinished_export.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <utility>
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

bool is_there(const std::string& path) {
  return fs::exists(fs::symlink_status(path));
}

std::string mark_in(const std::string& directory) {
  return directory + "/" + kMark;
}

bool is_directory(const std::string& path) {
  return fs::symlink_status(path).type() == fs::file_type::directory;
}

bool is_marked(const std::string& directory) {
  return is_directory(directory) && is_there(mark_in(directory));
}

// Whether the path exists and belongs to no export: it is neither empty nor marked, even if another export makes or
// renames it during these checks.
bool is_of_others(const std::string& path) {
  std::error_code has_gone;
  const bool empty = is_directory(path) && fs::is_empty(path, has_gone);
  return !has_gone && !empty && !is_marked(path) && is_there(path);
}

[[noreturn]] void refuse_running(const std::string& name) {
  throw_bad_input("another export to ", name, " is running; wait for it, or choose another name");
}

// A name in NAME.tmp that identifies the file that is about to become NAME, by device and inode.
std::string number_of(const std::string& file) {
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0) return "";
  return "file-" + std::to_string(status.st_dev) + "-" + std::to_string(status.st_ino);
}

void refuse_existing(const std::string& name) {
  if (is_there(name)) throw_bad_input(name, " already exists; choose a new name");
}

}  // namespace

UnfinishedExport::UnfinishedExport(const std::string& named)
    : name_(without_slashes(named)), temporary_(name_ + ".tmp") {
  refuse_inside_a_step(name_);
  if (is_marked(name_)) {
    take_back();
  } else if (!take_back_file()) {
    if (is_there(name_)) remove_remains();
    refuse_existing(name_);
    take();
  }
  try {
    refuse_existing(name_);  // an export may have finished in the meantime
    sweep();
    fsync_directory(temporary_);
  } catch (...) {
    remove();
    throw;
  }
}

bool UnfinishedExport::is_mark(const std::string& file) {
  return file == kMark;
}

void UnfinishedExport::take() {
  create_directories_durably(parent_directory(temporary_));
  const bool made = !is_there(temporary_) && fs::create_directory(temporary_);
  if (!made && is_of_others(temporary_)) {
    throw_bad_input(temporary_,
                    " already exists and is not left over from an export; rename it, or choose another name");
  }
  lock_ = FileLock::take(mark_in(temporary_), made || !is_marked(temporary_));
  if (!lock_) refuse_running(name_);
}

// The export was killed after it got its name and before it lost its mark: it is complete, but may not have been
// reported.
void UnfinishedExport::take_back() {
  std::optional<FileLock> lock = FileLock::take(mark_in(name_), false);
  if (!lock) refuse_running(name_);
  rename_to_new_name_durably(name_, temporary_);
  lock_ = std::move(lock);
}

bool UnfinishedExport::take_back_file() {
  const std::string number = number_of(name_);
  const auto is_unreported = [&] {
    return !number.empty() && is_marked(temporary_) && is_there(temporary_ + "/" + number);
  };
  if (!is_unreported()) return false;
  lock_ = FileLock::take(mark_in(temporary_), false);
  if (!lock_) refuse_running(name_);
  if (is_unreported()) rename_durably(name_, temporary_ + "/untold");
  return true;
}

// Of an export that was killed after its file got the final name.
void UnfinishedExport::remove_remains() {
  if (!is_marked(temporary_)) return;
  lock_ = FileLock::take(mark_in(temporary_), false);
  if (lock_) remove();
}

void UnfinishedExport::sweep() {
  std::vector<fs::path> remains;
  for (const auto& entry : fs::directory_iterator(temporary_)) {
    if (entry.path().filename() != kMark) remains.push_back(entry.path());
  }
  for (const fs::path& path : remains) fs::remove_all(path);
}

// The mark goes last: a directory without it is empty.
void UnfinishedExport::remove() {
  try {
    sweep();
    fs::remove(mark_in(temporary_));
    fs::remove(temporary_);
  } catch (const fs::filesystem_error&) {  // the next export sweeps it
  }
  lock_.reset();
}

UnfinishedExport::~UnfinishedExport() {
  if (lock_) remove();
}

void UnfinishedExport::finish(const std::function<void()>& notify) {
  rename_to_new_name_durably(temporary_, name_);
  const FileLock lock = *std::exchange(lock_, std::nullopt);  // NAME.tmp is no longer ours
  if (notify) notify();
  fs::remove(mark_in(name_));
  fsync_directory(name_);
}

void UnfinishedExport::finish_file(const std::string& file, const std::function<void()>& notify) {
  FileDescriptor::create(temporary_ + "/" + number_of(temporary_ + "/" + file));
  fsync_directory(temporary_);
  rename_to_new_name_durably(temporary_ + "/" + file, name_);
  if (notify) notify();
}

void require_space_for_export(const std::string& directory, uint64_t bytes) {
  const uint64_t room = free_disk_space(directory);
  if (room >= bytes) return;
  throw_crash(directory, ": the export needs at least ", bytes, " bytes, but only ", room,
              " are free; free space there, or choose another place");
}

}  // namespace shiftron

// Files by POSIX calls.
#include "core/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "core/check.h"
#include "core/system_error.h"

namespace shiftron {
namespace {

const std::string kTemporary = ".temporary-";         // after the file's name; the process id follows
constexpr size_t kLargestTransfer = size_t{1} << 30;  // the kernel moves less than 2 GiB in one call

[[noreturn]] void throw_system_error(const std::string& action, const std::string& path, int error) {
  const std::string message = "cannot " + action + " " + path + ": " + std::strerror(error) + advice_on(error);
  if (is_system_error(error)) throw SystemError(message);
  throw_crash(message);
}

int open_retrying(const std::string& path, int flags, mode_t mode = 0) {
  int descriptor = -1;
  do {
    descriptor = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

// The end of a chain of links; the path itself if it is not a link. The target need not exist.
std::string resolve_links(std::string path) {
  constexpr int kMostLinks = 40;  // the kernel's limit
  for (int links = 0;; ++links) {
    std::error_code error;
    const std::filesystem::path target = std::filesystem::read_symlink(path, error);
    if (error) return path;
    if (links == kMostLinks) throw_system_error("write", path, ELOOP);
    path = target.is_absolute() ? target.string() : parent_directory(path) + "/" + target.string();
  }
}

// Writes directly to a device or pipe, which a rename could not replace.
void write_through(const std::string& path, std::string_view bytes) {
  const int descriptor = open_retrying(path, O_WRONLY);
  if (descriptor < 0) throw_system_error("write", path, errno);
  int error = 0;
  for (size_t done = 0; done < bytes.size() && error == 0;) {
    const ssize_t put = ::write(descriptor, bytes.data() + done, std::min(bytes.size() - done, kLargestTransfer));
    if (put > 0) done += static_cast<size_t>(put);
    if (put <= 0) error = put == 0 ? ENOSPC : errno == EINTR ? 0 : errno;
  }
  if (::close(descriptor) != 0 && error == 0 && errno != EINTR) error = errno;
  if (error != 0) throw_system_error("write", path, error);
}

[[noreturn]] void throw_unopened(const std::string& path, int error) {
  if (error == ENOENT || error == EACCES || error == ENOTDIR || error == ELOOP || error == ENAMETOOLONG) {
    if (error != EACCES) refuse_lost_link(path, ExitCode::bad_input);
    const std::string message = "cannot open " + path + ": " + std::strerror(error) + advice_on(error);
    if (is_system_error(error)) throw SystemError(message, ExitCode::bad_input);
    throw_bad_input(message);
  }
  throw_system_error("open", path, error);
}

}  // namespace

bool is_stdin(const std::string& path) {
  return path == "-" || path == "/dev/stdin" || path == "/dev/fd/0" || path == "/proc/self/fd/0";
}

int sync_error(int descriptor) {
  int result = 0;
  do {
    result = ::fsync(descriptor);
  } while (result != 0 && errno == EINTR);
  return result == 0 ? 0 : errno;
}

FileDescriptor FileDescriptor::open_for_reading(const std::string& path) {
  const int descriptor = open_retrying(path, O_RDONLY | O_NONBLOCK);  // a pipe does not wait
  if (descriptor < 0) throw_unopened(path, errno);
  FileDescriptor file(descriptor, path);
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) throw_system_error("inspect", path, errno);
  if (S_ISDIR(status.st_mode)) throw_bad_input("cannot read ", path, ": it is a directory; name a file");
  if (!S_ISREG(status.st_mode))
    throw_bad_input("cannot read ", path, ": it is a pipe, a socket or a device; name a file");
  return file;
}

FileDescriptor FileDescriptor::open_stream(const std::string& path) {
  // Opening /dev/stdin fails if it is a socket, and starts a file from its beginning.
  const int descriptor =
      is_stdin(path) ? ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1) : open_retrying(path, O_RDONLY);
  if (descriptor < 0) throw_unopened(path, errno);
  return FileDescriptor(descriptor, path);
}

FileDescriptor FileDescriptor::create(const std::string& path) {
  const int descriptor = open_retrying(path, O_RDWR | O_CREAT | O_EXCL, 0666);
  if (descriptor < 0) throw_system_error("create", path, errno);
  return FileDescriptor(descriptor, path);
}

FileDescriptor FileDescriptor::open_for_appending(const std::string& path, bool make) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && S_ISFIFO(status.st_mode)) {  // opening it would wait for a reader
    throw_bad_input("cannot write ", path, ": it is a pipe; move it away");
  }
  const int descriptor = open_retrying(path, O_WRONLY | (make ? O_CREAT : 0) | O_APPEND, 0666);
  if (descriptor < 0) throw_system_error("write", path, errno);
  return FileDescriptor(descriptor, path);
}

FileDescriptor FileDescriptor::open_for_update(const std::string& path) {
  const int descriptor = open_retrying(path, O_RDWR | O_APPEND);
  if (descriptor < 0) throw_unopened(path, errno);
  return FileDescriptor(descriptor, path);
}

FileDescriptor::~FileDescriptor() {
  if (is_open()) ::close(descriptor_);
}

FileDescriptor::FileDescriptor(FileDescriptor&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), path_(std::move(other.path_)) {}

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    if (is_open()) ::close(descriptor_);
    descriptor_ = std::exchange(other.descriptor_, -1);
    path_ = std::move(other.path_);
  }
  return *this;
}

uint64_t FileDescriptor::size() const {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) throw_system_error("inspect", path_, errno);
  return static_cast<uint64_t>(status.st_size);
}

void FileDescriptor::read_at(uint64_t offset, void* data, size_t bytes) const {
  char* out = static_cast<char*>(data);
  size_t done = 0;
  while (done < bytes) {
    const ssize_t got =
        ::pread(descriptor_, out + done, std::min(bytes - done, kLargestTransfer), static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_system_error("read", path_, errno);
    if (got == 0) {
      throw_crash("cannot read ", path_, ": it ends at byte ", offset + done, ", but ", bytes, " bytes from byte ",
                  offset, " are needed");
    }
    done += static_cast<size_t>(got);
  }
}

void FileDescriptor::write_at(uint64_t offset, const void* data, size_t bytes) {
  const char* in = static_cast<const char*>(data);
  size_t done = 0;
  while (done < bytes) {
    const ssize_t put =
        ::pwrite(descriptor_, in + done, std::min(bytes - done, kLargestTransfer), static_cast<off_t>(offset + done));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) throw_system_error("write", path_, put == 0 ? ENOSPC : errno);
    done += static_cast<size_t>(put);
  }
}

size_t FileDescriptor::read_some(void* data, size_t bytes) {
  char* out = static_cast<char*>(data);
  size_t done = 0;
  while (done < bytes) {
    const ssize_t got = ::read(descriptor_, out + done, std::min(bytes - done, kLargestTransfer));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_system_error("read", path_, errno);
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

void FileDescriptor::seek(uint64_t offset) {
  if (::lseek(descriptor_, static_cast<off_t>(offset), SEEK_SET) < 0) throw_system_error("read", path_, errno);
}

void FileDescriptor::append(const void* data, size_t bytes) {
  const char* in = static_cast<const char*>(data);
  size_t done = 0;
  while (done < bytes) {
    const ssize_t put = ::write(descriptor_, in + done, std::min(bytes - done, kLargestTransfer));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) throw_system_error("write", path_, put == 0 ? ENOSPC : errno);
    done += static_cast<size_t>(put);
  }
}

void FileDescriptor::truncate(uint64_t bytes) {
  int result = 0;
  do {
    result = ::ftruncate(descriptor_, static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  if (result != 0) throw_system_error("write", path_, errno);
}

void FileDescriptor::start_writing() const {
  ::sync_file_range(descriptor_, 0, 0, SYNC_FILE_RANGE_WRITE);  // does not wait, so fsync still reports every error
}

void FileDescriptor::expect_front_to_back() const {
  ::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_SEQUENTIAL);
}

void FileDescriptor::sync() {
  if (const int error = sync_error(descriptor_); error != 0) throw_system_error("write", path_, error);
}

void FileDescriptor::close() {
  const int descriptor = std::exchange(descriptor_, -1);
  if (descriptor >= 0 && ::close(descriptor) != 0 && errno != EINTR) throw_system_error("write", path_, errno);
}

std::string lost_link(const std::string& path) {
  namespace fs = std::filesystem;
  fs::path part;
  for (const fs::path& name : fs::path(path)) {
    part = part.empty() ? name : part / name;
    if (name.empty()) continue;  // a slash at the end
    struct stat status {};
    if (::lstat(part.c_str(), &status) != 0) return "";
    if (!S_ISLNK(status.st_mode) || ::stat(part.c_str(), &status) == 0) continue;
    const int error = errno;
    if (error != ENOENT && error != ENOTDIR && error != ELOOP) return "";
    std::error_code ignored;
    return part.string() + " is a symbolic link to " + fs::read_symlink(part, ignored).string() +
           (error == ELOOP ? ", which is part of a loop; point it to the file"
                           : ", which does not exist; mount its file system, fetch it (`dvc pull`, `git annex get`, a "
                             "download), or fix the link");
  }
  return "";
}

void refuse_lost_link(const std::string& path, ExitCode code) {
  if (const std::string lost = lost_link(path); !lost.empty()) throw SystemError(lost, code);
}

bool name_exists(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0;
}

std::string state_of_files(const std::string& path) {
  namespace fs = std::filesystem;
  std::vector<fs::path> files = {path};
  if (fs::is_directory(path)) files.assign(fs::directory_iterator(path), {});
  std::sort(files.begin(), files.end());
  std::string state;
  for (const fs::path& file : files) {
    struct stat status {};  // zeros if it cannot be read
    ::stat(file.c_str(), &status);
    state += detail::concatenate(file.string(), '\0', status.st_size, ' ', status.st_mtim.tv_sec, ' ',
                                 status.st_mtim.tv_nsec, '\n');
  }
  return state;
}

std::string read_file(const std::string& path, uint64_t limit) {
  FileDescriptor file = FileDescriptor::open_for_reading(path);
  const auto refuse = [&] {
    throw_bad_input(path, " is longer than ", limit, " bytes, the limit for this kind of file; check the path");
  };
  if (file.size() > limit) refuse();  // before its memory is allocated
  std::string content;
  constexpr size_t kPiece = size_t{1} << 20;
  for (;;) {  // not by the size, which is 0 for files of /proc
    const size_t old_size = content.size();
    content.resize(old_size + std::clamp<size_t>(old_size, 4096, kPiece << 6));
    const size_t got = file.read_some(content.data() + old_size, content.size() - old_size);
    content.resize(old_size + got);
    if (content.size() > limit) refuse();
    if (got == 0) return content;
  }
}

void write_file_durably(const std::string& path, std::string_view bytes) {
  struct stat status {};
  const bool there = ::stat(path.c_str(), &status) == 0;
  const mode_t permissions = status.st_mode & 07777;
  if (there && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) return write_through(path, bytes);
  const std::string target = resolve_links(path);
  const std::string temporary = target + kTemporary + std::to_string(::getpid());
  try {
    ::unlink(temporary.c_str());
    FileDescriptor file = FileDescriptor::create(temporary);
    if (there) ::fchmod(file.get(), permissions);  // fails for another user's file, which may still be replaced
    file.append(bytes.data(), bytes.size());
    file.sync();
    file.close();
    rename_durably(temporary, target);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
}

std::vector<std::string> remove_temporaries(const std::string& directory) {
  std::vector<std::string> removed;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string name = entry.path().filename();
    const size_t place = name.rfind(kTemporary);
    if (place == std::string::npos || name.find_first_not_of("0123456789", place + kTemporary.size()) != name.npos) {
      continue;
    }
    if (::unlink(entry.path().c_str()) == 0) removed.push_back(entry.path());
  }
  return removed;
}

void fsync_directory(const std::string& directory) {
  const int descriptor = open_retrying(directory, O_RDONLY | O_DIRECTORY);
  if (descriptor < 0) throw_system_error("open the directory", directory, errno);
  const int error = sync_error(descriptor);
  ::close(descriptor);
  // Some network file systems do not support fsync of directories; their renames are synchronous.
  if (error != 0 && error != EINVAL && error != ENOTSUP) throw_system_error("write the directory", directory, error);
}

void create_directories_durably(const std::string& path) {
  namespace fs = std::filesystem;
  std::vector<fs::path> missing;  // the innermost first; not normalized, since a ".." may follow a link
  std::error_code ignored;
  for (fs::path at = path; !at.empty() && !fs::exists(at, ignored); at = at.parent_path()) missing.push_back(at);
  fs::create_directories(path);
  for (auto folder = missing.rbegin(); folder != missing.rend(); ++folder)
    fsync_directory(folder->has_parent_path() ? folder->parent_path().string() : ".");
}

void rename_durably(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) throw_system_error("rename to", to, errno);
  fsync_directory(parent_directory(to));
}

void rename_to_new_name_durably(const std::string& from, const std::string& to) {
  int error = ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0 ? 0 : errno;
  if (error == EINVAL || error == ENOSYS) {  // the file system or the kernel does not support the flag
    std::error_code ignored;
    if (!std::filesystem::exists(std::filesystem::symlink_status(to, ignored))) return rename_durably(from, to);
    error = EEXIST;
  }
  if (error == EEXIST) throw_bad_input(to, " already exists; choose a new name");
  if (error != 0) throw_system_error("rename to", to, error);
  fsync_directory(parent_directory(to));
}

uint64_t free_disk_space(const std::string& path) {
  struct statvfs status {};
  if (::statvfs(path.c_str(), &status) != 0) throw_system_error("inspect the disk of", path, errno);
  return static_cast<uint64_t>(status.f_bavail) * status.f_frsize;
}

void throw_unwritable(const std::string& option, const std::string& path, const std::exception& reason) {
  if (const auto* error = dynamic_cast<const Error*>(&reason); error != nullptr && error->code() == ExitCode::bad_input)
    throw;
  throw_bad_input(option, " ", path, " cannot be written (", reason.what(),
                  "); choose another path, or free space there");
}

std::string parent_directory(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace shiftron

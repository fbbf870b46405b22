// Files: exact reads and writes by descriptor, durable replacement, free space.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"

namespace shiftron {

// Owns one open file. Failing system calls throw Error(crash) with the path and the system's reason, or SystemError
// (core/system_error.h) if the reason says nothing about the file. Opening a file that is missing, unreadable or not a
// regular file throws Error(bad_input).
class FileDescriptor {
 public:
  FileDescriptor() = default;
  // Follows symbolic links. A dangling link: SystemError(bad_input), because its target may come back.
  static FileDescriptor open_for_reading(const std::string& path);
  // Also a pipe, a named pipe (waits for its writer) and, with "-" and the names of descriptor 0, stdin. Only for
  // read_some().
  static FileDescriptor open_stream(const std::string& path);
  // A new file; it must not exist yet.
  static FileDescriptor create(const std::string& path);
  // Creates a missing file unless `make` is false; append() adds at its end. A pipe: Error(bad_input).
  static FileDescriptor open_for_appending(const std::string& path, bool make = true);
  // An existing file, for reading and for append() at its end.
  static FileDescriptor open_for_update(const std::string& path);
  ~FileDescriptor();
  FileDescriptor(FileDescriptor&& other) noexcept;
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;

  bool is_open() const { return descriptor_ >= 0; }
  int get() const { return descriptor_; }
  const std::string& path() const { return path_; }
  uint64_t size() const;  // bytes
  // Exactly `bytes` bytes at `offset`, otherwise Error(crash); its message says where a file that is too short ends.
  void read_at(uint64_t offset, void* data, size_t bytes) const;
  void write_at(uint64_t offset, const void* data, size_t bytes);
  // From the current position, which starts at 0. Returns the number of bytes read, up to `bytes`; 0 at the end.
  size_t read_some(void* data, size_t bytes);
  void seek(uint64_t offset);  // where read_some() continues
  void append(const void* data, size_t bytes);
  void truncate(uint64_t bytes);  // to so many bytes
  // Starts writing to disk, so that sync(), which reports the errors, waits less. A hint.
  void start_writing() const;
  // Reads will be sequential: the system reads further ahead. A hint. (Requesting ranges instead brings them into
  // memory in small pages, which makes every later read slower by half.)
  void expect_front_to_back() const;
  void sync();
  // Reports errors that a delayed write may report only here; the destructor closes silently.
  void close();

 private:
  FileDescriptor(int descriptor, std::string path) : descriptor_(descriptor), path_(std::move(path)) {}
  int descriptor_ = -1;
  std::string path_;
};

// Whether the name means the process's stdin: "-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0".
bool is_stdin(const std::string& path);

// Flushes a file or folder to disk; returns 0 or the errno. Signals do not interrupt it.
int sync_error(int descriptor);

// "LINK is a symbolic link to TARGET, which is not there; …" with advice, for the first part of `path` that is a
// dangling link; "" if there is none.
std::string lost_link(const std::string& path);

// Throws SystemError if `path` has a lost_link(): the file may still exist.
void refuse_lost_link(const std::string& path, ExitCode code = ExitCode::crash);

// Whether the name exists, also as a dangling link; opening that reports why it cannot be read.
bool name_exists(const std::string& path);

// Name, size and modification time of a file, or of everything in a directory: as long as they are unchanged, so is the
// content. Throws std::filesystem::filesystem_error.
std::string state_of_files(const std::string& path);

// The whole file. Errors as in FileDescriptor; more than `limit` bytes: Error(bad_input).
std::string read_file(const std::string& path, uint64_t limit = UINT64_MAX);

// Writes `path` so that a crash leaves either the old or the new content, complete: temporary file, fsync, rename,
// fsync of the directory. The temporary is removed on failure. Permissions are kept. If `path` is a link, its target is
// written; a device or a pipe receives the bytes directly. Throws Error(crash).
void write_file_durably(const std::string& path, std::string_view bytes);

// Removes the temporaries that killed calls of write_file_durably() left in `directory`; returns their paths. Only
// while no other process writes there.
std::vector<std::string> remove_temporaries(const std::string& directory);

// Makes renames and new names in `directory` survive a power loss. Throws Error(crash).
void fsync_directory(const std::string& directory);

// Creates `path` and its missing parent folders, so that they survive a power loss. Throws
// std::filesystem::filesystem_error if one cannot be created, otherwise Error(crash).
void create_directories_durably(const std::string& path);

// Renames within a file system and makes it durable. Throws Error(crash).
void rename_durably(const std::string& from, const std::string& to);

// The same, to a name that must not exist yet: otherwise Error(bad_input), also for an empty directory. (On file
// systems without such a rename, a name that appears at the same moment is replaced.)
void rename_to_new_name_durably(const std::string& from, const std::string& to);

// Bytes available to an ordinary user on the file system of `path`. Throws Error(crash).
uint64_t free_disk_space(const std::string& path);

// To be called in a handler of `reason`, about a place that the user named by `option`: rethrows `reason` if it is an
// Error(bad_input), otherwise throws Error(bad_input) that quotes it.
[[noreturn]] void throw_unwritable(const std::string& option, const std::string& path, const std::exception& reason);

// The folder that holds `path`; "." if the path names none.
std::string parent_directory(const std::string& path);

}  // namespace shiftron

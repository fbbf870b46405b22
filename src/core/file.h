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

// Owns one open file. Failing system calls throw Error(crash) with the path and the system's reason, SystemError
// (core/system_error.h) where that says nothing of the file;
// opening what is missing, unreadable or no regular file throws Error(bad_input).
class FileDescriptor {
 public:
  FileDescriptor() = default;
  // Follows symbolic links. One that leads nowhere: SystemError(bad_input), since what it led to may come back.
  static FileDescriptor open_for_reading(const std::string& path);
  // A new file; it must not exist yet.
  static FileDescriptor create(const std::string& path);
  // Made where it is missing, unless `make` is false; append() adds at its end. A pipe: Error(bad_input).
  static FileDescriptor open_for_appending(const std::string& path, bool make = true);
  ~FileDescriptor();
  FileDescriptor(FileDescriptor&& other) noexcept;
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;

  bool is_open() const { return descriptor_ >= 0; }
  int get() const { return descriptor_; }
  const std::string& path() const { return path_; }
  uint64_t size() const;  // bytes
  // Exactly `bytes` bytes at `offset`, else Error(crash); a file that ends before is named as too short.
  void read_at(uint64_t offset, void* data, size_t bytes) const;
  void write_at(uint64_t offset, const void* data, size_t bytes);
  // At the current position, which begins at 0. Returns what is there, up to `bytes`; 0 at the end.
  size_t read_some(void* data, size_t bytes);
  void append(const void* data, size_t bytes);
  void truncate(uint64_t bytes);  // to so many
  // Has the disk begin with what was written, so that sync(), which reports its errors, waits less. A hint.
  void start_writing() const;
  // Reads will go from front to back: the system reads further ahead. A hint. (Asking for ranges instead brings them
  // in small pages, from which every later read is slower by half.)
  void expect_front_to_back() const;
  void sync();
  // Reports what a delayed write may report only here; the destructor closes without a word.
  void close();

 private:
  FileDescriptor(int descriptor, std::string path) : descriptor_(descriptor), path_(std::move(path)) {}
  int descriptor_ = -1;
  std::string path_;
};

// Has the disk hold what was written to the file or folder; 0, else the errno. A signal does not interrupt it.
int sync_error(int descriptor);

// "LINK is a symbolic link to TARGET, which is not there; …" for the first part of `path` that is such a link, with
// what to do about it; "" where there is none.
std::string lost_link(const std::string& path);

// Throws SystemError where `path` has a lost_link(): what is missing there is not known to be gone.
void refuse_lost_link(const std::string& path, ExitCode code = ExitCode::crash);

// Whether something has this name, also a link that leads nowhere: opening it then says why it cannot be read.
bool name_exists(const std::string& path);

// Name, size and time of change of a file, or of everything in a directory: while they stay, so does the content.
// Throws std::filesystem::filesystem_error.
std::string state_of_files(const std::string& path);

// The whole file. Errors as FileDescriptor; more than `limit` bytes: Error(bad_input).
std::string read_file(const std::string& path, uint64_t limit = UINT64_MAX);

// Writes `path` so that after a crash the old or the new content is there, whole: temporary file, fsync, rename,
// fsync of the directory. The temporary is removed on failure. Permissions stay. A link stays, what it leads to is
// written; a device or a pipe gets the bytes. Throws Error(crash).
void write_file_durably(const std::string& path, std::string_view bytes);

// Removes the temporaries that killed calls of write_file_durably() left in `directory`; returns them. Only while no
// other process writes there.
std::vector<std::string> remove_temporaries(const std::string& directory);

// Makes renames and new names in `directory` survive a power loss. Throws Error(crash).
void fsync_directory(const std::string& directory);

// Makes `path` and the folders above it that are missing, and makes them survive a power loss. Throws
// std::filesystem::filesystem_error where one cannot be made, else Error(crash).
void create_directories_durably(const std::string& path);

// Renames within a file system and makes it durable. Throws Error(crash).
void rename_durably(const std::string& from, const std::string& to);

// The same to a name that nothing has. Throws Error(bad_input) where something has it, also an empty directory (on file
// systems that cannot rename so: one that comes in the same moment is replaced).
void rename_to_new_name_durably(const std::string& from, const std::string& to);

// Bytes that an ordinary user may still write on the file system that holds `path`. Throws Error(crash).
uint64_t free_disk_space(const std::string& path);

// In a handler of `reason`, of a place that the user named by `option`: throws Error(bad_input) with it, or the reason
// itself where it is one.
[[noreturn]] void throw_unwritable(const std::string& option, const std::string& path, const std::exception& reason);

// The folder that holds `path`; "." where the path names none.
std::string parent_directory(const std::string& path);

}  // namespace shiftron

// ByteSource: the bytes of a file or a pipe, unpacked.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "core/file.h"
#include "core/helper_thread.h"
#include "data/unpacker.h"

namespace shiftron {

// A pipe whose first bytes have been read, to learn what it holds. It can be read once.
struct OpenedStream {
  FileDescriptor descriptor;
  std::string begin;
  bool is_taken = false;  // by a ByteSource
};

// For one thread. Packed bytes are unpacked on a thread of its own, a piece ahead.
class ByteSource {
 public:
  // stream: null for a file, which is opened here. Throws Error(bad_input) for a file that cannot be read, and for a
  // stream that was read before.
  ByteSource(const std::string& path, Packing packing, const std::shared_ptr<OpenedStream>& stream = nullptr);
  ~ByteSource();
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  // Returns the number of bytes read: `bytes`, or fewer at the end. Throws Error(bad_input) with the file and the
  // position if what is packed is damaged or cut off.
  size_t read_some(char* data, size_t bytes);
  // Before the first read_some(), of a file: leaves out so many bytes; what is packed must be unpacked for that.
  void skip(uint64_t bytes);
  // Bytes of the file or pipe that have been read.
  uint64_t bytes_read() const { return raw_read_; }

 private:
  struct Ahead;
  size_t read_raw(char* data, size_t bytes);
  size_t unpack_some(char* data, size_t bytes);
  bool read_packed();
  [[noreturn]] void throw_damaged(const std::string& reason) const;

  std::string path_;
  bool is_stream_;
  FileDescriptor file_;
  std::string begin_;  // of a stream; what is left of it
  std::atomic<uint64_t> raw_read_ = 0;
  Packing packing_;
  std::unique_ptr<Unpacker> unpacker_;
  std::string packed_;  // read, and from used_ on not yet unpacked
  size_t used_ = 0;
  bool is_inside_ = false;     // a member has begun and not ended
  bool has_unpacked_ = false;  // a member has ended
  std::unique_ptr<Ahead> ahead_;
};

}  // namespace shiftron

// Unpacks gzip, zstd, xz and bzip2.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "core/enum_names.h"

namespace shiftron {

enum class Packing { none, gzip, zstd, xz, bzip2 };
constexpr std::array<const char*, 5> names_of(Packing) {
  return {"none", "gzip", "zstd", "xz", "bzip2"};
}

// By the first bytes of a file.
Packing packing_of(std::string_view begin);
// The packing that a name's ending promises; the ending may be upper-case.
Packing packing_of_name(const std::string& path);
// Whether `begin` may be the start of a file of this packing that was cut off within its first bytes; true if it is
// empty.
bool begins_packing(std::string_view begin, Packing packing);

// Unpacks one member (of gzip) or frame after another. For one thread.
class Unpacker {
 public:
  static std::unique_ptr<Unpacker> make(Packing packing);  // not none
  virtual ~Unpacker() = default;

  struct Step {
    size_t used = 0;         // bytes of the input
    size_t made = 0;         // bytes written
    bool has_ended = false;  // the member is complete, and its checksum right
  };
  // Continues the member. Throws Error(bad_input) with the library's reason if the bytes are damaged.
  virtual Step unpack(std::string_view packed, char* unpacked, size_t room) = 0;
  // What follows is a new member.
  virtual void restart() = 0;
};

}  // namespace shiftron

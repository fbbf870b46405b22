// A bounds-checked reader of the protocol buffers wire format, for checks before SentencePiece loads a model.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/check.h"

namespace shiftron {

// The fields of a protocol buffers message, one after another. Malformed bytes: Error(bad_input), naming `what`, which
// is not copied.
class ProtoFields {
 public:
  ProtoFields(std::string_view bytes, const std::string& what) : rest_(bytes), what_(what) {}
  // False at the end. Otherwise number() or bytes() holds the value of field(); the other one is 0, or empty.
  bool next() {
    if (rest_.empty()) return false;
    const uint64_t tag = variable_length();
    field_ = tag >> 3;
    number_ = 0;
    bytes_ = {};
    switch (tag & 7) {
      case 0:
        number_ = variable_length();
        break;
      case 1:
        bytes_ = take(8);
        break;
      case 2:
        bytes_ = take(variable_length());
        break;
      case 5:
        bytes_ = take(4);
        break;
      default:
        fail();
    }
    return true;
  }
  uint64_t field() const { return field_; }
  uint64_t number() const { return number_; }
  std::string_view bytes() const { return bytes_; }
  float real() const {
    if (bytes_.size() != 4) fail();
    uint32_t bits = 0;
    for (int i = 3; i >= 0; --i) bits = bits << 8 | static_cast<uint8_t>(bytes_[static_cast<size_t>(i)]);
    return std::bit_cast<float>(bits);
  }

 private:
  [[noreturn]] void fail() const { throw_bad_input(what_, " is damaged: its fields do not fit into it"); }
  std::string_view take(uint64_t count) {
    if (count > rest_.size()) fail();
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }
  uint64_t variable_length() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<uint8_t>(take(1)[0]);
      value |= uint64_t{byte & 127U} << shift;
      if (byte < 128) return value;
    }
    fail();
  }
  std::string_view rest_;
  const std::string& what_;
  uint64_t field_ = 0, number_ = 0;
  std::string_view bytes_;
};

}  // namespace shiftron

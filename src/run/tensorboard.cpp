// Records of tensorflow/core/util/events_writer: u64 length, masked CRC of it, data, masked CRC of the data; the data
// is an Event of tensorflow/core/util/event.proto, written by hand.
#include "run/tensorboard.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/host.h"

namespace shiftron {
namespace {

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit)
      value = (value >> 1) ^ ((value & 1) != 0 ? 0x82f63b78u : 0);  // 0x1edc6f41 mirrored
    table[byte] = value;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kTable = make_table();

template <typename Value>
std::string little_endian(Value value) {
  static_assert(std::endian::native == std::endian::little);
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 128; value >>= 7) bytes += static_cast<char>((value & 127) | 128);
  return bytes + static_cast<char>(value);
}

// Fields of a protocol buffer: number and wire type (0 varint, 1 eight bytes, 2 counted bytes, 5 four bytes), value.
std::string field(int number, int type) {
  return varint(static_cast<uint64_t>(number) << 3 | static_cast<uint64_t>(type));
}
std::string integer(int number, int64_t value) {
  return field(number, 0) + varint(static_cast<uint64_t>(value));
}
std::string bytes(int number, const std::string& value) {
  return field(number, 2) + varint(value.size()) + value;
}

// Event: wall_time 1, step 2.
std::string event(int64_t step) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  return field(1, 1) + little_endian(now.count()) + integer(2, step);
}

void flatten(const std::string& tag, const nlohmann::ordered_json& value, TensorBoard::Scalars& scalars) {
  if (value.is_structured()) {
    for (const auto& [name, inner] : value.items()) flatten(tag + "/" + name, inner, scalars);
  } else if (value.is_number()) {
    scalars.emplace_back(tag, value.get<double>());
  } else if (value.is_null()) {
    scalars.emplace_back(tag, std::numeric_limits<double>::quiet_NaN());
  }
}

}  // namespace

uint32_t masked_crc32c(const std::string& bytes) {
  uint32_t crc = ~0u;
  for (const char byte : bytes) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<uint8_t>(byte)) & 255];
  crc = ~crc;
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

TensorBoard::Scalars scalars_of(const nlohmann::ordered_json& line) {
  TensorBoard::Scalars scalars;
  for (const auto& [name, value] : line.items()) {
    if (name != "step") flatten(name, value, scalars);
  }
  return scalars;
}

TensorBoard::TensorBoard(const std::string& directory, int64_t first_step) {
  std::error_code trouble;
  std::filesystem::create_directories(directory, trouble);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto seconds = std::to_string(std::chrono::duration_cast<std::chrono::seconds>(now).count());
  path_ = directory + "/events.out.tfevents." + seconds + "." + host_name() + "." + std::to_string(getpid()) + ".0";
  append(event(0) + bytes(3, "brain.Event:2"));         // file_version 3
  append(event(first_step) + bytes(7, integer(1, 1)));  // session_log 7: status 1 = START
}

void TensorBoard::write(int64_t step, const Scalars& scalars) {
  std::string summary;  // Summary: value 1; Summary.Value: tag 1, simple_value 2
  for (const auto& [tag, value] : scalars) {
    summary += bytes(1, bytes(1, tag) + field(2, 5) + little_endian(static_cast<float>(value)));
  }
  append(event(step) + bytes(5, summary));  // summary 5
}

void TensorBoard::append(const std::string& event) {
  if (path_.empty()) return;
  const std::string length = little_endian(static_cast<uint64_t>(event.size()));
  const std::string record =
      length + little_endian(masked_crc32c(length)) + event + little_endian(masked_crc32c(event));
  if (waiting_.size() + record.size() <= kMostWaiting) waiting_ += record;
  const int file = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) return;
  const off_t before = lseek(file, 0, SEEK_END);
  if (::write(file, waiting_.data(), waiting_.size()) == static_cast<ssize_t>(waiting_.size())) {
    waiting_.clear();
  } else if (ftruncate(file, before) != 0) {
    path_.clear();  // records after a torn one cannot be read
  }
  close(file);
}

}  // namespace shiftron

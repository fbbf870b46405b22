// Casts between the three types that a checkpoint may hold.
#include "checkpoint/elements.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/element.h"

namespace shiftron {
namespace {

// Rounds toward zero and sets the last bit if anything was lost. Rounding the result to fewer bits then gives the same
// as rounding `value` itself ("rounding to odd", Boldo and Melquiond 2008).
float round_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || std::isnan(value)) return nearest;
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  if (std::abs(static_cast<double>(nearest)) > std::abs(value)) --bits;
  return std::bit_cast<float>(bits | 1u);
}

template <typename To, typename From>
To cast(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (std::is_same_v<From, bfloat16>) {
    return static_cast<To>(to_accumulate(value));
  } else if constexpr (std::is_same_v<To, bfloat16> && std::is_same_v<From, double>) {
    return to_bfloat16(round_to_odd(value));
  } else if constexpr (std::is_same_v<To, bfloat16>) {
    return to_bfloat16(value);
  } else {
    return static_cast<To>(value);
  }
}

}  // namespace

void cast_elements(DType from_type, const void* from, DType to_type, void* to, int64_t count) {
  for_type(from_type, [&](auto source) {
    for_type(to_type, [&](auto target) {
      for (int64_t i = 0; i < count; ++i) {
        decltype(source) value;
        std::memcpy(&value, static_cast<const std::byte*>(from) + i * static_cast<int64_t>(sizeof(value)),
                    sizeof(value));
        const auto rounded = cast<decltype(target)>(value);
        std::memcpy(static_cast<std::byte*>(to) + i * static_cast<int64_t>(sizeof(rounded)), &rounded, sizeof(rounded));
      }
    });
  });
}

void read_elements(TensorSource& source, int index, const Box& box, DType as, std::vector<std::byte>& values,
                   std::vector<std::byte>& room) {
  const DType there = source.tensors()[static_cast<size_t>(index)].dtype;
  const int64_t count = box.extent.count();
  values.resize(static_cast<size_t>(count * size_of(as)));
  if (there == as) return source.read(index, box, values.data());
  room.resize(static_cast<size_t>(count * size_of(there)));
  source.read(index, box, room.data());
  cast_elements(there, room.data(), as, values.data(), count);
}

}  // namespace shiftron

// Loops over stored numbers, which compilers vectorise.
#include "data/token_files/element.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "core/check.h"

namespace shiftron {
namespace {

// Calls `function` with a number of the element's type.
template <typename Function>
auto with_type(TokenElement element, Function function) {
  switch (element) {
    case TokenElement::u8:
      return function(uint8_t{});
    case TokenElement::i8:
      return function(int8_t{});
    case TokenElement::u16:
      return function(uint16_t{});
    case TokenElement::i16:
      return function(int16_t{});
    case TokenElement::u32:
      return function(uint32_t{});
    case TokenElement::i32:
      return function(int32_t{});
    case TokenElement::u64:
      return function(uint64_t{});
    case TokenElement::i64:
      return function(int64_t{});
    case TokenElement::f32:
      return function(float{});
    case TokenElement::f64:
      return function(double{});
  }
  throw_crash("no such type of numbers");
}

template <typename T>
T load(const char* raw, int64_t index) {
  T value;
  std::memcpy(&value, raw + static_cast<size_t>(index) * sizeof(T), sizeof(T));
  return value;
}

// What ids_before() compares with, in the stored type.
template <typename T>
struct Stop {
  T end;
  bool has_end;  // whether the type can hold it; false for -1, which is no token
  T last;        // the largest id

  Stop(int32_t end_token, int64_t vocabulary) {
    const int64_t most = largest_id_of();
    has_end = end_token >= 0 && end_token <= most;
    end = has_end ? static_cast<T>(end_token) : T{};
    last = static_cast<T>(std::min(vocabulary - 1, most));
  }
  static int64_t largest_id_of() {
    if constexpr (std::is_same_v<T, float>) return int64_t{1} << 24;
    if constexpr (std::is_integral_v<T>) {
      if (sizeof(T) < sizeof(int32_t)) return static_cast<int64_t>(std::numeric_limits<T>::max());
    }
    return INT32_MAX;
  }
  bool operator()(T value) const {
    bool stops = has_end && value == end;
    if constexpr (std::is_integral_v<T>) {
      using Unsigned = std::make_unsigned_t<T>;  // negative numbers become large ones
      stops |= static_cast<Unsigned>(value) > static_cast<Unsigned>(last);
    } else {
      stops |= !(value >= 0 && value <= last) || value != std::floor(value);
    }
    return stops;
  }
  // False only if none of `count` stored numbers stops. Compilers vectorise it for whole numbers, because comparisons
  // are signed and each result has as many bits as a number.
  bool may_stop(const char* raw, int64_t count) const {
    if constexpr (std::is_integral_v<T>) {
      using Signed = std::make_signed_t<T>;
      using Unsigned = std::make_unsigned_t<T>;
      constexpr auto kHighest = static_cast<Unsigned>(Unsigned{1} << (8 * sizeof(T) - 1));
      const auto shifted = [](T value) { return static_cast<Signed>(static_cast<Unsigned>(value) ^ kHighest); };
      const Signed most = shifted(last);
      const Signed stop = has_end ? shifted(end) : std::numeric_limits<Signed>::max();
      Signed found = 0;
      for (int64_t i = 0; i < count; ++i) {
        const Signed value = shifted(load<T>(raw, i));
        found = static_cast<Signed>(found | -static_cast<Signed>(value == stop) | -static_cast<Signed>(value > most));
      }
      return found != 0;
    } else {
      return true;
    }
  }
};

}  // namespace

size_t size_of(TokenElement element) {
  return with_type(element, [](auto zero) { return sizeof zero; });
}

int64_t largest_id(TokenElement element) {
  return with_type(element, [](auto zero) { return Stop<decltype(zero)>::largest_id_of(); });
}

int64_t ids_before(TokenElement element, const char* raw, int64_t count, int32_t end, int64_t vocabulary) {
  constexpr int64_t kBlock = 128;  // longer ones would be looked at again after every short document
  return with_type(element, [&](auto zero) {
    using T = decltype(zero);
    const Stop<T> stops(end, vocabulary);
    int64_t at = 0;
    for (; count - at >= kBlock; at += kBlock) {
      if (stops.may_stop(raw + static_cast<size_t>(at) * sizeof(T), kBlock)) break;
    }
    while (at < count && !stops(load<T>(raw, at))) ++at;
    return at;
  });
}

void widen(TokenElement element, const char* raw, int64_t count, int32_t* ids) {
  with_type(element, [&](auto zero) {
    for (int64_t i = 0; i < count; ++i) ids[i] = static_cast<int32_t>(load<decltype(zero)>(raw, i));
  });
}

void narrow(TokenElement element, const int32_t* ids, int64_t count, char* raw) {
  with_type(element, [&](auto zero) {
    for (int64_t i = 0; i < count; ++i) {
      const auto value = static_cast<decltype(zero)>(ids[i]);
      std::memcpy(raw + static_cast<size_t>(i) * sizeof value, &value, sizeof value);
    }
  });
}

std::string number_text(TokenElement element, const char* raw) {
  return with_type(element, [&](auto zero) {
    const auto value = load<decltype(zero)>(raw, 0);
    if constexpr (sizeof value == 1) return std::to_string(static_cast<int>(value));
    return std::to_string(value);
  });
}

}  // namespace shiftron

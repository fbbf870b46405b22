// The types of numbers in which other programs store tokens.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/enum_names.h"

namespace shiftron {

enum class TokenElement { u8, i8, u16, i16, u32, i32, u64, i64, f32, f64 };
constexpr std::array<const char*, 10> names_of(TokenElement) {
  return {"u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64", "f32", "f64"};
}

size_t size_of(TokenElement element);  // bytes; numbers are little-endian

// How many of `count` stored numbers come before the first that is `end` (-1 = none) or no id: not a whole number in
// [0, vocabulary).
int64_t ids_before(TokenElement element, const char* raw, int64_t count, int32_t end, int64_t vocabulary);
// Converts `count` stored ids.
void widen(TokenElement element, const char* raw, int64_t count, int32_t* ids);
// Converts `count` ids, which the type can hold.
void narrow(TokenElement element, const int32_t* ids, int64_t count, char* raw);
// The largest id that the type holds exactly, at most INT32_MAX.
int64_t largest_id(TokenElement element);
// The number stored at `raw`.
std::string number_text(TokenElement element, const char* raw);

}  // namespace shiftron

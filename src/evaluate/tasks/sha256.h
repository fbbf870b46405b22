// SHA-256, with which the harness identifies a benchmark's items.
#pragma once

#include <string>
#include <string_view>

namespace shiftron {

// 64 lower-case hexadecimal digits.
std::string sha256(std::string_view bytes);

}  // namespace shiftron

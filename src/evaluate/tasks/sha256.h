// SHA-256, in which the harness states what a benchmark's items are.
#pragma once

#include <string>
#include <string_view>

namespace shiftron {

// 64 lower-case hexadecimal digits.
std::string sha256(std::string_view bytes);

}  // namespace shiftron

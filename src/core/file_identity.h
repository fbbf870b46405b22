// Whether two names mean the same file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace shiftron {

// Device and number of a file: the same for all its names, also hard links.
using FileIdentity = std::pair<uint64_t, uint64_t>;

// Nothing if it does not exist.
std::optional<FileIdentity> file_identity(const std::string& path);

}  // namespace shiftron

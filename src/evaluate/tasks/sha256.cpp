// SHA-256 by libcrypto.
#include "evaluate/tasks/sha256.h"

#include <openssl/evp.h>

#include <array>
#include <cstdint>

#include "core/check.h"

namespace shiftron {

std::string sha256(std::string_view bytes) {
  std::array<uint8_t, 32> digest{};
  unsigned size = 0;
  CHECK(
      EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_sha256(), nullptr) == 1 && size == digest.size(),
      "libcrypto has no SHA-256");
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : digest) text += {kDigits[byte >> 4], kDigits[byte & 15]};
  return text;
}

}  // namespace shiftron

// Philox4x32-10 and its uniform and normal numbers.
#include "core/philox.h"

#include <cmath>
#include <numbers>

namespace shiftron {
namespace {

// FNV-1a, 64 bits: part of the definition of the initial weights, so it stays here and never changes.
uint64_t hash_name(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3ULL;
  return hash;
}

double to_unit(uint32_t high, uint32_t low) {
  const uint64_t bits = (static_cast<uint64_t>(high) << 32 | low) >> 11;
  return (static_cast<double>(bits) + 0.5) * 0x1.0p-53;
}

}  // namespace

Philox::Philox(uint64_t seed, std::string_view stream) {
  const uint64_t hash = hash_name(stream);
  key_[0] = static_cast<uint32_t>(seed);
  key_[1] = static_cast<uint32_t>(seed >> 32);
  stream_[0] = static_cast<uint32_t>(hash);
  stream_[1] = static_cast<uint32_t>(hash >> 32);
}

std::array<uint32_t, 4> Philox::block(uint64_t counter, uint64_t high) const {
  std::array<uint32_t, 4> x = {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32),
                               stream_[0] ^ static_cast<uint32_t>(high),
                               stream_[1] ^ static_cast<uint32_t>(high >> 32)};
  uint32_t key0 = key_[0];
  uint32_t key1 = key_[1];
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * x[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57} * x[2];
    x = {static_cast<uint32_t>(product1 >> 32) ^ x[1] ^ key0, static_cast<uint32_t>(product1),
         static_cast<uint32_t>(product0 >> 32) ^ x[3] ^ key1, static_cast<uint32_t>(product0)};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return x;
}

double Philox::uniform(uint64_t index) const {
  const auto x = block(index / 2);
  return index % 2 == 0 ? to_unit(x[0], x[1]) : to_unit(x[2], x[3]);
}

double Philox::normal(uint64_t index) const {
  const auto x = block(index / 2);
  const double radius = std::sqrt(-2.0 * std::log(to_unit(x[0], x[1])));
  const double angle = 2.0 * std::numbers::pi * to_unit(x[2], x[3]);
  return radius * (index % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

}  // namespace shiftron

// Order by Feistel networks.
#include "data/order.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "core/check.h"

namespace shiftron {
namespace {

constexpr int kRounds = 6;
constexpr int kLeastHalfBits = 4;  // small networks permute badly; walking from 256 down costs little

// A bijection of 64 bits in which every input bit moves every output bit.
uint64_t mix(uint64_t value) {
  value ^= value >> 32;
  value *= 0xD6E8FEB86659FD93u;
  value ^= value >> 32;
  value *= 0xD6E8FEB86659FD93u;
  value ^= value >> 32;
  return value;
}

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15u;  // 2^64 / golden ratio

uint64_t combine(uint64_t key, uint64_t value) {
  return mix(key * kGolden + mix(value + kGolden));
}

// What a permutation is for; part of its key, so that equal numbers give different keys in different uses.
enum class Use : uint64_t { windows = 1, blend = 2 };

uint64_t key_of(uint64_t seed, Use use, uint64_t first, uint64_t second) {
  return combine(combine(combine(combine(0, seed), static_cast<uint64_t>(use)), first), second);
}

}  // namespace

Permutation::Permutation(uint64_t size, uint64_t key) : size_(size), key_(key) {
  CHECK(size >= 1 && size <= (uint64_t{1} << 62), "permutation of ", size);
  const int bits = static_cast<int>(std::bit_width(size - 1));
  half_bits_ = std::max(kLeastHalfBits, (bits + 1) / 2);
  half_mask_ = (uint64_t{1} << half_bits_) - 1;
}

uint64_t Permutation::round_function(uint64_t half, int round) const {
  return mix(half + key_ + static_cast<uint64_t>(round) * kGolden);
}

uint64_t Permutation::operator()(uint64_t index) const {
  CHECK(index < size_, index, " of ", size_);
  do {  // the network permutes a larger range; following its cycle back into ours keeps a bijection
    uint64_t left = index >> half_bits_;
    uint64_t right = index & half_mask_;
    for (int round = 0; round < kRounds; ++round) {
      const uint64_t next = left ^ (round_function(right, round) & half_mask_);
      left = right;
      right = next;
    }
    index = left << half_bits_ | right;
  } while (index >= size_);
  return index;
}

std::vector<int64_t> blend_quotas(const std::vector<double>& weights) {
  double sum = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!(weights[i] > 0) || !std::isfinite(weights[i])) {
      throw_bad_input("weight ", weights[i], " of data source ", i + 1, ": must be a positive number");
    }
    sum += weights[i];
  }
  if (!std::isfinite(sum)) {
    throw_bad_input(
        "the weights of the data sources add up to infinity; give smaller ones, because only their ratios matter");
  }
  std::vector<int64_t> quotas(weights.size());
  std::vector<double> remainders(weights.size());
  int64_t left = kBlendBlock;
  for (size_t i = 0; i < weights.size(); ++i) {
    const double share = weights[i] / sum * static_cast<double>(kBlendBlock);
    quotas[i] = static_cast<int64_t>(share);
    remainders[i] = share - static_cast<double>(quotas[i]);
    left -= quotas[i];
  }
  std::vector<size_t> by_remainder(weights.size());
  std::iota(by_remainder.begin(), by_remainder.end(), size_t{0});
  std::stable_sort(by_remainder.begin(), by_remainder.end(),
                   [&](size_t a, size_t b) { return remainders[a] > remainders[b]; });
  for (size_t i = 0; left > 0; ++i, --left) ++quotas[by_remainder[i % by_remainder.size()]];
  return quotas;
}

SampleOrder::SampleOrder(std::vector<int64_t> windows, const std::vector<double>& weights, uint64_t seed)
    : windows_(std::move(windows)), quotas_(blend_quotas(weights)), seed_(seed) {
  CHECK(!windows_.empty() && windows_.size() == weights.size(), windows_.size(), " sources, ", weights.size(),
        " weights");
  for (const int64_t count : windows_) CHECK(count >= 1, "a source without a window");
}

SampleLocation SampleOrder::locate(int64_t sample) const {
  CHECK(sample >= 0, "sample ", sample);
  SampleLocation location;
  int64_t item = sample;  // number within its source
  if (windows_.size() > 1) {
    const int64_t block = sample / kBlendBlock;
    const Permutation order(kBlendBlock, key_of(seed_, Use::blend, static_cast<uint64_t>(block), 0));
    auto place = static_cast<int64_t>(order(static_cast<uint64_t>(sample % kBlendBlock)));
    size_t source = 0;
    for (; place >= quotas_[source]; ++source) place -= quotas_[source];
    location.source = static_cast<int64_t>(source);
    item = block * quotas_[source] + place;
  }
  const int64_t count = windows_[static_cast<size_t>(location.source)];
  location.epoch = item / count;
  const Permutation order(
      static_cast<uint64_t>(count),
      key_of(seed_, Use::windows, static_cast<uint64_t>(location.source), static_cast<uint64_t>(location.epoch)));
  location.window = static_cast<int64_t>(order(static_cast<uint64_t>(item % count)));
  return location;
}

}  // namespace shiftron

// CPython's random.Random with the same draws: the Mersenne Twister (Matsumoto and Nishimura, 1998) and Python's use of
// its words.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace shiftron::python {

class Random {
 public:
  // Random(seed)
  explicit Random(uint64_t seed);

  uint32_t next_word() {
    if (at_ == state_.size()) renew();
    uint32_t word = state_[at_++];
    word ^= word >> 11;
    word ^= (word << 7) & 0x9D2C5680;
    word ^= (word << 15) & 0xEFC60000;
    return word ^ (word >> 18);
  }
  // getrandbits(bits), with 1 to 32 bits
  uint32_t bits(int count);
  // randrange(limit), 0 < limit < 2³²
  uint32_t below(uint32_t limit);
  // random(): in [0, 1), with 53 bits
  double real() {
    const uint32_t high = next_word() >> 5;
    const uint32_t low = next_word() >> 6;
    return (high * 67108864.0 + low) * (1.0 / 9007199254740992.0);
  }
  // sample(range(population), count), count ≤ population
  std::vector<int64_t> sample(int64_t population, int64_t count);
  // One element of choices(range(population), k=…); successive calls give the list.
  int64_t choice(int64_t population) { return static_cast<int64_t>(real() * static_cast<double>(population)); }

 private:
  void seed_by_number(uint32_t seed);
  void renew();
  std::array<uint32_t, 624> state_{};
  size_t at_ = 624;  // index of the next word; 624: the state must be renewed
};

}  // namespace shiftron::python

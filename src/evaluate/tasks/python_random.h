// CPython's random.Random, draw for draw: the Mersenne Twister (Matsumoto and Nishimura, 1998) and how Python uses its
// words.
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

  uint32_t next_word();
  // getrandbits(bits), 1 to 32 of them
  uint32_t bits(int count);
  // randrange(limit), 0 < limit < 2³²
  uint32_t below(uint32_t limit);
  // random(): in [0, 1), with 53 bits
  double real();
  // sample(range(population), count), count ≤ population
  std::vector<int64_t> sample(int64_t population, int64_t count);
  // One of choices(range(population), k=…); the sequence of calls gives the list.
  int64_t choice(int64_t population) { return static_cast<int64_t>(real() * static_cast<double>(population)); }

 private:
  void seed_by_number(uint32_t seed);
  std::array<uint32_t, 624> state_{};
  size_t at_ = 624;  // of the next word; 624: the state is due to be renewed
};

}  // namespace shiftron::python

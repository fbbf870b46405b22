// Hashes: published values, pieces equal the whole.
#include "core/hash.h"

#include <gtest/gtest.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <functional>
#include <string>
#include <vector>

namespace shiftron {
namespace {

TEST(Hash, EmptyInputHasThePublishedValues) {
  EXPECT_EQ(to_hex(xxh3_64("")), "2d06800538d394c2");
  EXPECT_EQ(to_hex(xxh3_128("")), "99aa06d3014798d86001c324468d497f");
}

TEST(Hash, PiecesEqualTheWhole) {
  std::string text(100000, '\0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * i >> 3);
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{1000}, text.size()}) {
    for (const size_t size : {size_t{0}, size_t{3}, size_t{200}, size_t{241}, text.size()}) {
      HashStream stream;
      for (size_t at = 0; at < size; at += piece) stream.update(text.data() + at, std::min(piece, size - at));
      EXPECT_EQ(stream.digest_64(), xxh3_64(text.data(), size)) << size << " by " << piece;
      EXPECT_EQ(stream.digest_128(), xxh3_128(text.data(), size)) << size << " by " << piece;
    }
  }
}

#if defined(__x86_64__)
bool upper_halves_in_use() {
  unsigned low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
  return (low & 4) != 0;
}

// In use, they slow down all other code on some processors.
TEST(Hash, LeavesNoUpperHalvesOfVectors) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(13, 1, &a, &b, &c, &d) || (a & 4) == 0) GTEST_SKIP() << "the processor does not tell";
  const std::string text(100000, 'x');
  HashStream stream;
  const std::vector<std::function<void()>> calls = {
      [&] { xxh3_64(text); }, [&] { xxh3_128(text); }, [&] { stream.update(text.data(), text.size()); },
      [&] { stream.digest_64(); }, [&] { stream.digest_128(); }};
  for (size_t i = 0; i < calls.size(); ++i) {
    calls[i]();
    EXPECT_FALSE(upper_halves_in_use()) << "call " << i;
  }
}
#endif

TEST(Hash, SeedsDiffer) {
  EXPECT_NE(xxh3_64("a", 1), xxh3_64("a", 2));
}

TEST(Hash, HexKeepsLeadingZeros) {
  EXPECT_EQ(to_hex(uint64_t{0xAB}), "00000000000000ab");
}

}  // namespace
}  // namespace shiftron

// Tile sizes of the CPU's attention, query rows of one KV head's group × keys, for a second-level cache of 1 MiB.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/tile_product.h"

namespace shiftron::fast {

struct AttentionTiles {
  // Rows of a tile. Small tiles waste less on the diagonal; large ones make the bfloat16 products faster.
  static constexpr int64_t kRows = 64;
  static constexpr int64_t kPairedRows = 128;
  static constexpr int64_t kPositions = 64;
  static constexpr int64_t kKeys = 256;
  // Distance between rows of keys. With a power of two, all rows would map to the same cache sets.
  static constexpr int64_t kStride = kKeys + 32;
  // Blocks of keys that a thread keeps packed between tiles: 1,024 keys.
  static constexpr int64_t kSlots = 1024 / kKeys;

  AttentionTiles(int64_t rows, int64_t heads_of_group, int64_t width, int64_t most_rows)
      : group(heads_of_group),
        head_dim(width),
        queries(std::max<int64_t>(1, std::min({rows, kPositions, most_rows / heads_of_group}))) {}
  int64_t tile_rows() const { return queries * group; }
  // Backward needs the most: q, d_out, d_q, two tiles of scores, keys in both layouts and values in float32, and two
  // numbers for each row.
  int64_t thread_floats() const {
    const int64_t floats =
        3 * tile_rows() * head_dim + 2 * tile_rows() * kStride + 3 * kSlots * kStride * head_dim + 2 * tile_rows();
    return (floats + 31) / 16 * 16;  // threads do not share cache lines
  }
  // For tiles in bfloat16, where rows come in pairs: two tiles of scores and d_q in float32; three tiles of scores; q
  // and d_out as rows and transposed; keys and values as pairs of rows and of columns; two numbers for each row.
  int64_t paired_rows() const { return (tile_rows() + 1) / 2 * 2; }
  int64_t thread_words() const {
    const int64_t words = paired_rows() * (2 * kStride + head_dim) + paired_rows() / 2 * 3 * kStride +
                          2 * (paired_rows() / 2 * head_dim + packed_words(paired_rows(), head_dim)) +
                          kSlots * 4 * head_dim / 2 * kStride + 2 * paired_rows();
    return (words + 31) / 16 * 16;
  }

  // Floats for a thread's sums of d_k and d_v of a task's keys, in whole blocks.
  int64_t key_sums(int64_t keys) const { return 2 * (keys / kKeys + 2) * kStride * head_dim; }

  int64_t group;  // query heads of a KV head
  int64_t head_dim;
  int64_t queries;  // positions of a tile; it has queries × group rows, positions first
};

}  // namespace shiftron::fast

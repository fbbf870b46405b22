// How the CPU's attention is divided: tiles of query positions, blocks of keys, tasks for threads.
#pragma once

#include <algorithm>
#include <array>

#include "kernels/attention_loops.h"
#include "kernels/attention_tiles.h"
#include "kernels/cpu_loops.h"
#include "kernels/kernels.h"
#include "kernels/lines_ahead.h"

namespace shiftron::fast {

template <typename T>
HeadRows<const T> head_rows(const ConstTensor& tensor, int64_t row, int64_t head, int64_t group) {
  return {tensor.data<T>() + row * tensor.stride(0) + head * tensor.stride(1), tensor.stride(0), tensor.stride(1),
          group, tensor.extent(2)};
}
template <typename T>
HeadRows<T> head_rows(const Tensor& tensor, int64_t row, int64_t head, int64_t group) {
  return {tensor.data<T>() + row * tensor.stride(0) + head * tensor.stride(1), tensor.stride(0), tensor.stride(1),
          group, tensor.extent(2)};
}

// The positions [row, row + positions) of one sample and the keys that they see, [key_begin, key_end). The thread's
// next tile in that sample has next_positions positions from next_row on; 0 after the last tile.
struct Tile {
  int64_t row, positions, key_begin, key_end, next_row, next_positions;
};

// What backward reads and writes.
struct AttentionGradients {
  ConstTensor d_out, out, log_sum_exp;
  Tensor d_q, d_k, d_v;
};

// Tracks which blocks of keys and values a thread holds packed, each in slot (number modulo `slots`).
template <int64_t slots>
class PackedBlocks {
 public:
  PackedBlocks() { heads_.fill(-1); }
  static int64_t slot_of(int64_t block) { return block % slots; }
  // Returns false if the block is already packed; true once, when it must be packed into its slot.
  bool missing(int64_t head, int64_t block) {
    const auto slot = static_cast<size_t>(slot_of(block));
    const bool there = heads_[slot] == head && blocks_[slot] == block;
    heads_[slot] = head;
    blocks_[slot] = block;
    return !there;
  }

 private:
  std::array<int64_t, static_cast<size_t>(slots)> heads_, blocks_{};
};

struct AttentionTasks {
  // `tile_rows` is a maximum.
  AttentionTasks(int all_threads, const ConstTensor& q, const ConstTensor& k, const ConstTensor& first_keys,
                 AttentionShape attention_shape, int64_t tile_rows)
      : start(first_keys.data<int32_t>()),
        shape(attention_shape),
        threads(std::max(1, all_threads)),
        tiles(q.extent(0), q.extent(1) / k.extent(1), q.extent(2), tile_rows),
        query_rows(q.extent(0)),
        kv_heads(k.extent(1)),
        samples(query_rows / shape.sequence_length),
        tiles_per_sample((shape.sequence_length + tiles.queries - 1) / tiles.queries) {}

  // Calls body(tile, head, work) for every tile of every KV head, the tiles of a sample in order of descending work. A
  // thread keeps its work = make(thread) between calls.
  template <typename Make, typename Body>
  void for_tiles(const Make& make, const Body& body) const {
    parallel_dynamic(threads, samples * kv_heads * tiles_per_sample, make, [&](int64_t task, auto& work) {
      const int64_t head = task / tiles_per_sample % kv_heads, index = tiles_per_sample - 1 - task % tiles_per_sample;
      body(tile_of(task / tiles_per_sample / kv_heads, index, index - 1), head, work);
    });
  }

  // The tasks of backward. body(tile, head, key_begin, key_end, for_queries, for_keys, work) adds the contributions of
  // the keys [key_begin, key_end) of a tile to d_q, or to d_k and d_v, or to both. Sums of keys are accumulated between
  // start(head, begin, end, work) and finish(head, begin, end, work) on one thread. If there are more threads than
  // samples × heads: first d_q by tiles, then d_k and d_v by blocks of keys. That takes 7 products instead of 5, with
  // the same sums in the same order.
  template <typename Make, typename Start, typename Body, typename Finish>
  void for_gradients(const Make& make, const Start& start_keys, const Body& body, const Finish& finish_keys) const {
    if (threads <= samples * kv_heads) {
      parallel_dynamic(threads, samples * kv_heads, make, [&](int64_t task, auto& work) {
        const int64_t sample = task / kv_heads, head = task % kv_heads;
        const int64_t begin = sample * shape.sequence_length, end = begin + shape.sequence_length;
        start_keys(head, begin, end, work);
        for (int64_t i = 0; i < tiles_per_sample; ++i) {
          const Tile tile = tile_of(sample, i, i + 1);
          body(tile, head, tile.key_begin, tile.key_end, true, true, work);
        }
        finish_keys(head, begin, end, work);
      });
      return;
    }
    for_tiles(make, [&](const Tile& tile, int64_t head, auto& work) {
      body(tile, head, tile.key_begin, tile.key_end, true, false, work);
    });
    // Blocks start at multiples of kKeys of all rows, as in for_key_blocks, so one block may hold the end of one sample
    // and the start of the next.
    parallel_dynamic(threads, blocks() * kv_heads, make, [&](int64_t task, auto& work) {
      const int64_t head = task % kv_heads, begin = task / kv_heads * AttentionTiles::kKeys;
      const int64_t end = std::min(query_rows, begin + AttentionTiles::kKeys);
      start_keys(head, begin, end, work);
      for (int64_t sample = begin / shape.sequence_length; sample * shape.sequence_length < end; ++sample) {
        for (int64_t i = 0; i < tiles_per_sample; ++i) {
          const Tile tile = tile_of(sample, i, i + 1);
          const int64_t key_begin = std::max(begin, tile.key_begin), key_end = std::min(end, tile.key_end);
          if (key_begin < key_end) body(tile, head, key_begin, key_end, false, true, work);
        }
      }
      finish_keys(head, begin, end, work);
    });
  }
  // An upper bound, for one task of backward.
  int64_t keys_of_task() const { return threads <= samples * kv_heads ? shape.sequence_length : AttentionTiles::kKeys; }
  int64_t blocks() const { return (query_rows + AttentionTiles::kKeys - 1) / AttentionTiles::kKeys; }

  // Copies one number for each row of a tile from or to a tensor [heads, rows].
  void read_numbers(const ConstTensor& from, const Tile& tile, int64_t head, float* numbers) const {
    const float* first = from.data<float>() + head * tiles.group * from.stride(0) + tile.row;
    for (int64_t row = 0; row < tile.positions * tiles.group; ++row) {
      numbers[row] = first[row % tiles.group * from.stride(0) + row / tiles.group];
    }
  }
  void write_numbers(const float* numbers, const Tile& tile, int64_t head, const Tensor& to) const {
    float* first = to.data<float>() + head * tiles.group * to.stride(0) + tile.row;
    for (int64_t row = 0; row < tile.positions * tiles.group; ++row) {
      first[row % tiles.group * to.stride(0) + row / tiles.group] = numbers[row];
    }
  }

  // next: the index of the tile after it, which need not exist.
  Tile tile_of(int64_t sample, int64_t index, int64_t next) const {
    const int64_t begin = sample * shape.sequence_length;
    const auto row_of = [&](int64_t tile) { return begin + tile * tiles.queries; };
    const auto positions_of = [&](int64_t tile) {
      return tile < 0 ? 0 : std::clamp<int64_t>(begin + shape.sequence_length - row_of(tile), 0, tiles.queries);
    };
    const int64_t row = row_of(index), positions = positions_of(index), key_end = shape.key_offset + row + positions;
    const int64_t key_begin = std::clamp<int64_t>(start[row], begin, key_end - positions);
    return {row, positions, key_begin, key_end, row_of(next), positions_of(next)};
  }

  // Cache lines to prefetch during forward's products of a tile: those that it writes, and those that the next tile
  // reads.
  LinesAhead lines_of_forward(const Tile& tile, int64_t head, const ConstTensor& q, const Tensor& out) const {
    LinesAhead ahead;
    add_lines(LinesAhead::Use::writing, out, tile.row, tile.positions, head, ahead);
    add_lines(LinesAhead::Use::reading, q, tile.next_row, tile.next_positions, head, ahead);
    return ahead;
  }
  // The same for backward.
  LinesAhead lines_of_backward(const Tile& tile, int64_t head, const ConstTensor& q,
                               const AttentionGradients& gradients, bool for_queries) const {
    LinesAhead ahead;
    if (for_queries) add_lines(LinesAhead::Use::writing, gradients.d_q, tile.row, tile.positions, head, ahead);
    for (const ConstTensor* read : {&gradients.d_out, &gradients.out, &q}) {
      add_lines(LinesAhead::Use::reading, *read, tile.next_row, tile.next_positions, head, ahead);
    }
    return ahead;
  }

  // Calls body(begin, end) for the keys [begin, end), split at multiples of kKeys.
  template <typename Body>
  void for_key_blocks(int64_t begin, int64_t end, const Body& body) const {
    while (begin < end) {
      const int64_t next = std::min(end, (begin / AttentionTiles::kKeys + 1) * AttentionTiles::kKeys);
      body(begin, next);
      begin = next;
    }
  }

  // Adds rows of the query heads of one KV head.
  void add_lines(LinesAhead::Use use, const ConstTensor& of, int64_t row, int64_t positions, int64_t head,
                 LinesAhead& ahead) const {
    if (positions == 0) return;
    const int64_t element = size_of(of.dtype());
    ahead.add(use,
              static_cast<const char*>(of.raw()) + (row * of.stride(0) + head * tiles.group * of.stride(1)) * element,
              positions, tiles.group * of.stride(1) * element, of.stride(0) * element);
  }

  TileMask mask(const Tile& tile, int64_t begin, int64_t end) const {
    return {start + tile.row, shape.key_offset + tile.row, begin, end - begin, tiles.group};
  }

  const int32_t* start;
  AttentionShape shape;
  int threads;
  AttentionTiles tiles;
  int64_t query_rows, kv_heads, samples, tiles_per_sample;
};

// attention_bfloat16_cpu.cpp: tile products in bfloat16. Whether these tensors can use them:
bool attention_in_bfloat16(const CpuOptions& cpu, const ConstTensor& q, const ConstTensor& k, const ConstTensor& v);
void attention_forward_bfloat16(const CpuOptions& cpu, ConstTensor q, ConstTensor k, ConstTensor v, ConstTensor start,
                                AttentionShape shape, Tensor out, Tensor log_sum_exp, Tensor scratch);
void attention_backward_bfloat16(const CpuOptions& cpu, ConstTensor q, ConstTensor k, ConstTensor v, ConstTensor start,
                                 AttentionShape shape, const AttentionGradients& gradients, Tensor scratch);

}  // namespace shiftron::fast

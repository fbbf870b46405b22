// Attention's tiles in bfloat16 with float32 sums: probabilities and their gradients are rounded once, before the next
// product. d_k and d_v are summed transposed, so that no tile of scores has to be transposed.
#include <cmath>

#include "kernels/attention_tasks.h"
#include "kernels/bodies.h"
#include "kernels/tile_product.h"

namespace shiftron::fast {
namespace {

constexpr int64_t kKeys = AttentionTiles::kKeys;
constexpr int64_t kStride = AttentionTiles::kStride;  // between rows of keys
constexpr int64_t kLargestDim = 512;                  // of a head

// A block of keys and values as right operands: of q·k by columns, [dim / 2][kStride]; of p·v by rows,
// [kKeys / 2][dim].
struct PackedBlock {
  uint32_t *key_columns, *key_rows, *value_columns, *value_rows;
};

// A thread's work buffers.
struct Workspace {
  Workspace(const AttentionTiles& tiles, float* memory) {
    const int64_t rows = tiles.paired_rows(), dim = tiles.head_dim;
    const auto take = [&]<typename Element>(Element*& place, int64_t elements) {
      place = reinterpret_cast<Element*>(memory);
      memory += elements * static_cast<int64_t>(sizeof(Element)) / static_cast<int64_t>(sizeof(float));
    };
    take(scores, rows * kStride);
    take(d_p, rows * kStride);
    take(result, rows * dim);
    take(p, rows * kStride);
    take(p_pairs, rows / 2 * kStride);
    take(d_pairs, rows / 2 * kStride);
    take(q, rows * dim);
    take(d_out, rows * dim);
    take(q_columns, packed_words(rows, dim));
    take(d_out_columns, packed_words(rows, dim));
    for (PackedBlock& block : blocks) {
      take(block.key_columns, dim / 2 * kStride);
      take(block.key_rows, dim / 2 * kStride);
      take(block.value_columns, dim / 2 * kStride);
      take(block.value_rows, dim / 2 * kStride);
    }
    take(first, rows);
    take(second, rows);
    key_sums = memory;
  }
  float *scores, *d_p, *result, *first, *second;
  bfloat16 *p, *q, *d_out;  // p: of forward; backward stores d_scores there
  uint32_t *p_pairs, *d_pairs, *q_columns, *d_out_columns;
  LeftTile q_transposed, d_out_transposed;
  PackedBlock blocks[AttentionTiles::kSlots];
  PackedBlocks<AttentionTiles::kSlots> packed;
  // d_k, then d_v of a task's keys: blocks [head_dim][kStride], starting with the block of first_key; sum_blocks of
  // each.
  float* key_sums;
  int64_t first_key = 0, sum_blocks = 0;
};

class Bfloat16Attention : AttentionTasks {
  auto workspaces() const {
    return [this](int thread) { return Workspace(tiles, scratch_ + thread * thread_words_); };
  }

 public:
  Bfloat16Attention(const CpuOptions& cpu, const TileBody& body, ConstTensor q, ConstTensor k, ConstTensor v,
                    ConstTensor first_keys, AttentionShape attention_shape, Tensor scratch)
      : AttentionTasks(cpu.threads, q, k, first_keys, attention_shape, AttentionTiles::kPairedRows),
        body_(body),
        q_(q),
        k_(k),
        v_(v),
        keys_(attention_shape.key_offset + q.extent(0)),
        dim_(q.extent(2)),
        scale_(1.0f / std::sqrt(static_cast<float>(q.extent(2)))),
        thread_words_(tiles.thread_words() + tiles.key_sums(keys_of_task())),
        scratch_(scratch.data<float>()) {
    CHECK(scratch.count() >= threads * thread_words_, "attention needs more scratch than ", scratch.count());
  }

  void forward(Tensor out, Tensor log_sum_exp) {
    for_tiles(workspaces(), [&](const Tile& tile, int64_t head, Workspace& work) {
      forward_tile(tile, head, work, out, log_sum_exp);
    });
  }

  void backward(const AttentionGradients& gradients) {
    backward_ = true;
    for_gradients(
        workspaces(),
        [&](int64_t, int64_t begin, int64_t end, Workspace& work) { start_key_gradients(begin, end, work); },
        [&](auto&&... arguments) { backward_tile(gradients, arguments...); },
        [&](auto&&... arguments) { finish_key_gradients(gradients, arguments...); });
  }

 private:
  // Returns the packed block that contains `begin`. Forward reads keys by columns and values by rows; backward reads
  // both in both layouts.
  const PackedBlock& pack_keys(int64_t begin, int64_t head, Workspace& work) const {
    const int64_t first = begin / kKeys * kKeys;
    const PackedBlock& block = work.blocks[work.packed.slot_of(first / kKeys)];
    if (!work.packed.missing(head, first / kKeys)) return block;
    const int64_t count = std::min(keys_, first + kKeys) - first;
    const auto by_columns = [&](const HeadRows<const bfloat16>& from, uint32_t* to) {
      transpose_words(from.data, from.position_stride / 2, count, dim_ / 2, to, kStride);
    };
    const auto by_rows = [&](const HeadRows<const bfloat16>& from, uint32_t* to) {
      pair_rows(from.data, from.position_stride, count, dim_, to, dim_);
    };
    const HeadRows<const bfloat16> k = head_rows<bfloat16>(k_, first, head, 1),
                                   v = head_rows<bfloat16>(v_, first, head, 1);
    by_columns(k, block.key_columns);
    by_rows(v, block.value_rows);
    if (backward_) {
      by_rows(k, block.key_rows);
      by_columns(v, block.value_columns);
    }
    return block;
  }

  // Calls body(begin, end, block) for the tile's keys, one packed block at a time. `begin` is even, because pairs of
  // keys are counted from the start of a block.
  template <typename Body>
  void for_packed_blocks(int64_t key_begin, int64_t key_end, int64_t head, Workspace& work, const Body& body) const {
    for_key_blocks(key_begin / 2 * 2, key_end,
                   [&](int64_t begin, int64_t end) { body(begin, end, pack_keys(begin, head, work)); });
  }

  void forward_tile(const Tile& tile, int64_t head, Workspace& work, Tensor out, Tensor log_sum_exp) const {
    const int64_t tile_rows = tile.positions * tiles.group, first_head = head * tiles.group;
    pack_rows(q_, tile, first_head, work.q);
    LinesAhead ahead = lines_of_forward(tile, head, q_, out);
    for_packed_blocks(tile.key_begin, tile.key_end, head, work,
                      [&](int64_t begin, int64_t end, const PackedBlock& block) {
                        const bool first = begin == tile.key_begin / 2 * 2;
                        const int64_t at = begin % kKeys;
                        body_.product(tile_rows, end - begin, dim_ / 2, rows_of(work.q, dim_), block.key_columns + at,
                                      kStride, false, work.scores, kStride, &ahead);
                        softmax_tile_bfloat16(mask(tile, begin, end), tile.positions, kStride, first, dim_, scale_,
                                              work.scores, work.p, work.first, work.second, work.result);
                        body_.product(tile_rows, dim_, (end - begin + 1) / 2, rows_of(work.p, kStride),
                                      block.value_rows + at / 2 * dim_, dim_, !first, work.result, dim_, &ahead);
                      });
    log_of_sums(tile_rows, work.first, work.second, work.first);
    unpack_bfloat16(work.result, tile.positions, work.second,
                    head_rows<bfloat16>(out, tile.row, first_head, tiles.group));
    write_numbers(work.first, tile, head, log_sum_exp);
  }

  void pack_rows(const ConstTensor& from, const Tile& tile, int64_t first_head, bfloat16* to) const {
    pack_bfloat16(head_rows<bfloat16>(from, tile.row, first_head, tiles.group), tile.positions, to);
  }

  // Packs q and d_out, as rows and transposed, and the numbers of each row: log_sum_exp in `first`, delta in `second`.
  void prepare_backward(const AttentionGradients& gradients, const Tile& tile, int64_t head, Workspace& work) const {
    const int64_t tile_rows = tile.positions * tiles.group, first_head = head * tiles.group;
    pack_rows(q_, tile, first_head, work.q);
    pack_rows(gradients.d_out, tile, first_head, work.d_out);
    row_products_bfloat16(tile.positions, head_rows<bfloat16>(gradients.out, tile.row, first_head, tiles.group),
                          head_rows<bfloat16>(gradients.d_out, tile.row, first_head, tiles.group), work.second);
    work.q_transposed = pack_transposed(body_, work.q, dim_, tile_rows, dim_, work.q_columns);
    work.d_out_transposed = pack_transposed(body_, work.d_out, dim_, tile_rows, dim_, work.d_out_columns);
    read_numbers(gradients.log_sum_exp, tile, head, work.first);
  }

  // Adds the contributions of the keys [key_begin, key_end) of a tile to their d_k and d_v (for_keys), and writes d_q
  // (for_queries).
  void backward_tile(const AttentionGradients& gradients, const Tile& tile, int64_t head, int64_t key_begin,
                     int64_t key_end, bool for_queries, bool for_keys, Workspace& work) const {
    const int64_t tile_rows = tile.positions * tiles.group, first_head = head * tiles.group;
    const int64_t pairs = (tile_rows + 1) / 2;
    prepare_backward(gradients, tile, head, work);
    LinesAhead ahead = lines_of_backward(tile, head, q_, gradients, for_queries);
    for_packed_blocks(key_begin, key_end, head, work, [&](int64_t begin, int64_t end, const PackedBlock& block) {
      const int64_t at = begin % kKeys, keys = end - begin;
      body_.product(tile_rows, keys, dim_ / 2, rows_of(work.q, dim_), block.key_columns + at, kStride, false,
                    work.scores, kStride, &ahead);
      body_.product(tile_rows, keys, dim_ / 2, rows_of(work.d_out, dim_), block.value_columns + at, kStride, false,
                    work.d_p, kStride, &ahead);
      softmax_gradient_tile_bfloat16(mask(tile, begin, end), tile.positions, kStride, scale_, work.first, work.second,
                                     work.scores, work.d_p, work.p, work.p_pairs, work.d_pairs);
      if (for_keys) {  // the key before an odd key_begin may belong to another task
        const int64_t skipped = std::max<int64_t>(0, key_begin - begin);
        body_.product(dim_, keys - skipped, pairs, work.q_transposed, work.d_pairs + skipped, kStride, true,
                      key_gradient(0, begin + skipped, work), kStride, &ahead);
        body_.product(dim_, keys - skipped, pairs, work.d_out_transposed, work.p_pairs + skipped, kStride, true,
                      key_gradient(1, begin + skipped, work), kStride, &ahead);
      }
      if (for_queries) {
        body_.product(tile_rows, dim_, (keys + 1) / 2, rows_of(work.p, kStride), block.key_rows + at / 2 * dim_, dim_,
                      begin > key_begin, work.result, dim_, &ahead);
      }
    });
    if (for_queries) {
      unpack_bfloat16(work.result, tile.positions, nullptr,
                      head_rows<bfloat16>(gradients.d_q, tile.row, first_head, tiles.group));
    }
  }

  // Where d_k (index 0) or d_v (1) of a key is accumulated.
  float* key_gradient(int64_t index, int64_t key, const Workspace& work) const {
    const int64_t block = key / kKeys - work.first_key / kKeys;
    return work.key_sums + (index * work.sum_blocks + block) * dim_ * kStride + key % kKeys;
  }

  void start_key_gradients(int64_t begin, int64_t end, Workspace& work) const {
    work.first_key = begin;
    work.sum_blocks = (end - 1) / kKeys - begin / kKeys + 1;
    std::fill_n(work.key_sums, 2 * work.sum_blocks * dim_ * kStride, 0.0f);
  }

  void finish_key_gradients(const AttentionGradients& gradients, int64_t head, int64_t key_begin, int64_t key_end,
                            const Workspace& work) const {
    constexpr int64_t kRows = 16;
    float rows_of_keys[kRows * kLargestDim];
    for (const int64_t index : {0, 1}) {
      const Tensor& gradient = index == 0 ? gradients.d_k : gradients.d_v;
      for_key_blocks(key_begin, key_end, [&](int64_t begin, int64_t end) {
        for (int64_t key = begin; key < end; key += kRows) {
          const int64_t count = std::min(kRows, end - key);
          transpose_words(key_gradient(index, key, work), kStride, dim_, count, rows_of_keys, dim_);
          unpack_bfloat16(rows_of_keys, count, nullptr, head_rows<bfloat16>(gradient, key, head, 1));
        }
      });
    }
  }

  const TileBody& body_;
  ConstTensor q_, k_, v_;
  int64_t keys_, dim_;
  float scale_;
  int64_t thread_words_;
  float* scratch_;
  bool backward_ = false;
};

}  // namespace

bool attention_in_bfloat16(const CpuOptions& cpu, const ConstTensor& q, const ConstTensor& k, const ConstTensor& v) {
  const int64_t dim = q.extent(2);
  // Pairs of elements are read as words in every row. With only a few rows, packing all their keys does not pay.
  const bool in_words = dim % 2 == 0 && k.stride(0) % 2 == 0 && v.stride(0) % 2 == 0;
  const AttentionTiles tiles(q.extent(0), q.extent(1) / k.extent(1), dim, AttentionTiles::kPairedRows);
  return q.dtype() == DType::bfloat16 && in_words && tiles.tile_rows() >= 32 && dim <= kLargestDim &&
         tile_body(cpu.bfloat16.attention) != nullptr;
}

void attention_forward_bfloat16(const CpuOptions& cpu, ConstTensor q, ConstTensor k, ConstTensor v, ConstTensor start,
                                AttentionShape shape, Tensor out, Tensor log_sum_exp, Tensor scratch) {
  Bfloat16Attention(cpu, *tile_body(cpu.bfloat16.attention), q, k, v, start, shape, scratch).forward(out, log_sum_exp);
}

void attention_backward_bfloat16(const CpuOptions& cpu, ConstTensor q, ConstTensor k, ConstTensor v, ConstTensor start,
                                 AttentionShape shape, const AttentionGradients& gradients, Tensor scratch) {
  Bfloat16Attention(cpu, *tile_body(cpu.bfloat16.attention), q, k, v, start, shape, scratch).backward(gradients);
}

}  // namespace shiftron::fast

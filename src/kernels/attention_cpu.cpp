// Causal grouped-query attention on the CPU in tiles of float32: small products, online softmax (Milakov and Gimelshein
// 2018; Dao et al. 2022), probabilities recomputed in backward. Rows of a tile: positions × query heads of a KV head.
#include <atomic>
#include <cmath>
#include <type_traits>
#include <utility>

#include "kernels/attention_row.h"
#include "kernels/attention_tasks.h"
#include "kernels/bodies.h"
#include "kernels/matrix.h"
#include "kernels/tile_product.h"

namespace shiftron::fast {
namespace {

constexpr int64_t kKeys = AttentionTiles::kKeys;
constexpr int64_t kStride = AttentionTiles::kStride;  // between rows of keys
// With so few rows in forward, transposing the keys does not pay: the library computes the products, reading rows of
// keys.
constexpr int64_t kFewRows = 32;

// Rows in float32.
struct Operand {
  const float* data;
  int64_t stride;
};

// A block of keys and values as right operands: by columns [dim][kStride], by rows [kKeys][dim].
struct PackedBlock {
  float *key_columns, *key_rows;
  float* values;  // by rows in forward, by columns in backward
};

// A thread's work buffers.
struct Workspace {
  Workspace(const AttentionTiles& tiles, float* memory) {
    const int64_t rows = tiles.tile_rows(), dim = tiles.head_dim;
    const auto take = [&](int64_t floats) {
      float* begin = memory;
      memory += floats;
      return begin;
    };
    scores = take(rows * kStride);
    d_scores = take(rows * kStride);
    q = take(rows * dim);
    d_out = take(rows * dim);
    result = take(rows * dim);
    for (PackedBlock& block : blocks) block = {take(kStride * dim), take(kStride * dim), take(kStride * dim)};
    first = take(rows);
    second = take(rows);
    key_sums = memory;
  }
  float *scores, *d_scores, *q, *d_out, *result, *first, *second;
  PackedBlock blocks[AttentionTiles::kSlots];
  PackedBlocks<AttentionTiles::kSlots> packed;
  // d_k, then d_v of a task's keys: [keys, head_dim] each, starting at first_key.
  float* key_sums;
  int64_t first_key = 0, sum_keys = 0;
};

template <typename T>
class Attention : AttentionTasks {
  auto workspaces() const {
    return [this](int thread) { return Workspace(tiles, scratch_ + thread * thread_floats_); };
  }

 public:
  Attention(const CpuOptions& cpu, ConstTensor q, ConstTensor k, ConstTensor v, ConstTensor first_keys,
            AttentionShape attention_shape, Tensor scratch)
      : AttentionTasks(cpu.threads, q, k, first_keys, attention_shape, AttentionTiles::kRows),
        q_(q),
        k_(k),
        v_(v),
        keys_(attention_shape.key_offset + q.extent(0)),
        dim_(q.extent(2)),
        scale_(1.0f / std::sqrt(static_cast<float>(q.extent(2)))),
        thread_floats_(tiles.thread_floats() + tiles.key_sums(keys_of_task())),
        scratch_(scratch.data<float>()) {
    CHECK(scratch.count() >= threads * thread_floats_, "attention needs more scratch than ", scratch.count());
  }

  void forward(Tensor out, Tensor log_sum_exp) {
    const LibraryThreads one(1);
    for_tiles(workspaces(), [&](const Tile& tile, int64_t head, Workspace& work) {
      forward_tile(tile, head, work, out, log_sum_exp);
    });
    CHECK(!failed_, "sgemm failed for an attention tile");
  }

  void backward(const AttentionGradients& gradients) {
    CHECK(shape.key_offset == 0 && k_.extent(0) == q_.extent(0), "backward needs the keys of its own rows");
    backward_ = true;
    for_gradients(
        workspaces(),
        [&](int64_t, int64_t begin, int64_t end, Workspace& work) {
          work.first_key = begin;
          work.sum_keys = end - begin;
        },
        [&](auto&&... arguments) { backward_tile(gradients, arguments...); },
        [&](auto&&... arguments) { finish_key_gradients(gradients, arguments...); });
  }

 private:
  bool few() const { return !backward_ && tiles.tile_rows() <= kFewRows; }

  // Returns the block that contains `begin`; packs it when the thread first needs it.
  const PackedBlock& pack_keys(int64_t begin, int64_t head, Workspace& work) const {
    const int64_t first = begin / kKeys * kKeys;
    const PackedBlock& block = work.blocks[work.packed.slot_of(first / kKeys)];
    if (!work.packed.missing(head, first / kKeys)) return block;
    const int64_t count = std::min(keys_, first + kKeys) - first;
    const HeadRows<const T> k = head_rows<T>(k_, first, head, 1), v = head_rows<T>(v_, first, head, 1);
    if (few() || backward_) pack(k, count, 1.0f, block.key_rows);
    if (!few()) transpose_float32(k.data, k.position_stride, count, dim_, block.key_columns, kStride);
    if (backward_)
      transpose_float32(v.data, v.position_stride, count, dim_, block.values, kStride);
    else
      pack(v, count, 1.0f, block.values);
    return block;
  }
  // Keys and values from `begin` to the end of its block, in float32.
  std::pair<Operand, Operand> keys_by_rows(int64_t begin, int64_t head, Workspace& work) const {
    if constexpr (std::is_same_v<T, float>) {
      const HeadRows<const T> k = head_rows<T>(k_, begin, head, 1), v = head_rows<T>(v_, begin, head, 1);
      return {{k.data, k.position_stride}, {v.data, v.position_stride}};
    } else {
      const PackedBlock& block = pack_keys(begin, head, work);
      const int64_t at = begin % kKeys * dim_;
      return {{block.key_rows + at, dim_}, {block.values + at, dim_}};
    }
  }

  void forward_tile(const Tile& tile, int64_t head, Workspace& work, Tensor out, Tensor log_sum_exp) {
    const int64_t rows = tile.positions * tiles.group, first_head = head * tiles.group;
    pack(head_rows<T>(q_, tile.row, first_head, tiles.group), tile.positions, scale_, work.q);
    LinesAhead ahead = lines_of_forward(tile, head, q_, out);
    for_key_blocks(tile.key_begin, tile.key_end, [&](int64_t begin, int64_t end) {
      const bool first = begin == tile.key_begin;
      const int64_t at = begin % kKeys, keys = end - begin;
      const auto softmax = [&] {
        softmax_tile(mask(tile, begin, end), tile.positions, kStride, first, dim_, work.scores, work.first, work.second,
                     work.result);
      };
      if (few()) {
        const auto [k, v] = keys_by_rows(begin, head, work);
        multiply_few(rows, keys, dim_, {work.q, dim_}, k, true, false, work.scores, kStride);
        softmax();
        multiply_few(rows, dim_, keys, {work.scores, kStride}, v, false, !first, work.result, dim_);
        return;
      }
      const PackedBlock& block = pack_keys(begin, head, work);
      tile_product_float32(rows, keys, dim_, {work.q, dim_, 1}, block.key_columns + at, kStride, false, work.scores,
                           kStride, &ahead);
      softmax();
      tile_product_float32(rows, dim_, keys, {work.scores, kStride, 1}, block.values + at * dim_, dim_, !first,
                           work.result, dim_, &ahead);
    });
    finish_softmax(rows, dim_, work.first, work.second, work.result, work.first);
    unpack(work.result, tile.positions, 1.0f, head_rows<T>(out, tile.row, first_head, tiles.group));
    write_numbers(work.first, tile, head, log_sum_exp);
  }

  void multiply_few(int64_t m, int64_t n, int64_t k, Operand a, Operand b, bool b_transposed, bool keep, float* c,
                    int64_t c_stride) {
    if (!product_float32(m, n, k, a.data, a.stride, false, b.data, b.stride, b_transposed, keep, c, c_stride)) {
      failed_.store(true, std::memory_order_relaxed);
    }
  }

  // Adds the contributions of the keys [key_begin, key_end) of a tile to their d_k and d_v (for_keys), and writes d_q
  // (for_queries).
  void backward_tile(const AttentionGradients& gradients, const Tile& tile, int64_t head, int64_t key_begin,
                     int64_t key_end, bool for_queries, bool for_keys, Workspace& work) const {
    const int64_t rows = tile.positions * tiles.group, first_head = head * tiles.group;
    float *log_sum_exp = work.first, *delta = work.second;
    pack(head_rows<T>(gradients.d_out, tile.row, first_head, tiles.group), tile.positions, 1.0f, work.d_out);
    row_products(tile.positions, head_rows<T>(gradients.out, tile.row, first_head, tiles.group), work.d_out, delta);
    pack(head_rows<T>(q_, tile.row, first_head, tiles.group), tile.positions, scale_, work.q);
    read_numbers(gradients.log_sum_exp, tile, head, log_sum_exp);
    LinesAhead ahead = lines_of_backward(tile, head, q_, gradients, for_queries);
    for_key_blocks(key_begin, key_end, [&](int64_t begin, int64_t end) {
      const PackedBlock& block = pack_keys(begin, head, work);
      const int64_t at = begin % kKeys, keys = end - begin;
      tile_product_float32(rows, keys, dim_, {work.q, dim_, 1}, block.key_columns + at, kStride, false, work.scores,
                           kStride, &ahead);
      tile_product_float32(rows, keys, dim_, {work.d_out, dim_, 1}, block.values + at, kStride, false, work.d_scores,
                           kStride, &ahead);
      softmax_gradient_tile(mask(tile, begin, end), tile.positions, kStride, log_sum_exp, delta, work.scores,
                            work.d_scores);
      if (for_keys) {
        // Keys before the tile's rows already have sums from earlier tiles; for the tile's own keys these are the
        // first.
        const int64_t own = std::clamp(tile.row, begin, end);
        add_key_gradients(rows, begin, begin, own, true, work, &ahead);
        add_key_gradients(rows, begin, own, end, false, work, &ahead);
      }
      if (for_queries) {
        tile_product_float32(rows, dim_, keys, {work.d_scores, kStride, 1}, block.key_rows + at * dim_, dim_,
                             begin != key_begin, work.result, dim_, &ahead);
      }
    });
    if (for_queries) {
      unpack(work.result, tile.positions, scale_, head_rows<T>(gradients.d_q, tile.row, first_head, tiles.group));
    }
  }

  // Adds to d_k and d_v of the keys [begin, end); `column` is the key of the tile's first column. keep: there are sums
  // already.
  void add_key_gradients(int64_t rows, int64_t column, int64_t begin, int64_t end, bool keep, const Workspace& work,
                         LinesAhead* ahead) const {
    const int64_t at = begin - column;
    tile_product_float32(end - begin, dim_, rows, {work.d_scores + at, 1, kStride}, work.q, dim_, keep,
                         key_gradient(0, begin, work), dim_, ahead);
    tile_product_float32(end - begin, dim_, rows, {work.scores + at, 1, kStride}, work.d_out, dim_, keep,
                         key_gradient(1, begin, work), dim_, ahead);
  }

  // Where d_k (index 0) or d_v (1) of a key is accumulated.
  float* key_gradient(int64_t index, int64_t key, const Workspace& work) const {
    return work.key_sums + (index * work.sum_keys + key - work.first_key) * dim_;
  }

  void finish_key_gradients(const AttentionGradients& gradients, int64_t head, int64_t begin, int64_t end,
                            const Workspace& work) const {
    for (const int64_t index : {0, 1}) {
      unpack(key_gradient(index, begin, work), end - begin, 1.0f,
             head_rows<T>(index == 0 ? gradients.d_k : gradients.d_v, begin, head, 1));
    }
  }

  ConstTensor q_, k_, v_;
  int64_t keys_, dim_;
  float scale_;
  int64_t thread_floats_;
  float* scratch_;
  bool backward_ = false;
  std::atomic<bool> failed_ = false;
};

}  // namespace

void attention_forward(const CpuOptions& cpu, ConstTensor q, ConstTensor k, ConstTensor v, ConstTensor start,
                       AttentionShape shape, Tensor out, Tensor log_sum_exp, Tensor scratch) {
  if (q.extent(0) == 0) return;
  if (attention_of_one_row(cpu, q, k, v, start, shape, out, log_sum_exp, scratch)) return;
  if (q.dtype() == DType::float32)
    Attention<float>(cpu, q, k, v, start, shape, scratch).forward(out, log_sum_exp);
  else if (attention_in_bfloat16(cpu, q, k, v))
    attention_forward_bfloat16(cpu, q, k, v, start, shape, out, log_sum_exp, scratch);
  else
    Attention<bfloat16>(cpu, q, k, v, start, shape, scratch).forward(out, log_sum_exp);
}

void attention_backward(const CpuOptions& cpu, ConstTensor d_out, ConstTensor q, ConstTensor k, ConstTensor v,
                        ConstTensor out, ConstTensor log_sum_exp, ConstTensor start, AttentionShape shape, Tensor d_q,
                        Tensor d_k, Tensor d_v, Tensor scratch) {
  if (q.extent(0) == 0) return;
  const AttentionGradients gradients{d_out, out, log_sum_exp, d_q, d_k, d_v};
  if (q.dtype() == DType::float32)
    Attention<float>(cpu, q, k, v, start, shape, scratch).backward(gradients);
  else if (attention_in_bfloat16(cpu, q, k, v))
    attention_backward_bfloat16(cpu, q, k, v, start, shape, gradients, scratch);
  else
    Attention<bfloat16>(cpu, q, k, v, start, shape, scratch).backward(gradients);
}

}  // namespace shiftron::fast

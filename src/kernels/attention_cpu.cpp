// Causal grouped-query attention on the CPU in tiles: small products by sgemm, online softmax (Milakov and Gimelshein
// 2018; Dao et al. 2022), probabilities made again in backward. Rows of a tile: positions × query heads of a KV head.
#include <atomic>
#include <cmath>
#include <type_traits>
#include <utility>

#include "kernels/attention_row.h"
#include "kernels/attention_tasks.h"
#include "kernels/bodies.h"
#include "kernels/matrix.h"

namespace shiftron::fast {
namespace {

// What a tile's products read, in float32.
struct Operand {
  const float* data;
  int64_t stride;
};

// What one thread works in.
struct Workspace {
  Workspace(const AttentionTiles& tiles, float* memory) {
    const int64_t rows = tiles.tile_rows();
    const auto take = [&](int64_t floats) {
      float* begin = memory;
      memory += floats;
      return begin;
    };
    scores = take(rows * AttentionTiles::kKeys);
    d_scores = take(rows * AttentionTiles::kKeys);
    q = take(rows * tiles.head_dim);
    d_out = take(rows * tiles.head_dim);
    result = take(rows * tiles.head_dim);
    keys = take(AttentionTiles::kSlots * AttentionTiles::kKeys * tiles.head_dim);
    values = take(AttentionTiles::kSlots * AttentionTiles::kKeys * tiles.head_dim);
    first = take(rows);
    second = take(rows);
    key_sums = memory;
  }
  float *scores, *d_scores, *q, *d_out, *result, *keys, *values, *first, *second;
  PackedBlocks<AttentionTiles::kSlots> packed;  // what `keys` and `values` hold
  // In bfloat16: d_k, then d_v of a task's keys, [keys, head_dim] each from first_key on.
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
      : AttentionTasks(cpu.threads, q, k, first_keys, attention_shape, AttentionTiles::kKeys),
        q_(q),
        k_(k),
        v_(v),
        scale_(1.0f / std::sqrt(static_cast<float>(q.extent(2)))),
        thread_floats_(tiles.thread_floats() + (kSumsInPlace ? 0 : tiles.key_sums(keys_of_task()))),
        scratch_(scratch.data<float>()) {
    CHECK(scratch.count() >= threads * thread_floats_, "attention needs more scratch than ", scratch.count());
  }

  void forward(Tensor out, Tensor log_sum_exp) {
    const LibraryThreads one(1);
    for_tiles(workspaces(), [&](const Tile& tile, int64_t head, Workspace& work) {
      forward_tile(tile, head, work, out, log_sum_exp);
    });
    check();
  }

  void backward(const AttentionGradients& gradients) {
    CHECK(shape.key_offset == 0 && k_.extent(0) == q_.extent(0), "backward needs the keys of its own rows");
    const LibraryThreads one(1);
    for_gradients(
        workspaces(), [&](auto&&... arguments) { start_key_gradients(gradients, arguments...); },
        [&](auto&&... arguments) { backward_tile(gradients, arguments...); },
        [&](auto&&... arguments) { finish_key_gradients(gradients, arguments...); });
    check();
  }

 private:
  // The keys and values of the block that `begin` is in, from `begin` on; packed when the thread meets the block.
  std::pair<Operand, Operand> key_block(int64_t begin, int64_t head, Workspace& work) const {
    const int64_t first = begin / AttentionTiles::kKeys * AttentionTiles::kKeys, dim = tiles.head_dim;
    if constexpr (std::is_same_v<T, float>) {  // a few rows do not repay the packing
      if (tiles.tile_rows() <= 16) {
        return {{head_rows<T>(k_, begin, head, 1).data, k_.stride(0)},
                {head_rows<T>(v_, begin, head, 1).data, v_.stride(0)}};
      }
    }
    const int64_t block = first / AttentionTiles::kKeys;
    const int64_t place = work.packed.slot_of(block) * AttentionTiles::kKeys * dim;
    if (work.packed.missing(head, block)) {
      const int64_t keys = std::min(k_.extent(0), first + AttentionTiles::kKeys) - first;
      pack(head_rows<T>(k_, first, head, 1), keys, 1.0f, work.keys + place);
      pack(head_rows<T>(v_, first, head, 1), keys, 1.0f, work.values + place);
    }
    const int64_t at = place + (begin - first) * dim;
    return {{work.keys + at, dim}, {work.values + at, dim}};
  }

  void multiply(int64_t m, int64_t n, int64_t k, Operand a, bool a_transposed, Operand b, bool b_transposed, bool keep,
                float* c, int64_t c_stride) {
    if (!product_float32(m, n, k, a.data, a.stride, a_transposed, b.data, b.stride, b_transposed, keep, c, c_stride)) {
      failed_.store(true, std::memory_order_relaxed);
    }
  }
  void check() const { CHECK(!failed_, "sgemm refused a tile of attention"); }

  void forward_tile(const Tile& tile, int64_t head, Workspace& work, Tensor out, Tensor log_sum_exp) {
    const int64_t rows = tile.positions * tiles.group, dim = tiles.head_dim;
    pack(head_rows<T>(q_, tile.row, head * tiles.group, tiles.group), tile.positions, scale_, work.q);
    for_key_blocks(tile.key_begin, tile.key_end, [&](int64_t begin, int64_t end) {
      const bool first = begin == tile.key_begin;
      const int64_t keys = end - begin;
      const int64_t stride = (keys + 15) / 16 * 16;
      const auto [k, v] = key_block(begin, head, work);
      multiply(rows, keys, dim, {work.q, dim}, false, k, true, false, work.scores, stride);
      softmax_tile(mask(tile, begin, end), tile.positions, stride, first, dim, work.scores, work.first, work.second,
                   work.result);
      multiply(rows, dim, keys, {work.scores, stride}, false, v, false, !first, work.result, dim);
    });
    finish_softmax(rows, dim, work.first, work.second, work.result, work.first);
    unpack(work.result, tile.positions, 1.0f, head_rows<T>(out, tile.row, head * tiles.group, tiles.group));
    write_numbers(work.first, tile, head, log_sum_exp);
  }

  // Adds what the keys [key_begin, key_end) of a tile give: to d_k and d_v of the keys, and (queries) writes d_q.
  void backward_tile(const AttentionGradients& gradients, const Tile& tile, int64_t head, int64_t key_begin,
                     int64_t key_end, bool for_queries, bool for_keys, Workspace& work) {
    const int64_t rows = tile.positions * tiles.group, dim = tiles.head_dim, first_head = head * tiles.group;
    float *log_sum_exp = work.first, *delta = work.second;
    pack(head_rows<T>(gradients.out, tile.row, first_head, tiles.group), tile.positions, 1.0f, work.q);
    pack(head_rows<T>(gradients.d_out, tile.row, first_head, tiles.group), tile.positions, 1.0f, work.d_out);
    row_products(rows, dim, work.q, work.d_out, delta);
    pack(head_rows<T>(q_, tile.row, first_head, tiles.group), tile.positions, scale_, work.q);
    read_numbers(gradients.log_sum_exp, tile, head, log_sum_exp);
    for_key_blocks(key_begin, key_end, [&](int64_t begin, int64_t end) {
      const int64_t keys = end - begin;
      const int64_t stride = (keys + 15) / 16 * 16;
      const auto [k, v] = key_block(begin, head, work);
      multiply(rows, keys, dim, {work.q, dim}, false, k, true, false, work.scores, stride);
      multiply(rows, keys, dim, {work.d_out, dim}, false, v, true, false, work.d_scores, stride);
      softmax_gradient_tile(mask(tile, begin, end), tile.positions, stride, log_sum_exp, delta, work.scores,
                            work.d_scores);
      if (for_keys) {
        const HeadRows<float> d_k = key_gradient(gradients.d_k, 0, head, begin, work);
        const HeadRows<float> d_v = key_gradient(gradients.d_v, 1, head, begin, work);
        multiply(keys, dim, rows, {work.d_scores, stride}, true, {work.q, dim}, false, true, d_k.data,
                 d_k.position_stride);
        multiply(keys, dim, rows, {work.scores, stride}, true, {work.d_out, dim}, false, true, d_v.data,
                 d_v.position_stride);
      }
      if (for_queries) {
        multiply(rows, dim, keys, {work.d_scores, stride}, false, k, false, begin != key_begin, work.result, dim);
      }
    });
    if (for_queries) {
      unpack(work.result, tile.positions, scale_, head_rows<T>(gradients.d_q, tile.row, first_head, tiles.group));
    }
  }

  // Where d_k (index 0) or d_v (1) of a head is summed.
  HeadRows<float> key_gradient(const Tensor& gradient, int64_t index, int64_t head, int64_t row,
                               const Workspace& work) const {
    if constexpr (kSumsInPlace) {
      return head_rows<float>(gradient, row, head, 1);
    } else {
      const int64_t dim = tiles.head_dim;
      return {work.key_sums + (index * work.sum_keys + row - work.first_key) * dim, dim, dim, 1, dim};
    }
  }

  void start_key_gradients(const AttentionGradients& gradients, int64_t head, int64_t begin, int64_t end,
                           Workspace& work) const {
    work.first_key = begin;
    work.sum_keys = end - begin;
    for (const int64_t index : {0, 1}) {
      const HeadRows<float> sums = key_gradient(index == 0 ? gradients.d_k : gradients.d_v, index, head, begin, work);
      for (int64_t row = 0; row < end - begin; ++row) {
        std::fill_n(sums.data + row * sums.position_stride, tiles.head_dim, 0.0f);
      }
    }
  }

  void finish_key_gradients(const AttentionGradients& gradients, int64_t head, int64_t begin, int64_t end,
                            const Workspace& work) const {
    if constexpr (!kSumsInPlace) {
      for (const int64_t index : {0, 1}) {
        const Tensor& gradient = index == 0 ? gradients.d_k : gradients.d_v;
        for (int64_t row = begin; row < end; ++row) {
          unpack(key_gradient(gradient, index, head, row, work).data, 1, 1.0f, head_rows<T>(gradient, row, head, 1));
        }
      }
    }
  }

  static constexpr bool kSumsInPlace = std::is_same_v<T, float>;
  ConstTensor q_, k_, v_;
  float scale_;
  int64_t thread_floats_;
  float* scratch_;
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

void attention_backward(const CpuOptions& cpu, ConstTensor d_out, ConstTensor q, ConstTensor k, ConstTensor v, ConstTensor out,
                        ConstTensor log_sum_exp, ConstTensor start, AttentionShape shape, Tensor d_q, Tensor d_k,
                        Tensor d_v, Tensor scratch) {
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

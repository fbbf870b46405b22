// The loops of the CPU's attention between its matrix products: packing, softmax of a tile, gradients of a tile.
#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace shiftron::fast {

// Rows of a [positions, group, head_dim] tensor; a tile takes some of them.
template <typename T>
struct HeadRows {
  T* data;  // of the first position and head
  int64_t position_stride, head_stride;
  int64_t group, head_dim;
};

// to [positions · group, head_dim] = from · factor; `to` is contiguous.
void pack(const HeadRows<const float>& from, int64_t positions, float factor, float* to);
void pack(const HeadRows<const bfloat16>& from, int64_t positions, float factor, float* to);
// to = from · factor, where `from` has packed rows.
void unpack(const float* from, int64_t positions, float factor, const HeadRows<float>& to);
void unpack(const float* from, int64_t positions, float factor, const HeadRows<bfloat16>& to);

// Which columns of a tile of scores count: position i of the tile sees keys start[i] ... last + i, and the tile's
// columns are keys begin ... begin + columns − 1. Its rows have room for columns rounded up to 16.
struct TileMask {
  const int32_t* start;
  int64_t last, begin, columns, group;
};

// Online softmax. scores [rows, columns] ← p = exp(score − maximum) (0 where masked), with the maximum over all blocks
// so far. sums and accumulator [rows, head_dim] are rescaled to that maximum, and sums += Σ p. first: this is the first
// block.
void softmax_tile(const TileMask& mask, int64_t positions, int64_t stride, bool first, int64_t head_dim, float* scores,
                  float* maxima, float* sums, float* accumulator);
// log_sum_exp = maximum + log(sum) for each row.
void log_of_sums(int64_t rows, const float* maxima, const float* sums, float* log_sum_exp);
// accumulator /= sum, log_sum_exp = maximum + log(sum), for rows [position, group].
void finish_softmax(int64_t rows, int64_t head_dim, const float* maxima, const float* sums, float* accumulator,
                    float* log_sum_exp);
// delta [positions · group] = Σ_d a b; b has packed rows.
void row_products(int64_t positions, const HeadRows<const float>& a, const float* b, float* delta);
void row_products(int64_t positions, const HeadRows<const bfloat16>& a, const float* b, float* delta);
// scores ← p = exp(score − log_sum_exp), d_p ← p (d_p − delta); 0 where masked.
void softmax_gradient_tile(const TileMask& mask, int64_t positions, int64_t stride, const float* log_sum_exp,
                           const float* delta, float* scores, float* d_p);

// attention_loops_bfloat16_cpu.cpp, for processors with bfloat16 vector products.
// to [positions · group, head_dim] = from; `to` is contiguous.
void pack_bfloat16(const HeadRows<const bfloat16>& from, int64_t positions, bfloat16* to);
// to = from, rounded; `from` has packed rows. Rows are divided by `divisors` unless that is null.
void unpack_bfloat16(const float* from, int64_t positions, const float* divisors, const HeadRows<bfloat16>& to);
// delta [positions · group] = Σ_d a b.
void row_products_bfloat16(int64_t positions, const HeadRows<const bfloat16>& a, const HeadRows<const bfloat16>& b,
                           float* delta);
// Like softmax_tile, of scores · scale. p is bfloat16, 0 where masked and also in the columns up to the next multiple
// of 16. Rows of keys are `stride` elements apart in every array, whatever its element type.
void softmax_tile_bfloat16(const TileMask& mask, int64_t positions, int64_t stride, bool first, int64_t head_dim,
                           float scale, const float* scores, bfloat16* p, float* maxima, float* sums,
                           float* accumulator);
// Like softmax_gradient_tile, of scores · scale, in bfloat16: d_scores ← scale · p (d_p − delta). Both d_scores and p
// are also written as pairs of rows (see tile_product.h). They are 0 where masked, in the columns up to the next
// multiple of 16, and in the missing row of an incomplete pair.
void softmax_gradient_tile_bfloat16(const TileMask& mask, int64_t positions, int64_t stride, float scale,
                                    const float* log_sum_exp, const float* delta, const float* scores, const float* d_p,
                                    bfloat16* d_scores, uint32_t* p_pairs, uint32_t* d_pairs);

}  // namespace shiftron::fast

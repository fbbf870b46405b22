// All operations on tensors, each with its formula. Each one checks its shapes, records its cost in the stream's
// ledger, and runs the body for the stream's device, either now or in its queue (meta: none). The bodies are in
// <front end>_specification.cpp (reference implementation), <front end>_cpu.cpp and <front end>_cuda.cu.
// A = accumulation type (float64 for float64, otherwise float32). T = the activations' type. Rows may be strided; the
// last dim is contiguous. Tensors that are added to are InOut. Nothing here allocates: scratch is an argument where it
// is needed.
#pragma once

#include <vector>

#include "core/operands.h"
#include "core/stream.h"
#include "core/tensor.h"

namespace shiftron {

// ---- products (matmul.cpp) ------------------------------------------------------------------------------------------
// y = x wᵀ.              x [rows, in] T, w [out, in] T, y [rows, out] T (or A)
void matmul_forward(Stream& stream, ConstTensor x, ConstTensor w, Tensor y, Tensor scratch = {});
// y = residual + x wᵀ.   residual, y [rows, out] T, no overlap
void matmul_forward_add(Stream& stream, ConstTensor x, ConstTensor w, ConstTensor residual, Tensor y,
                        Tensor scratch = {});
// d_x = d_y w.           d_y [rows, out] T, w [out, in] T, d_x [rows, in] T
void matmul_backward_input(Stream& stream, ConstTensor d_y, ConstTensor w, Tensor d_x, Tensor scratch = {});
// d_x += d_y w.          the same, d_x A
void matmul_backward_input_sum(Stream& stream, ConstTensor d_y, ConstTensor w, InOut d_x, Tensor scratch = {});
// d_w += d_yᵀ x.         d_y [rows, out] T, x [rows, in] T, d_w [out, in] A
void matmul_backward_weight(Stream& stream, ConstTensor d_y, ConstTensor x, InOut d_w, Tensor scratch = {});
// Elements of T that each of these may use to repack an operand; none if repacking does not pay.
Shape matmul_scratch(const Stream& stream, DType dtype, int64_t rows, int64_t in, int64_t out);

// Bytes that the backend's libraries keep for all operations of a stream; an upper bound.
int64_t library_workspace(const Stream& stream);

// On the CPU (timing_cpu.cpp): sustained rate of matmul_forward in float32 or bfloat16, in operations per second; takes
// about 50 ms.
double measure_matmul_peak(const CpuOptions& cpu, DType dtype);
// The same for any stream's device (timing.cpp). On a GPU it tries square products of doubling size, up to 8,192, until
// one takes more than a millisecond or does not fit into memory.
double measure_matmul_peak(Stream& stream, DType dtype);
// Bytes read and written per second by `copy` between buffers larger than any cache; takes about 100 ms and 256 MiB.
double measure_copy_bandwidth(const CpuOptions& cpu);
double measure_copy_bandwidth(Stream& stream);

// ---- copies and sums (elementwise.cpp) ------------------------------------------------------------------------------
void fill_zero(Stream& stream, Tensor x);                         // contiguous
// y = x: any two floating types, rows strided; or one type of integers, contiguous
void copy(Stream& stream, ConstTensor x, Tensor y);
void add(Stream& stream, ConstTensor a, ConstTensor b, Tensor y); // y = a + b
// y = x between pinned host memory and the stream's device; contiguous, same shape and same type, which may be any. x
// must not change, and y is not ready, until an event recorded after the call is reached.
void upload(Stream& stream, ConstTensor x, Tensor y);
void download(Stream& stream, ConstTensor x, Tensor y);
struct Squares {
  ConstTensor x;  // contiguous A, the same A for all
  int64_t sum;    // index in sums
};
inline void state_argument(const Squares& squares) {
  state_read(squares.x);
}
// sums[of.sum] += Σ of.x²  for every element of the list, in float64, in an order that depends only on shapes. The list
// is sorted by `sum`.   sums [n], scratch sum_of_squares_scratch(...) float64
void sum_of_squares(Stream& stream, const std::vector<Squares>& squares, InOut sums, Tensor scratch = {});
Shape sum_of_squares_scratch(const Stream& stream, const std::vector<Squares>& squares);  // x may be on meta
// sums[j] += Σ_i x[i, j] in float64.   x [rows, columns] A; sums [columns], scratch sum_columns_scratch(...) float64
void sum_columns(Stream& stream, ConstTensor x, InOut sums, Tensor scratch = {});
Shape sum_columns_scratch(const Stream& stream, int64_t rows, int64_t columns);

// ---- embedding (embedding.cpp) --------------------------------------------------------------------------------------
// y_t = table[ids_t − vocab_begin], 0 where the table has no such row.   ids [rows] int32, table [local vocab, hidden] T
void embedding_forward(Stream& stream, ConstTensor ids, ConstTensor table, int64_t vocab_begin, Tensor y);
// d_table[ids_t − vocab_begin] += d_y_t, in row order.                   d_table A
void embedding_backward(Stream& stream, ConstTensor ids, ConstTensor d_y, int64_t vocab_begin, InOut d_table);

// ---- RMS norm (rms_norm.cpp) ----------------------------------------------------------------------------------------
// r = 1/√(mean(x²) + epsilon), y = x r w.       x, y [rows, hidden] T, w [hidden] A, inverse_rms [rows] A
void rms_norm_forward(Stream& stream, ConstTensor x, ConstTensor w, double epsilon, Tensor y, Tensor inverse_rms);
// x += residual, then rms_norm_forward; bit-identical to add and rms_norm_forward.
// residual [rows, hidden] T, no overlap with x
void add_rms_norm_forward(Stream& stream, ConstTensor residual, InOut x, ConstTensor w, double epsilon, Tensor y,
                          Tensor inverse_rms);
// d_x += r (w d_y − x r² mean(w d_y x)), d_w += Σ_rows d_y x r.   d_x T, d_w A, scratch rms_norm_scratch(...) A
void rms_norm_backward(Stream& stream, ConstTensor d_y, ConstTensor x, ConstTensor w, ConstTensor inverse_rms,
                       InOut d_x, InOut d_w, Tensor scratch);
Shape rms_norm_scratch(const Stream& stream, int64_t rows, int64_t hidden);

// ---- KV shift and RoPE (shift_rope.cpp); paper equations 8 and 9 ----------------------------------------------------
enum class TapForm { free, gate, clamp };
// free: taps = raw; clamp: min(max(raw, 0), 1); gate (raw [heads, 1]): s = sigmoid(raw), taps (1 − s, s).
// raw, taps A; taps [heads, count] oldest first, the last is the current token's.
void shift_taps_forward(Stream& stream, ConstTensor raw, TapForm form, Tensor taps);
// d_raw += ∂taps/∂raw · d_taps; clamp passes gradients where 0 ≤ raw ≤ 1.
void shift_taps_backward(Stream& stream, ConstTensor raw, TapForm form, ConstTensor d_taps, InOut d_raw);

// cosine, sine of position · base^(−2i/head_dim), computed in float64, rounded to A.   table [2, positions, head_dim/2] A
void rope_table(Stream& stream, double base, Tensor table);

struct ShiftRope {
  ConstTensor taps;         // [heads, count] A; undefined: no shift
  ConstTensor rope;         // [2, positions, head_dim/2] A; undefined: no rotation
  ConstTensor positions;    // [rows] int32, each row's position in the table
  ConstTensor shift_start;  // [rows] int32, the first row that this row may mix in; below 0: carried rows too
  ConstTensor carried;      // [count − 1, heads, head_dim] T raw rows before row 0, oldest first; undefined in training
};
// The streams of a layer (query, key, value) are passed in one call, in any order. A result must not overlap what other
// streams read. Streams that have rope, positions or shift_start must have the same one. A stream that does not change
// needs no call.
inline constexpr size_t kShiftStreams = 3;  // per call, at most
struct ShiftForward {
  ConstTensor x;
  ShiftRope how;
  Tensor y;
};
struct ShiftBackward {
  ConstTensor d_y, x;
  ShiftRope how;
  Tensor d_x, d_taps;
};
inline void state_argument(const ShiftRope& how) {
  for (const ConstTensor& tensor : {how.taps, how.rope, how.positions, how.shift_start, how.carried}) state_read(tensor);
}
inline void state_argument(const ShiftForward& of) {
  state_read(of.x);
  state_argument(of.how);
  state_write(of.y);
}
inline void state_argument(const ShiftBackward& of) {
  for (const ConstTensor& tensor : {of.d_y, of.x}) state_read(tensor);
  state_argument(of.how);
  for (const Tensor& tensor : {of.d_x, of.d_taps}) state_write(tensor);
}
// For code that fills `positions`, because the bodies do not check them: Error if a position is outside a table of
// `table` positions.
void check_row_positions(const int32_t* positions, int64_t rows, int64_t table);
// z_t = Σ_j taps[h, j] x_{t − (count − 1 − j)} over rows ≥ shift_start_t; y = rotation of the halves of z by its position.
// x, y [rows, heads, head_dim] T; summed in A, rounded once.
void shift_rope_forward(Stream& stream, const std::vector<ShiftForward>& streams);
inline void shift_rope_forward(Stream& stream, ConstTensor x, const ShiftRope& how, Tensor y) {
  shift_rope_forward(stream, {{x, how, y}});
}
// g = inverse rotation of d_y; d_x_s = Σ_j taps[h, j] g_{s + (count − 1 − j)}; d_taps[h, j] += Σ_{t,d} g_t x_{t−(count−1−j)}.
// d_taps [heads, count] A, undefined without shift; scratch shift_rope_scratch(...) A
void shift_rope_backward(Stream& stream, const std::vector<ShiftBackward>& streams, Tensor scratch);
inline void shift_rope_backward(Stream& stream, ConstTensor d_y, ConstTensor x, const ShiftRope& how, Tensor d_x,
                                Tensor d_taps, Tensor scratch) {
  shift_rope_backward(stream, {{d_y, x, how, d_x, d_taps}}, scratch);
}
Shape shift_rope_scratch(const Stream& stream, int64_t rows, int64_t heads, int64_t head_dim, int64_t taps);
Shape shift_rope_scratch(const Stream& stream, const std::vector<ShiftBackward>& streams);

// ---- causal attention (attention.cpp) -------------------------------------------------------------------------------
struct AttentionShape {
  int64_t sequence_length;  // rows of a sample; rows % sequence_length == 0; no row sees another sample
  int64_t key_offset = 0;   // decoding: row i of the query is row key_offset + i of the keys (one sample)
  bool documents = true;    // false promises that each row starts where its sample does, which may be faster
};
// out_t = Σ_{s = start_t}^{t} softmax_s(q_t·k_s / √head_dim) v_s;  query head i uses KV head i / (heads / kv_heads).
// q, out [rows, heads, head_dim] T; k, v [keys, kv_heads, head_dim] T; start [rows] int32: first key row that a row
// sees, not decreasing within a sample; log_sum_exp [heads, rows] A.  No [rows, rows] matrix is stored.
void attention_forward(Stream& stream, ConstTensor q, ConstTensor k, ConstTensor v, ConstTensor start,
                       AttentionShape shape, Tensor out, Tensor log_sum_exp, Tensor scratch);
void attention_backward(Stream& stream, ConstTensor d_out, ConstTensor q, ConstTensor k, ConstTensor v, ConstTensor out,
                        ConstTensor log_sum_exp, ConstTensor start, AttentionShape shape, Tensor d_q, Tensor d_k,
                        Tensor d_v, Tensor scratch);
// For code that fills `start`, because the bodies do not check it: Error if a row sees what it must not.
void check_row_starts(const int32_t* start, int64_t rows, AttentionShape shape);
// Elements of A that forward and backward need, for any number of threads up to stream.cpu.threads; q and k may be on
// meta.
Shape attention_scratch(const Stream& stream, ConstTensor q, ConstTensor k, AttentionShape shape);

// ---- SwiGLU (swiglu.cpp) --------------------------------------------------------------------------------------------
// y = gate · sigmoid(gate) · up.     all [rows, ffn] T
void swiglu_forward(Stream& stream, ConstTensor gate, ConstTensor up, Tensor y);
// d_gate and d_up of the same, and y again if it is defined; the results may share the memory of gate, up and d_y.
void swiglu_backward(Stream& stream, ConstTensor d_y, ConstTensor gate, ConstTensor up, Tensor d_gate, Tensor d_up,
                     Tensor y = {});

// ---- vocabulary-parallel cross-entropy (cross_entropy.cpp) ----------------------------------------------------------
// For this shard: statistics[row] = (max of logits, Σ exp(logit − max), logit of the target or 0 if it is elsewhere, 1
// if the target is here and is the first token here whose logit equals that max and is above −∞, else 0).
// logits [rows, local vocab] T, targets [rows] int32 (−1 = not counted), statistics [rows, kRowStatistics] A
inline constexpr int64_t kRowStatistics = 4;
void cross_entropy_statistics(Stream& stream, ConstTensor logits, ConstTensor targets, int64_t vocab_begin,
                              Tensor statistics);
// Over all shards, in ascending order of tokens: log_sum_exp_t, loss_t = log_sum_exp_t − target logit (0 if not
// counted); correct_t = 1 if the target is the most likely token, else 0. Of tokens that share the largest logit, the
// one with the lowest number is the most likely: greedy decoding picks it, and a row of equal logits must not make
// every target correct. correct_t is also 0 if the target is not counted or the loss is NaN.
// statistics [shards, rows, kRowStatistics] A, log_sum_exp, losses, correct [rows] A
void cross_entropy_combine(Stream& stream, ConstTensor statistics, ConstTensor targets, Tensor log_sum_exp,
                           Tensor losses, Tensor correct);
// logits ← (exp(logit − log_sum_exp) − [target]) · scale, 0 if not counted.
void cross_entropy_backward(Stream& stream, InOut logits, ConstTensor log_sum_exp, ConstTensor targets,
                            int64_t vocab_begin, double scale);

// All of this if one rank holds the whole vocabulary; reads each row once. losses and correct as above, logits ← their
// gradient as above.     losses, correct [rows] A
void cross_entropy(Stream& stream, InOut logits, ConstTensor targets, double scale, Tensor losses, Tensor correct);
// totals += (Σ loss, counted targets, Σ correct) of the rows; the last two are whole numbers, so that their order does
// not matter.
// losses, correct [rows] A, totals [kLossTotals] float64
inline constexpr int64_t kLossTotals = 3;
void add_losses(Stream& stream, ConstTensor losses, ConstTensor correct, ConstTensor targets, InOut totals);

// For this shard, without NaN: maxima[row] = (max of logits, number in the vocabulary of the first token that has it).
// logits [rows, local vocab] T, maxima [rows, 2] A: numbers below 2²⁴
void first_maximum(Stream& stream, ConstTensor logits, int64_t vocab_begin, Tensor maxima);

// How the head and its loss are divided on this backend: rows of logits at a time, and blocks of a rank's vocabulary
// `vocab`.
struct LossTiles {
  int64_t rows;
  int blocks;
};
LossTiles loss_tiles(const Stream& stream, int64_t rows, int64_t vocab, DType dtype);

// ---- masters in two halves (split_master.cpp) -----------------------------------------------------------------------
// With b the bits of master: weight = (b + 2¹⁵) / 2¹⁶ mod 2¹⁶, the nearest bfloat16, ties away from zero; rest = b mod
// 2¹⁶. Divisions round down. master float32, weight bfloat16, rest uint16; one shape, contiguous.
void split_master(Stream& stream, ConstTensor master, Tensor weight, Tensor rest);
// The inverse, exactly: b = ((weight − rest / 2¹⁵) mod 2¹⁶) · 2¹⁶ + rest.
void join_master(Stream& stream, ConstTensor weight, ConstTensor rest, Tensor master);

// ---- AdamW (adamw.cpp); Loshchilov and Hutter 2019, as in PyTorch ---------------------------------------------------
// Device scalars of an update, float64 [kUpdateScalars].
enum UpdateScalar { kLearningRate, kGradientFactor, kBiasCorrection1, kBiasCorrection2, kSkip, kUpdateScalars };
struct AdamW {
  double beta1, beta2, epsilon;
};
// One parameter. All tensors are contiguous, have one count, and are A. If `rest` is defined, p is float32 and stored
// in two halves, as split_master writes them; otherwise p is weight itself. All tensors but the gradient change.
struct AdamWParameter {
  double weight_decay = 0;
  double learning_rate_scale = 1;  // of both update and decay
  bool to_unit_interval = false;   // the update ends with a projection of p to [0, 1]
  ConstTensor gradient;
  Tensor weight, rest = {}, first_moment, second_moment;
};
inline void state_argument(const AdamWParameter& parameter) {
  state_read(parameter.gradient);
  for (const Tensor& tensor : {parameter.weight, parameter.rest, parameter.first_moment, parameter.second_moment}) {
    state_write(tensor);
  }
}
// g = gradient · factor; m = β₁m + (1−β₁)g; v = β₂v + (1−β₂)g²; p ← p(1 − lr·decay) − lr · (m/c₁) / (√(v/c₂) + ε).
// With to_unit_interval then p ← min(max(p, 0), 1), gradient projection (Goldstein 1964); m and v do not change.
// Updates all parameters of the list, which have one A and share no memory. kSkip ≠ 0: nothing changes.
void adamw(Stream& stream, const AdamW& how, ConstTensor scalars, const std::vector<AdamWParameter>& parameters);

// Computes the scalars of an update from the sums of a step over all ranks, without a round trip to the host.
struct UpdateRule {
  double nominal;  // targets of a full global batch, by which gradients were divided
  double clip;     // largest gradient norm; 0 = off
  double beta1, beta2;
};
inline constexpr double kLargestNorm = 1.8e19;  // of an update's gradients; its square fits into a float
enum UpdateSum { kLossSum, kCounted, kStopRequests, kFirstSquare };    // these sums, then `squares` sums of squares
enum UpdateCounter { kApplied, kSkipped, kSkippedInRow, kUpdateCounters };
enum UpdateResult { kLoss, kGradientNorm, kWasSkipped, kStop, kUpdateResults };
// norm = √Σ squares · nominal / counted; factor = nominal / counted · min(1, clip / (norm + 10⁻⁶)). An update is
// skipped if it has no counted targets, if its loss or norm is not finite, or if the square of norm · factor overflows
// float32 (second moments would stay infinite). Bias corrections 1 − βⁿ count applied updates.
// sums [≥ kFirstSquare + squares], learning_rate [1], counters [kUpdateCounters], scalars [kUpdateScalars], result
// [kUpdateResults] float64
void update_scalars(Stream& stream, const UpdateRule& rule, ConstTensor sums, int64_t squares, ConstTensor learning_rate,
                    InOut counters, Tensor scalars, Tensor result);

}  // namespace shiftron

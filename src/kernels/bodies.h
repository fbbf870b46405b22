// The bodies of the operations in kernels.h: reference implementations in plain loops, and fast ones for float32 and
// bfloat16 on CPU and in CUDA.
#pragma once

#include "kernels/kernels.h"

// Operations with all kinds of bodies.
#define SHIFTRON_BODIES(Where)                                                                                         \
  void matmul_forward(Where, ConstTensor x, ConstTensor w, Tensor y, Tensor scratch);                                  \
  void matmul_forward_add(Where, ConstTensor x, ConstTensor w, ConstTensor residual, Tensor y, Tensor scratch);        \
  void matmul_backward_input(Where, ConstTensor d_y, ConstTensor w, Tensor d_x, Tensor scratch);                       \
  void matmul_backward_input_sum(Where, ConstTensor d_y, ConstTensor w, Tensor d_x, Tensor scratch);                   \
  void matmul_backward_weight(Where, ConstTensor d_y, ConstTensor x, Tensor d_w, Tensor scratch);                      \
  void fill_zero(Where, Tensor x);                                                                                     \
  void copy(Where, ConstTensor x, Tensor y);                                                                           \
  void add(Where, ConstTensor a, ConstTensor b, Tensor y);                                                             \
  void sum_of_squares(Where, const std::vector<Squares>& squares, Tensor sums, Tensor scratch);                        \
  void embedding_forward(Where, ConstTensor ids, ConstTensor table, int64_t vocab_begin, Tensor y);                    \
  void embedding_backward(Where, ConstTensor ids, ConstTensor d_y, int64_t vocab_begin, Tensor d_table);               \
  void rms_norm_forward(Where, ConstTensor x, ConstTensor w, double epsilon, Tensor y, Tensor inverse_rms);            \
  void add_rms_norm_forward(Where, ConstTensor residual, Tensor x, ConstTensor w, double epsilon, Tensor y,            \
                            Tensor inverse_rms);                                                                       \
  void rms_norm_backward(Where, ConstTensor d_y, ConstTensor x, ConstTensor w, ConstTensor inverse_rms, Tensor d_x,    \
                         Tensor d_w, Tensor scratch);                                                                  \
  void shift_rope_forward(Where, const std::vector<ShiftForward>& streams);                                            \
  void shift_rope_backward(Where, const std::vector<ShiftBackward>& streams, Tensor scratch);                          \
  void attention_forward(Where, ConstTensor q, ConstTensor k, ConstTensor v, ConstTensor start, AttentionShape,        \
                         Tensor out, Tensor log_sum_exp, Tensor scratch);                                              \
  void attention_backward(Where, ConstTensor d_out, ConstTensor q, ConstTensor k, ConstTensor v, ConstTensor out,      \
                          ConstTensor log_sum_exp, ConstTensor start, AttentionShape, Tensor d_q, Tensor d_k,          \
                          Tensor d_v, Tensor scratch);                                                                 \
  void swiglu_forward(Where, ConstTensor gate, ConstTensor up, Tensor y);                                              \
  void swiglu_backward(Where, ConstTensor d_y, ConstTensor gate, ConstTensor up, Tensor d_gate, Tensor d_up,           \
                       Tensor y);                                                                                      \
  void cross_entropy_statistics(Where, ConstTensor logits, ConstTensor targets, int64_t vocab_begin, Tensor s);        \
  void cross_entropy_backward(Where, Tensor logits, ConstTensor log_sum_exp, ConstTensor targets, int64_t vocab_begin, \
                              double scale);                                                                           \
  void cross_entropy(Where, Tensor logits, ConstTensor targets, double scale, Tensor losses, Tensor correct);          \
  void first_maximum(Where, ConstTensor logits, int64_t vocab_begin, Tensor maxima);                                   \
  void adamw(Where, const AdamW&, ConstTensor scalars, const std::vector<AdamWParameter>& parameters);                 \
  void split_master(Where, ConstTensor master, Tensor weight, Tensor rest);                                            \
  void join_master(Where, ConstTensor weight, ConstTensor rest, Tensor master);

// Operations whose reference implementation is fast enough on a CPU.
#define SHIFTRON_SMALL_BODIES(Where)                                                                                \
  void copy_bytes(Where, ConstTensor x, Tensor y);                                                                  \
  void sum_columns(Where, ConstTensor x, Tensor sums, Tensor scratch);                                              \
  void shift_taps_forward(Where, ConstTensor raw, TapForm form, Tensor taps);                                       \
  void shift_taps_backward(Where, ConstTensor raw, TapForm form, ConstTensor d_taps, Tensor sums);                  \
  void rope_table(Where, double base, Tensor table);                                                                \
  void cross_entropy_combine(Where, ConstTensor statistics, ConstTensor targets, Tensor log_sum_exp, Tensor losses, \
                             Tensor correct);                                                                       \
  void add_losses(Where, ConstTensor losses, ConstTensor correct, ConstTensor targets, Tensor totals);              \
  void update_scalars(Where, const UpdateRule& rule, ConstTensor sums, int64_t squares, ConstTensor learning_rate,  \
                      Tensor counters, Tensor scalars, Tensor result);

namespace shiftron::specification {
SHIFTRON_BODIES(const CpuOptions&)
SHIFTRON_SMALL_BODIES(const CpuOptions&)
}  // namespace shiftron::specification
namespace shiftron::fast {
SHIFTRON_BODIES(const CpuOptions&)
}
namespace shiftron::cuda {  // called on the calling thread; what they launch runs in the stream's order
SHIFTRON_BODIES(const CudaContext&)
SHIFTRON_SMALL_BODIES(const CudaContext&)
}  // namespace shiftron::cuda

#undef SHIFTRON_BODIES
#undef SHIFTRON_SMALL_BODIES

// For a BodyTable.
#ifdef SHIFTRON_CUDA
#define SHIFTRON_CUDA_BODY(name) cuda::name
#else
#define SHIFTRON_CUDA_BODY(name) nullptr
#endif

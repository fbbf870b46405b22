// The bodies behind kernels.h: plain-loop specifications, and fast ones for float32 and bfloat16 on CPU.
#pragma once

#include "kernels/kernels.h"

// With bodies of both kinds.
#define SHIFTRON_BODIES                                                                                               \
  void matmul_forward(const CpuOptions&, ConstTensor x, ConstTensor w, Tensor y, Tensor scratch);                               \
  void matmul_backward_input(const CpuOptions&, ConstTensor d_y, ConstTensor w, Tensor d_x, Tensor scratch);                    \
  void matmul_backward_input_sum(const CpuOptions&, ConstTensor d_y, ConstTensor w, Tensor d_x, Tensor scratch);                \
  void matmul_backward_weight(const CpuOptions&, ConstTensor d_y, ConstTensor x, Tensor d_w, Tensor scratch);                   \
  void copy(const CpuOptions&, ConstTensor x, Tensor y);                                                                        \
  void add(const CpuOptions&, ConstTensor a, ConstTensor b, Tensor y);                                                          \
  void sum_of_squares(const CpuOptions&, ConstTensor x, Tensor sum);                                                            \
  void embedding_forward(const CpuOptions&, ConstTensor ids, ConstTensor table, int64_t vocab_begin, Tensor y);                 \
  void embedding_backward(const CpuOptions&, ConstTensor ids, ConstTensor d_y, int64_t vocab_begin, Tensor d_table);            \
  void rms_norm_forward(const CpuOptions&, ConstTensor x, ConstTensor w, double epsilon, Tensor y, Tensor inverse_rms);         \
  void rms_norm_backward(const CpuOptions&, ConstTensor d_y, ConstTensor x, ConstTensor w, ConstTensor inverse_rms, Tensor d_x, \
                         Tensor d_w, Tensor scratch);                                                                 \
  void shift_rope_forward(const CpuOptions&, ConstTensor x, const ShiftRope& how, Tensor y);                                    \
  void shift_rope_backward(const CpuOptions&, ConstTensor d_y, ConstTensor x, const ShiftRope& how, Tensor d_x, Tensor d_taps,  \
                           Tensor scratch);                                                                           \
  void attention_forward(const CpuOptions&, ConstTensor q, ConstTensor k, ConstTensor v, ConstTensor start, AttentionShape,     \
                         Tensor out, Tensor log_sum_exp, Tensor scratch);                                             \
  void attention_backward(const CpuOptions&, ConstTensor d_out, ConstTensor q, ConstTensor k, ConstTensor v, ConstTensor out,   \
                          ConstTensor log_sum_exp, ConstTensor start, AttentionShape, Tensor d_q, Tensor d_k,         \
                          Tensor d_v, Tensor scratch);                                                                \
  void swiglu_forward(const CpuOptions&, ConstTensor gate, ConstTensor up, Tensor y);                                           \
  void swiglu_backward(const CpuOptions&, ConstTensor d_y, ConstTensor gate, ConstTensor up, Tensor d_gate, Tensor d_up,        \
                       Tensor y);                                                                                     \
  void cross_entropy_statistics(const CpuOptions&, ConstTensor logits, ConstTensor targets, int64_t vocab_begin, Tensor s);     \
  void cross_entropy_backward(const CpuOptions&, Tensor logits, ConstTensor log_sum_exp, ConstTensor targets,                   \
                              int64_t vocab_begin, double scale);                                                     \
  void adamw(const CpuOptions&, const AdamW&, ConstTensor scalars, ConstTensor gradient, Tensor weight, Tensor rest,                 \
             Tensor first_moment, Tensor second_moment);                                                              \
  void split_master(const CpuOptions&, ConstTensor master, Tensor weight, Tensor rest);                                         \
  void join_master(const CpuOptions&, ConstTensor weight, ConstTensor rest, Tensor master);

namespace shiftron::specification {
SHIFTRON_BODIES
void fill_zero(const CpuOptions&, Tensor x);
void copy_bytes(const CpuOptions&, ConstTensor x, Tensor y);
void sum_columns(const CpuOptions&, ConstTensor x, Tensor sums);
void shift_taps_forward(const CpuOptions&, ConstTensor raw, TapForm form, Tensor taps);
void shift_taps_backward(const CpuOptions&, ConstTensor raw, TapForm form, ConstTensor d_taps, Tensor sums);
void rope_table(const CpuOptions&, double base, Tensor table);
void cross_entropy_combine(const CpuOptions&, ConstTensor statistics, ConstTensor targets, Tensor log_sum_exp,
                           Tensor losses, Tensor totals);
void update_scalars(const CpuOptions&, const UpdateRule& rule, ConstTensor sums, int64_t squares,
                    ConstTensor learning_rate, Tensor counters, Tensor scalars, Tensor result);
}
namespace shiftron::fast {
SHIFTRON_BODIES
}

#undef SHIFTRON_BODIES

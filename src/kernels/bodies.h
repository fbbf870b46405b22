// The bodies behind kernels.h: plain-loop specifications, and fast ones for float32 and bfloat16 on CPU.
#pragma once

#include "kernels/kernels.h"

#define SHIFTRON_BODIES                                                                                               \
  void matmul_forward(Stream&, ConstTensor x, ConstTensor w, Tensor y, Tensor scratch);                               \
  void matmul_backward_input(Stream&, ConstTensor d_y, ConstTensor w, Tensor d_x, Tensor scratch);                    \
  void matmul_backward_input_sum(Stream&, ConstTensor d_y, ConstTensor w, Tensor d_x, Tensor scratch);                \
  void matmul_backward_weight(Stream&, ConstTensor d_y, ConstTensor x, Tensor d_w, Tensor scratch);                   \
  void copy(Stream&, ConstTensor x, Tensor y);                                                                        \
  void add(Stream&, ConstTensor a, ConstTensor b, Tensor y);                                                          \
  void sum_of_squares(Stream&, ConstTensor x, Tensor sum);                                                            \
  void embedding_forward(Stream&, ConstTensor ids, ConstTensor table, int64_t vocab_begin, Tensor y);                 \
  void embedding_backward(Stream&, ConstTensor ids, ConstTensor d_y, int64_t vocab_begin, Tensor d_table);            \
  void rms_norm_forward(Stream&, ConstTensor x, ConstTensor w, double epsilon, Tensor y, Tensor inverse_rms);         \
  void rms_norm_backward(Stream&, ConstTensor d_y, ConstTensor x, ConstTensor w, ConstTensor inverse_rms, Tensor d_x, \
                         Tensor d_w, Tensor scratch);                                                                 \
  void shift_rope_forward(Stream&, ConstTensor x, const ShiftRope& how, Tensor y);                                    \
  void shift_rope_backward(Stream&, ConstTensor d_y, ConstTensor x, const ShiftRope& how, Tensor d_x, Tensor d_taps,  \
                           Tensor scratch);                                                                           \
  void attention_forward(Stream&, ConstTensor q, ConstTensor k, ConstTensor v, ConstTensor start, AttentionShape,     \
                         Tensor out, Tensor log_sum_exp, Tensor scratch);                                             \
  void attention_backward(Stream&, ConstTensor d_out, ConstTensor q, ConstTensor k, ConstTensor v, ConstTensor out,   \
                          ConstTensor log_sum_exp, ConstTensor start, AttentionShape, Tensor d_q, Tensor d_k,         \
                          Tensor d_v, Tensor scratch);                                                                \
  void swiglu_forward(Stream&, ConstTensor gate, ConstTensor up, Tensor y);                                           \
  void swiglu_backward(Stream&, ConstTensor d_y, ConstTensor gate, ConstTensor up, Tensor d_gate, Tensor d_up,        \
                       Tensor y);                                                                                     \
  void cross_entropy_statistics(Stream&, ConstTensor logits, ConstTensor targets, int64_t vocab_begin, Tensor s);     \
  void cross_entropy_backward(Stream&, Tensor logits, ConstTensor log_sum_exp, ConstTensor targets,                   \
                              int64_t vocab_begin, double scale);                                                     \
  void adamw(Stream&, const AdamW&, ConstTensor scalars, Tensor gradient, Tensor weight, Tensor rest,                 \
             Tensor first_moment, Tensor second_moment);                                                              \
  void split_master(Stream&, ConstTensor master, Tensor weight, Tensor rest);                                         \
  void join_master(Stream&, ConstTensor weight, ConstTensor rest, Tensor master);

namespace shiftron::specification {
SHIFTRON_BODIES
}
namespace shiftron::fast {
SHIFTRON_BODIES
}

#undef SHIFTRON_BODIES

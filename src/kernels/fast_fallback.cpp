// Stands in for the fast bodies until they exist: forwards to the specification.
#include "kernels/bodies.h"

namespace shiftron::fast {

void matmul_forward(Stream& stream, ConstTensor x, ConstTensor w, Tensor y) {
  specification::matmul_forward(stream, x, w, y);
}
void matmul_backward_input(Stream& stream, ConstTensor d_y, ConstTensor w, Tensor d_x) {
  specification::matmul_backward_input(stream, d_y, w, d_x);
}
void matmul_backward_weight(Stream& stream, ConstTensor d_y, ConstTensor x, Tensor d_w) {
  specification::matmul_backward_weight(stream, d_y, x, d_w);
}
void copy(Stream& stream, ConstTensor x, Tensor y) {
  specification::copy(stream, x, y);
}
void add(Stream& stream, ConstTensor a, ConstTensor b, Tensor y) {
  specification::add(stream, a, b, y);
}
void sum_of_squares(Stream& stream, ConstTensor x, Tensor sum) {
  specification::sum_of_squares(stream, x, sum);
}
void embedding_forward(Stream& stream, ConstTensor ids, ConstTensor table, int64_t vocab_begin, Tensor y) {
  specification::embedding_forward(stream, ids, table, vocab_begin, y);
}
void embedding_backward(Stream& stream, ConstTensor ids, ConstTensor d_y, int64_t vocab_begin, Tensor d_table) {
  specification::embedding_backward(stream, ids, d_y, vocab_begin, d_table);
}
void rms_norm_forward(Stream& stream, ConstTensor x, ConstTensor w, double epsilon, Tensor y, Tensor inverse_rms) {
  specification::rms_norm_forward(stream, x, w, epsilon, y, inverse_rms);
}
void rms_norm_backward(Stream& stream, ConstTensor d_y, ConstTensor x, ConstTensor w, ConstTensor inverse_rms,
                       Tensor d_x, Tensor d_w, Tensor scratch) {
  specification::rms_norm_backward(stream, d_y, x, w, inverse_rms, d_x, d_w, scratch);
}
void shift_rope_forward(Stream& stream, ConstTensor x, const ShiftRope& how, Tensor y) {
  specification::shift_rope_forward(stream, x, how, y);
}
void shift_rope_backward(Stream& stream, ConstTensor d_y, ConstTensor x, const ShiftRope& how, Tensor d_x,
                         Tensor d_taps, Tensor scratch) {
  specification::shift_rope_backward(stream, d_y, x, how, d_x, d_taps, scratch);
}
void attention_forward(Stream& stream, ConstTensor q, ConstTensor k, ConstTensor v, ConstTensor start,
                       AttentionShape shape, Tensor out, Tensor log_sum_exp, Tensor scratch) {
  specification::attention_forward(stream, q, k, v, start, shape, out, log_sum_exp, scratch);
}
void attention_backward(Stream& stream, ConstTensor d_out, ConstTensor q, ConstTensor k, ConstTensor v, ConstTensor out,
                        ConstTensor log_sum_exp, ConstTensor start, AttentionShape shape, Tensor d_q, Tensor d_k,
                        Tensor d_v, Tensor scratch) {
  specification::attention_backward(stream, d_out, q, k, v, out, log_sum_exp, start, shape, d_q, d_k, d_v, scratch);
}
void swiglu_forward(Stream& stream, ConstTensor gate, ConstTensor up, Tensor y) {
  specification::swiglu_forward(stream, gate, up, y);
}
void swiglu_backward(Stream& stream, ConstTensor d_y, ConstTensor gate, ConstTensor up, Tensor d_gate, Tensor d_up) {
  specification::swiglu_backward(stream, d_y, gate, up, d_gate, d_up);
}
void cross_entropy_statistics(Stream& stream, ConstTensor logits, ConstTensor targets, int64_t vocab_begin, Tensor s) {
  specification::cross_entropy_statistics(stream, logits, targets, vocab_begin, s);
}
void cross_entropy_backward(Stream& stream, Tensor logits, ConstTensor log_sum_exp, ConstTensor targets,
                            int64_t vocab_begin, double scale) {
  specification::cross_entropy_backward(stream, logits, log_sum_exp, targets, vocab_begin, scale);
}
void adamw(Stream& stream, const AdamW& parameters, ConstTensor scalars, Tensor gradient, Tensor master,
           Tensor first_moment, Tensor second_moment, Tensor weight) {
  specification::adamw(stream, parameters, scalars, gradient, master, first_moment, second_moment, weight);
}

}  // namespace shiftron::fast

// Calls of products, copies, embedding, norm, SwiGLU, shift and attention.
#include "kernels/kernel_cases.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/kernels.h"

namespace shiftron::kernel_testing {

std::string label(const char* kernel, std::initializer_list<int64_t> numbers) {
  std::string text = kernel;
  for (const int64_t number : numbers) (text += '_') += std::to_string(number);
  return text;
}

// ---- products -------------------------------------------------------------------------------------------------------
// Calls body(scratch) with the scratch that a product of x may use; w [out, in] or its gradient is the other operand.
template <typename Body>
void with_product_scratch(const Stream& stream, const Tensor& x, const Tensor& w, const Body& body) {
  const Shape shape = matmul_scratch(stream, x.dtype(), x.extent(0), w.extent(1), w.extent(0));
  if (shape.count() == 0 || stream.device != DeviceKind::cpu) return body(Tensor());
  const Owned scratch(x.dtype(), shape);
  body(scratch.tensor());
}

void add_matmul_cases(std::vector<KernelCase>& cases, int64_t rows, int64_t in, int64_t out) {
  const auto n = [](int64_t terms) { return static_cast<double>(terms); };
  for (const Kind kind : {Kind::activation, Kind::accumulation}) {
    Builder b(label(kind == Kind::activation ? "matmul_forward" : "matmul_forward_wide", {rows, in, out}));
    b.input("x", {rows, in});
    b.input("w", {out, in});
    b.output("y", {rows, out}, n(in), kind).magnitude = std::sqrt(n(in));
    b.call.run = [](Stream& s, const Tensors& a) {
      with_product_scratch(s, a[0], a[1], [&](const Tensor& scratch) { matmul_forward(s, a[0], a[1], a[2], scratch); });
    };
    cases.push_back(b.call);
  }
  Builder add(label("matmul_forward_add", {rows, in, out}));
  add.input("x", {rows, in});
  add.input("w", {out, in});
  add.input("residual", {rows, out}).strided = false;  // its stride differs from y's if y is strided
  // A body may also round the product to the type of y; the comparison's factor of two allows for that.
  add.output("y", {rows, out}, n(in + 1)).magnitude = 1 + std::sqrt(n(in));
  add.call.run = [](Stream& s, const Tensors& a) {
    with_product_scratch(s, a[0], a[1],
                         [&](const Tensor& scratch) { matmul_forward_add(s, a[0], a[1], a[2], a[3], scratch); });
  };
  cases.push_back(add.call);
  Builder b(label("matmul_backward_input", {rows, in, out}));
  b.input("d_y", {rows, out});
  b.input("w", {out, in});
  b.output("d_x", {rows, in}, n(out)).magnitude = std::sqrt(n(out));
  b.call.run = [](Stream& s, const Tensors& a) {
    with_product_scratch(s, a[0], a[1],
                         [&](const Tensor& scratch) { matmul_backward_input(s, a[0], a[1], a[2], scratch); });
  };
  cases.push_back(b.call);
  Builder sum(label("matmul_backward_input_sum", {rows, in, out}));
  sum.input("d_y", {rows, out});
  sum.input("w", {out, in});
  sum.sum("d_x", {rows, in}, n(out + 1));
  sum.call.run = [](Stream& s, const Tensors& a) {
    with_product_scratch(
        s, a[0], a[1], [&](const Tensor& scratch) { matmul_backward_input_sum(s, a[0], a[1], InOut(a[2]), scratch); });
  };
  cases.push_back(sum.call);
  Builder c(label("matmul_backward_weight", {rows, in, out}));
  c.input("d_y", {rows, out});
  c.input("x", {rows, in});
  c.sum("d_w", {out, in}, n(rows + 1));
  c.call.run = [](Stream& s, const Tensors& a) {
    with_product_scratch(s, a[1], a[2],
                         [&](const Tensor& scratch) { matmul_backward_weight(s, a[0], a[1], InOut(a[2]), scratch); });
  };
  cases.push_back(c.call);
}

// ---- copies and sums ------------------------------------------------------------------------------------------------
void add_elementwise_cases(std::vector<KernelCase>& cases, int64_t rows, int64_t columns) {
  const Shape shape = {rows, columns};
  struct Types {
    const char* name;
    Kind from, to;
  };
  for (const Types& types :
       {Types{"copy", Kind::activation, Kind::activation}, Types{"copy_wider", Kind::activation, Kind::accumulation},
        Types{"copy_narrower", Kind::accumulation, Kind::activation},
        Types{"copy_float64", Kind::float64, Kind::float64}}) {
    Builder b(label(types.name, {rows, columns}));
    b.input("x", shape, types.from);
    b.output("y", shape, 1, types.to);
    b.call.run = [](Stream& s, const Tensors& a) { copy(s, a[0], a[1]); };
    cases.push_back(b.call);
  }
  std::vector<int64_t> numbers(static_cast<size_t>(rows * columns));
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int64_t>(i * 2'654'435'761 % 40'000) - 20'000;
  Builder i(label("copy_integers", {rows, columns}));
  i.integers("x", numbers);
  i.output("y", {rows * columns}, 1, Kind::int32);
  i.call.run = [](Stream& s, const Tensors& a) { copy(s, a[0], a[1]); };
  cases.push_back(i.call);
  for (const Kind kind : {Kind::activation, Kind::float64}) {
    Builder b(label(kind == Kind::activation ? "add" : "add_float64", {rows, columns}));
    b.input("a", shape, kind);
    b.input("b", shape, kind);
    b.output("y", shape, 1, kind);
    b.call.run = [](Stream& s, const Tensors& a) { add(s, a[0], a[1], a[2]); };
    cases.push_back(b.call);
  }
  Builder c(label("sum_of_squares", {rows, columns}));
  c.input("x", {rows * columns}, Kind::accumulation);
  c.sum("sum", {1}, static_cast<double>(rows * columns), Kind::float64);
  c.scratch(
      scratch_of_any([&](const Stream& s) {
        return sum_of_squares_scratch(s, {{Tensor(nullptr, DType::float32, {rows * columns}, DeviceKind::meta), 0}});
      }),
      Kind::float64);
  c.call.run = [](Stream& s, const Tensors& a) { sum_of_squares(s, {{a[0], 0}}, InOut(a[1]), a[2]); };
  cases.push_back(c.call);
  Builder d(label("sum_columns", {rows, columns}));
  d.input("x", shape, Kind::accumulation);
  d.sum("sums", {columns}, static_cast<double>(rows), Kind::float64);
  d.scratch(scratch_of_any([&](const Stream& s) { return sum_columns_scratch(s, rows, columns); }), Kind::float64);
  d.call.run = [](Stream& s, const Tensors& a) { sum_columns(s, a[0], InOut(a[1]), a[2]); };
  cases.push_back(d.call);
}

// ---- embedding ------------------------------------------------------------------------------------------------------
void add_embedding_cases(std::vector<KernelCase>& cases, int64_t rows, int64_t vocab, int64_t hidden) {
  constexpr int64_t kBegin = 5;
  std::vector<int64_t> ids;  // repeated, and some on either side of the shard
  for (int64_t t = 0; t < rows; ++t) ids.push_back(kBegin - 2 + t * 7 % (vocab + 4));
  Builder b(label("embedding_forward", {rows, vocab, hidden}));
  b.integers("ids", ids);
  b.input("table", {vocab, hidden});
  b.output("y", {rows, hidden}, 1);
  b.call.run = [](Stream& s, const Tensors& a) { embedding_forward(s, a[0], a[1], kBegin, a[2]); };
  cases.push_back(b.call);
  Builder c(label("embedding_backward", {rows, vocab, hidden}));
  c.integers("ids", ids);
  c.input("d_y", {rows, hidden});
  c.sum("d_table", {vocab, hidden}, static_cast<double>(rows / vocab + 2));
  c.call.run = [](Stream& s, const Tensors& a) { embedding_backward(s, a[0], a[1], kBegin, InOut(a[2])); };
  cases.push_back(c.call);
}

// ---- norm, SwiGLU ---------------------------------------------------------------------------------------------------
void add_rms_norm_cases(std::vector<KernelCase>& cases, int64_t rows, int64_t hidden) {
  constexpr double kEpsilon = 1e-5;
  const auto terms = static_cast<double>(hidden);
  Builder b(label("rms_norm_forward", {rows, hidden}));
  b.input("x", {rows, hidden});
  b.input("w", {hidden}, Kind::accumulation, 0.25, 1);
  b.output("y", {rows, hidden}, terms);
  b.output("inverse_rms", {rows}, terms, Kind::accumulation);
  b.call.run = [](Stream& s, const Tensors& a) { rms_norm_forward(s, a[0], a[1], kEpsilon, a[2], a[3]); };
  cases.push_back(b.call);

  Builder d(label("add_rms_norm_forward", {rows, hidden}));
  // Sixteenths, whose sum is exact in every type: a rounded row would have another scale.
  const auto sixteenths = [](std::vector<double>& values) {
    for (double& value : values) value = std::round(value * 16) / 16;
  };
  sixteenths(d.input("residual", {rows, hidden}).values);
  sixteenths(d.sum("x", {rows, hidden}, 1, Kind::activation).values);
  d.input("w", {hidden}, Kind::accumulation, 0.25, 1);
  d.output("y", {rows, hidden}, terms);
  d.output("inverse_rms", {rows}, terms, Kind::accumulation);
  d.call.run = [](Stream& s, const Tensors& a) {
    add_rms_norm_forward(s, a[0], InOut(a[1]), a[2], kEpsilon, a[3], a[4]);
  };
  cases.push_back(d.call);

  Builder c(label("rms_norm_backward", {rows, hidden}));
  c.input("d_y", {rows, hidden});
  const std::vector<double> x = c.input("x", {rows, hidden}).values;
  c.input("w", {hidden}, Kind::accumulation, 0.25, 1);
  std::vector<double> inverse_rms;
  for (int64_t row = 0; row < rows; ++row) {
    double squares = 0;
    for (int64_t j = 0; j < hidden; ++j) squares += std::pow(x[static_cast<size_t>(row * hidden + j)], 2);
    inverse_rms.push_back(1 / std::sqrt(squares / terms + kEpsilon));
  }
  c.given("inverse_rms", {rows}, Kind::accumulation, inverse_rms);
  c.sum("d_x", {rows, hidden}, terms, Kind::activation).magnitude = 1;
  c.sum("d_w", {hidden}, static_cast<double>(rows + 1));
  c.scratch(scratch_of_any([&](const Stream& s) { return rms_norm_scratch(s, rows, hidden); }));
  c.call.run = [](Stream& s, const Tensors& a) {
    rms_norm_backward(s, a[0], a[1], a[2], a[3], InOut(a[4]), InOut(a[5]), a[6]);
  };
  cases.push_back(c.call);
}

void add_swiglu_cases(std::vector<KernelCase>& cases, int64_t rows, int64_t ffn) {
  const Shape shape = {rows, ffn};
  Builder b(label("swiglu_forward", {rows, ffn}));
  b.input("gate", shape, Kind::activation, 3);
  b.input("up", shape);
  b.output("y", shape, 1);
  b.call.run = [](Stream& s, const Tensors& a) { swiglu_forward(s, a[0], a[1], a[2]); };
  cases.push_back(b.call);
  Builder c(label("swiglu_backward", {rows, ffn}));
  c.input("d_y", shape);
  c.input("gate", shape, Kind::activation, 3);
  c.input("up", shape);
  c.output("d_gate", shape, 1);
  c.output("d_up", shape, 1);
  c.call.run = [](Stream& s, const Tensors& a) { swiglu_backward(s, a[0], a[1], a[2], a[3], a[4]); };
  cases.push_back(c.call);
  Builder d(label("swiglu_backward_in_place", {rows, ffn}));
  d.input("d_y", shape).role = Role::in_out;
  d.input("gate", shape, Kind::activation, 3).role = Role::in_out;
  d.input("up", shape).role = Role::in_out;
  d.call.run = [](Stream& s, const Tensors& a) { swiglu_backward(s, a[0], a[1], a[2], a[1], a[2], a[0]); };
  cases.push_back(d.call);
}

// ---- shift and RoPE -------------------------------------------------------------------------------------------------
void add_shift_streams_cases(std::vector<KernelCase>& cases, const ShiftStreamsCase& shift) {
  const DocumentRows documents(shift.documents);
  const int64_t rows = documents.rows();
  const int64_t positions = 1 + std::accumulate(shift.documents.begin(), shift.documents.end(), int64_t{0});
  Owned table = zeros({2, positions, shift.head_dim / 2});
  Device device;
  rope_table(device.stream, 10000, table);
  std::vector<int64_t> starts = documents.start;
  if (shift.carried) std::replace(starts.begin(), starts.end(), int64_t{0}, -rows - 9);
  // Arguments 0 to 2 are shared by all streams; the arguments of each stream follow.
  const auto add_shared = [&](Builder& b) {
    b.given("rope", table.tensor().shape(), Kind::accumulation, table.values()).strided = false;
    b.integers("positions", documents.position);
    b.integers("shift_start", starts);
  };
  const auto how_of = [](const ShiftStreamsCase::OneStream& stream, const Tensors& a, size_t taps) {
    ShiftRope how;
    if (stream.taps > 0) {
      how.taps = a[taps];
      how.shift_start = a[2];
    }
    if (stream.rope) {
      how.rope = a[0];
      how.positions = a[1];
    }
    return how;
  };
  const auto for_each_stream = [&](const auto& body) {  // body(stream, its heads' shape, its taps' shape, how to name)
    for (size_t i = 0; i < shift.streams.size(); ++i) {
      const ShiftStreamsCase::OneStream& stream = shift.streams[i];
      body(stream, Shape{rows, stream.heads, shift.head_dim}, Shape{stream.heads, std::max<int64_t>(stream.taps, 1)},
           [&](const char* what) { return what + (shift.streams.size() > 1 ? "_" + std::to_string(i) : ""); });
    }
  };
  Builder b(std::string("shift_rope_forward_") + shift.name);
  add_shared(b);
  for_each_stream([&](const auto& stream, const Shape& shape, const Shape& taps, const auto& name) {
    b.input(name("x"), shape);
    b.input(name("taps"), taps, Kind::accumulation, 0.5, 0.5);
    b.output(name("y"), shape, static_cast<double>(stream.taps + 2));
    if (shift.carried) b.input(name("carried"), {std::max<int64_t>(stream.taps - 1, 1), stream.heads, shift.head_dim});
  });
  b.call.run = [how_of, shift](Stream& s, const Tensors& a) {
    std::vector<ShiftForward> streams;
    size_t at = 3;
    for (const auto& stream : shift.streams) {
      streams.push_back({a[at], how_of(stream, a, at + 1), a[at + 2]});
      if (shift.carried && stream.taps > 1) streams.back().how.carried = a[at + 3];
      at += shift.carried ? 4 : 3;
    }
    shift_rope_forward(s, streams);
  };
  cases.push_back(b.call);
  if (shift.carried) return;

  Builder c(std::string("shift_rope_backward_") + shift.name);
  add_shared(c);
  int64_t scratch = 0;
  for_each_stream([&](const auto& stream, const Shape& shape, const Shape& taps, const auto& name) {
    c.input(name("d_y"), shape);
    c.input(name("x"), shape);
    c.input(name("taps"), taps, Kind::accumulation, 0.5, 0.5);
    c.output(name("d_x"), shape, static_cast<double>(stream.taps + 2));
    c.sum(name("d_taps"), taps, static_cast<double>(rows * shift.head_dim + 1));
    scratch += scratch_of_any([&](const Stream& s) {
                 return shift_rope_scratch(s, rows, stream.heads, shift.head_dim, stream.taps);
               }).count();
  });
  c.scratch({scratch});
  c.call.run = [how_of, shift](Stream& s, const Tensors& a) {
    std::vector<ShiftBackward> streams;
    size_t at = 3;
    for (const auto& stream : shift.streams) {
      streams.push_back(
          {a[at], a[at + 1], how_of(stream, a, at + 2), a[at + 3], stream.taps > 0 ? a[at + 4] : Tensor()});
      at += 5;
    }
    shift_rope_backward(s, streams, a[at]);
  };
  cases.push_back(c.call);
}

void add_shift_rope_cases(std::vector<KernelCase>& cases, const ShiftCase& shift) {
  add_shift_streams_cases(cases, {.name = shift.name,
                                  .documents = shift.documents,
                                  .head_dim = shift.head_dim,
                                  .streams = {{shift.heads, shift.taps, shift.rope}},
                                  .carried = shift.carried});
}

// ---- attention ------------------------------------------------------------------------------------------------------
void add_attention_cases(std::vector<KernelCase>& cases, const AttentionCase& at) {
  DocumentRows documents(at.documents);
  const int64_t rows = documents.rows();
  const int64_t keys = rows + at.key_offset + at.spare_keys;
  if (at.key_offset > 0) std::fill(documents.start.begin(), documents.start.end(), at.key_offset / 2);
  const AttentionShape shape{at.sequence_length, at.key_offset};
  const auto terms = static_cast<double>(at.sequence_length + at.key_offset + at.head_dim);
  const auto add_inputs = [&](Builder& b) {
    b.input("q", {rows, at.heads, at.head_dim});
    b.input("k", {keys, at.kv_heads, at.head_dim});
    b.input("v", {keys, at.kv_heads, at.head_dim});
    b.integers("start", documents.start);
  };
  const auto scratch_of = [&](Stream& stream, DType dtype) {
    const auto described = [&](Shape of) { return ConstTensor(nullptr, dtype, of, DeviceKind::meta); };
    return attention_scratch(stream, described({rows, at.heads, at.head_dim}),
                             described({rows, at.kv_heads, at.head_dim}), shape)[0];
  };
  Device host, gpu(DeviceKind::meta);
  gpu.stream.planned = DeviceKind::cuda;
  // On a CPU bfloat16 needs the most, on a GPU float32.
  const Shape scratch = {std::max(scratch_of(host.stream, DType::bfloat16), scratch_of(gpu.stream, DType::float32))};
  Builder b(std::string("attention_forward_") + at.name);
  add_inputs(b);
  b.output("out", {rows, at.heads, at.head_dim}, terms);
  b.output("log_sum_exp", {at.heads, rows}, terms, Kind::accumulation);
  b.scratch(scratch);
  b.call.run = [shape](Stream& s, const Tensors& a) {
    attention_forward(s, a[0], a[1], a[2], a[3], shape, a[4], a[5], a[6]);
  };
  cases.push_back(b.call);
  if (at.key_offset + at.spare_keys > 0) return;

  const Outcome forward = evaluate(b.call, {});
  Builder c(std::string("attention_backward_") + at.name);
  add_inputs(c);
  for (size_t i = 0; i < 4; ++i) c.call.arguments[i].values = b.call.arguments[i].values;
  c.input("d_out", {rows, at.heads, at.head_dim});
  c.given("out", {rows, at.heads, at.head_dim}, Kind::activation, forward.values[4]);
  c.given("log_sum_exp", {at.heads, rows}, Kind::accumulation, forward.values[5]);
  const double group = static_cast<double>(at.heads / at.kv_heads);
  c.output("d_q", {rows, at.heads, at.head_dim}, terms).magnitude = 1;
  c.output("d_k", {rows, at.kv_heads, at.head_dim}, terms * group).magnitude = 1;
  c.output("d_v", {rows, at.kv_heads, at.head_dim}, terms * group).magnitude = 1;
  c.scratch(scratch);
  c.call.run = [shape](Stream& s, const Tensors& a) {
    attention_backward(s, a[4], a[0], a[1], a[2], a[5], a[6], a[3], shape, a[7], a[8], a[9], a[10]);
  };
  cases.push_back(c.call);
}

}  // namespace shiftron::kernel_testing

// Front ends of the shift with RoPE, and the taps and the RoPE table, which need no fast bodies.
#include <algorithm>
#include <cmath>

#include "kernels/arguments.h"
#include "kernels/bodies.h"
#include "kernels/element.h"
#include "kernels/launch.h"

namespace shiftron {
namespace {

// Shapes of raw and taps of a form; returns the taps' type.
DType check_taps(const Stream& stream, const char* kernel, const ConstTensor& raw, TapForm form,
                 const ConstTensor& taps) {
  check_dims(kernel, "raw", raw, 2);
  check_dims(kernel, "taps", taps, 2);
  check_floating(kernel, "taps", taps);
  const DType dtype = accumulation_type(taps.dtype());
  const int64_t heads = taps.extent(0);
  const int64_t count = taps.extent(1);
  CHECK(form != TapForm::gate || count == 2, kernel, ": the gate has 2 taps, not ", count);
  check_argument(stream, kernel, "raw", raw, dtype, {heads, form == TapForm::gate ? 1 : count});
  check_argument(stream, kernel, "taps", taps, dtype, {heads, count});
  return dtype;
}

template <typename A>
A sigmoid(A x) {
  return A{1} / (A{1} + std::exp(-x));
}

}  // namespace

void shift_taps_forward(Stream& stream, ConstTensor raw, TapForm form, Tensor taps) {
  constexpr const char* kName = "shift_taps_forward";
  const DType dtype = check_taps(stream, kName, raw, form, taps);
  const Launch launch(stream, kName, {raw}, {taps}, form == TapForm::gate ? 2 * taps.count() : 0);
  if (!launch.runs()) return;
  for_type(dtype, [&](auto element) {
    using A = Accumulation<decltype(element)>;
    for (int64_t head = 0; head < taps.extent(0); ++head) {
      const A* in = raw.data<A>() + head * raw.stride(0);
      A* out = taps.data<A>() + head * taps.stride(0);
      if (form == TapForm::gate) {
        out[0] = sigmoid(-in[0]);  // 1 − s without cancellation
        out[1] = sigmoid(in[0]);
        continue;
      }
      for (int64_t j = 0; j < taps.extent(1); ++j) {
        out[j] = form == TapForm::clamp ? std::min(std::max(in[j], A{0}), A{1}) : in[j];
      }
    }
  });
}

void shift_taps_backward(Stream& stream, ConstTensor raw, TapForm form, ConstTensor d_taps, InOut d_raw) {
  constexpr const char* kName = "shift_taps_backward";
  const DType dtype = check_taps(stream, kName, raw, form, d_taps);
  check_argument(stream, kName, "d_raw", d_raw.tensor, dtype, raw.shape());
  const Tensor sums = d_raw.tensor;
  const Launch launch(stream, kName, {raw, d_taps, sums}, {sums}, 3 * d_taps.count());
  if (!launch.runs()) return;
  for_type(dtype, [&](auto element) {
    using A = Accumulation<decltype(element)>;
    for (int64_t head = 0; head < d_taps.extent(0); ++head) {
      const A* in = raw.data<A>() + head * raw.stride(0);
      const A* d_out = d_taps.data<A>() + head * d_taps.stride(0);
      A* d_in = sums.data<A>() + head * sums.stride(0);
      if (form == TapForm::gate) {  // taps (1 − s, s), ds = s (1 − s)
        d_in[0] += sigmoid(in[0]) * sigmoid(-in[0]) * (d_out[1] - d_out[0]);
        continue;
      }
      for (int64_t j = 0; j < d_taps.extent(1); ++j) {
        const bool passes = form == TapForm::free || (in[j] >= A{0} && in[j] <= A{1});
        if (passes) d_in[j] += d_out[j];
      }
    }
  });
}

void rope_table(Stream& stream, double base, Tensor table) {
  constexpr const char* kName = "rope_table";
  check_dims(kName, "table", table, 3);
  check_floating(kName, "table", table);
  const int64_t positions = table.extent(1);
  const int64_t half = table.extent(2);
  check_argument(stream, kName, "table", table, accumulation_type(table.dtype()), {2, positions, half});
  const Launch launch(stream, kName, {}, {table}, 2 * table.count());
  if (!launch.runs()) return;
  for_type(table.dtype(), [&](auto element) {
    using A = Accumulation<decltype(element)>;
    A* cosine = table.data<A>();
    A* sine = cosine + table.stride(0);
    for (int64_t i = 0; i < half; ++i) {
      const double frequency = std::pow(base, -static_cast<double>(i) / static_cast<double>(half));
      for (int64_t position = 0; position < positions; ++position) {
        const double angle = static_cast<double>(position) * frequency;
        cosine[position * table.stride(1) + i] = static_cast<A>(std::cos(angle));
        sine[position * table.stride(1) + i] = static_cast<A>(std::sin(angle));
      }
    }
  });
}

// ---- shift and rotation ---------------------------------------------------------------------------------------------
namespace {

int64_t tap_count(const ShiftRope& how) {
  return how.taps.defined() ? how.taps.extent(1) : 0;
}

void check_shift_rope(const Stream& stream, const char* kernel, const ConstTensor& x, const ShiftRope& how) {
  check_dims(kernel, "x", x, 3);
  check_floating(kernel, "x", x);
  const DType accumulation = accumulation_type(x.dtype());
  const int64_t rows = x.extent(0);
  const int64_t heads = x.extent(1);
  const int64_t head_dim = x.extent(2);
  check_argument(stream, kernel, "x", x, x.dtype(), x.shape());
  if (how.taps.defined()) {
    check_dims(kernel, "taps", how.taps, 2);
    CHECK(tap_count(how) >= 1, kernel, ": taps ", how.taps.shape().text(), " has no tap for the current token");
    check_argument(stream, kernel, "taps", how.taps, accumulation, {heads, tap_count(how)});
    check_argument(stream, kernel, "shift_start", how.shift_start, DType::int32, {rows});
  }
  if (how.rope.defined()) {
    check_dims(kernel, "rope", how.rope, 3);
    CHECK(head_dim % 2 == 0, kernel, ": head_dim ", head_dim, " has no halves to rotate");
    check_argument(stream, kernel, "rope", how.rope, accumulation, {2, how.rope.extent(1), head_dim / 2});
    check_argument(stream, kernel, "positions", how.positions, DType::int32, {rows});
  }
  if (how.carried.defined()) {
    CHECK(how.taps.defined(), kernel, ": carried rows without taps");
    check_argument(stream, kernel, "carried", how.carried, x.dtype(), {tap_count(how) - 1, heads, head_dim});
  }
}

// Both bodies index the table by position without looking, so one look here.
void check_positions(const char* kernel, const ShiftRope& how) {
  if (!how.rope.defined()) return;
  const int32_t* positions = how.positions.data<int32_t>();
  for (int64_t row = 0; row < how.positions.extent(0); ++row) {
    CHECK(positions[row] >= 0 && positions[row] < how.rope.extent(1), kernel, ": position ", positions[row], " of row ",
          row, " is outside of the table of ", how.rope.extent(1));
  }
}

// A product and a sum for each tap; four products and two sums for each pair of elements that is rotated.
int64_t operations_of(const ConstTensor& x, const ShiftRope& how) {
  return x.count() * (2 * tap_count(how) + (how.rope.defined() ? 3 : 0));
}

}  // namespace

void shift_rope_forward(Stream& stream, ConstTensor x, const ShiftRope& how, Tensor y) {
  constexpr const char* kName = "shift_rope_forward";
  check_shift_rope(stream, kName, x, how);
  check_argument(stream, kName, "y", y, x.dtype(), x.shape());
  const ConstTensor start = how.taps.defined() ? how.shift_start : ConstTensor();
  const ConstTensor positions = how.rope.defined() ? how.positions : ConstTensor();
  const Launch launch(stream, kName, {x, how.taps, how.rope, positions, start, how.carried}, {y},
                      operations_of(x, how));
  if (!launch.runs()) return;
  check_positions(kName, how);
  use_fast(stream, x.dtype()) ? fast::shift_rope_forward(stream, x, how, y)
                              : specification::shift_rope_forward(stream, x, how, y);
}

void shift_rope_backward(Stream& stream, ConstTensor d_y, ConstTensor x, const ShiftRope& how, Tensor d_x,
                         Tensor d_taps, Tensor scratch) {
  constexpr const char* kName = "shift_rope_backward";
  check_shift_rope(stream, kName, x, how);
  const DType dtype = x.dtype();
  const DType accumulation = accumulation_type(dtype);
  CHECK(!how.carried.defined(), kName, ": carried rows have no gradient");
  CHECK(d_taps.defined() == how.taps.defined(), kName, ": d_taps must be given exactly where taps are");
  check_argument(stream, kName, "d_y", d_y, dtype, x.shape());
  check_argument(stream, kName, "d_x", d_x, dtype, x.shape());
  if (d_taps.defined()) check_argument(stream, kName, "d_taps", d_taps, accumulation, how.taps.shape());
  check_scratch(stream, kName, scratch, accumulation,
                shift_rope_scratch(x.extent(0), x.extent(1), x.extent(2), tap_count(how)));
  const ConstTensor start = how.taps.defined() ? how.shift_start : ConstTensor();
  const ConstTensor positions = how.rope.defined() ? how.positions : ConstTensor();
  const ConstTensor raw = how.taps.defined() ? x : ConstTensor();  // read only for d_taps
  const int64_t operations = operations_of(x, how) + 2 * tap_count(how) * x.count();
  const Launch launch(stream, kName, {d_y, raw, how.taps, how.rope, positions, start, d_taps}, {d_x, d_taps},
                      operations);
  if (!launch.runs()) return;
  check_positions(kName, how);
  use_fast(stream, dtype) ? fast::shift_rope_backward(stream, d_y, x, how, d_x, d_taps, scratch)
                          : specification::shift_rope_backward(stream, d_y, x, how, d_x, d_taps, scratch);
}

}  // namespace shiftron

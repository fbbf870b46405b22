// Front ends of the taps, the RoPE table, and the shift with RoPE.
#include "kernels/arguments.h"
#include "kernels/bodies.h"
#include "kernels/launch.h"

namespace shiftron {
namespace {

// Checks the shapes of raw and taps of a form; returns the taps' type.
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

}  // namespace

void shift_taps_forward(Stream& stream, ConstTensor raw, TapForm form, Tensor taps) {
  constexpr const char* kName = "shift_taps_forward";
  const DType dtype = check_taps(stream, kName, raw, form, taps);
  launch(stream, kName, {raw}, {taps}, form == TapForm::gate ? 2 * taps.count() : 0, dtype,
         BodyTable{specification::shift_taps_forward, nullptr, SHIFTRON_CUDA_BODY(shift_taps_forward)}, raw, form,
         taps);
}

void shift_taps_backward(Stream& stream, ConstTensor raw, TapForm form, ConstTensor d_taps, InOut d_raw) {
  constexpr const char* kName = "shift_taps_backward";
  const DType dtype = check_taps(stream, kName, raw, form, d_taps);
  check_argument(stream, kName, "d_raw", d_raw.tensor, dtype, raw.shape());
  const Tensor sums = d_raw.tensor;
  launch(stream, kName, {raw, d_taps, sums}, {sums}, 3 * d_taps.count(), dtype,
         BodyTable{specification::shift_taps_backward, nullptr, SHIFTRON_CUDA_BODY(shift_taps_backward)}, raw, form,
         d_taps, sums);
}

void rope_table(Stream& stream, double base, Tensor table) {
  constexpr const char* kName = "rope_table";
  check_dims(kName, "table", table, 3);
  check_floating(kName, "table", table);
  const int64_t positions = table.extent(1);
  const int64_t half = table.extent(2);
  check_argument(stream, kName, "table", table, accumulation_type(table.dtype()), {2, positions, half});
  launch(stream, kName, {}, {table}, 2 * table.count(), table.dtype(),
         BodyTable{specification::rope_table, nullptr, SHIFTRON_CUDA_BODY(rope_table)}, base, table);
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
    CHECK(head_dim % 2 == 0, kernel, ": head_dim ", head_dim, " is odd, so RoPE cannot rotate its halves");
    check_argument(stream, kernel, "rope", how.rope, accumulation, {2, how.rope.extent(1), head_dim / 2});
    check_argument(stream, kernel, "positions", how.positions, DType::int32, {rows});
  }
  if (how.carried.defined()) {
    CHECK(how.taps.defined(), kernel, ": carried rows without taps");
    check_argument(stream, kernel, "carried", how.carried, x.dtype(), {tap_count(how) - 1, heads, head_dim});
  }
}

// One product and one sum per tap; four products and two sums per pair of elements that is rotated.
int64_t operations_of(const ConstTensor& x, const ShiftRope& how) {
  return x.count() * (2 * tap_count(how) + (how.rope.defined() ? 3 : 0));
}

// Tensors that are read once for all streams of a call.
struct Shared {
  ConstTensor rope, positions, shift_start;
};
void share(const char* kernel, const char* name, const ConstTensor& tensor, ConstTensor& shared) {
  if (!shared.defined()) shared = tensor;
  CHECK(tensor.raw() == shared.raw() && tensor.shape() == shared.shape(), kernel, ": all streams must share ", name);
}
template <typename OneStream>
Shared check_streams(const Stream& stream, const char* kernel, const std::vector<OneStream>& streams) {
  CHECK(!streams.empty() && streams.size() <= kShiftStreams, kernel, ": ", streams.size(), " streams, not 1 to ",
        kShiftStreams);
  Shared shared;
  for (const OneStream& one : streams) {
    check_shift_rope(stream, kernel, one.x, one.how);
    CHECK(one.x.dtype() == streams[0].x.dtype(), kernel, ": streams hold ", name_of(streams[0].x.dtype()), " and ",
          name_of(one.x.dtype()));
    if (one.how.taps.defined()) share(kernel, "shift_start", one.how.shift_start, shared.shift_start);
    if (!one.how.rope.defined()) continue;
    share(kernel, "rope", one.how.rope, shared.rope);
    share(kernel, "positions", one.how.positions, shared.positions);
  }
  return shared;
}

}  // namespace

void shift_rope_forward(Stream& stream, const std::vector<ShiftForward>& streams) {
  constexpr const char* kName = "shift_rope_forward";
  const Shared shared = check_streams(stream, kName, streams);
  Operands reads{shared.rope, shared.positions, shared.shift_start}, writes{};
  int64_t operations = 0;
  for (const ShiftForward& own : streams) {
    check_argument(stream, kName, "y", own.y, own.x.dtype(), own.x.shape());
    for (const ShiftForward& other : streams) {
      if (&other != &own || own.how.taps.defined()) check_apart(kName, "y", own.y, "x", other.x);
    }
    reads.add({own.x, own.how.taps, own.how.carried});
    writes.add({own.y});
    operations += operations_of(own.x, own.how);
  }
  launch(stream, kName, reads, writes, operations, streams[0].x.dtype(),
         BodyTable{specification::shift_rope_forward, fast::shift_rope_forward, SHIFTRON_CUDA_BODY(shift_rope_forward)},
         streams);
}

void shift_rope_backward(Stream& stream, const std::vector<ShiftBackward>& streams, Tensor scratch) {
  constexpr const char* kName = "shift_rope_backward";
  const Shared shared = check_streams(stream, kName, streams);
  const DType dtype = streams[0].x.dtype(), accumulation = accumulation_type(dtype);
  Operands reads{shared.rope, shared.positions, shared.shift_start}, writes{};
  int64_t operations = 0;
  for (const ShiftBackward& own : streams) {
    const auto& [d_y, x, how, d_x, d_taps] = own;
    CHECK(!how.carried.defined(), kName, ": carried rows have no gradient");
    CHECK(d_taps.defined() == how.taps.defined(), kName, ": d_taps must be given if and only if taps are");
    check_argument(stream, kName, "d_y", d_y, dtype, x.shape());
    check_argument(stream, kName, "d_x", d_x, dtype, x.shape());
    if (d_taps.defined()) check_argument(stream, kName, "d_taps", d_taps, accumulation, how.taps.shape());
    for (const ShiftBackward& other : streams) {
      if (&other == &own && !how.taps.defined()) continue;
      check_apart(kName, "d_x", d_x, "d_y", other.d_y);
      if (other.how.taps.defined()) check_apart(kName, "d_x", d_x, "x", other.x);
    }
    // x is read only for d_taps.
    reads.add({d_y, how.taps.defined() ? x : ConstTensor(), how.taps, d_taps});
    writes.add({d_x, d_taps});
    operations += operations_of(x, how) + 2 * tap_count(how) * x.count();
  }
  check_scratch(stream, kName, scratch, accumulation, shift_rope_scratch(stream, streams));
  launch(
      stream, kName, reads, writes, operations, dtype,
      BodyTable{specification::shift_rope_backward, fast::shift_rope_backward, SHIFTRON_CUDA_BODY(shift_rope_backward)},
      streams, scratch);
}

}  // namespace shiftron

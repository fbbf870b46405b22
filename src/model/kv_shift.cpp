// Initial values of the taps, and the calls of the shift kernels.
#include "model/kv_shift.h"

#include <cmath>

namespace shiftron {

TapForm tap_form(ShiftForm form) {
  switch (form) {
    case ShiftForm::free:
    case ShiftForm::project: return TapForm::free;
    case ShiftForm::gate: return TapForm::gate;
    case ShiftForm::clamp: return TapForm::clamp;
  }
  CHECK(false, "unknown form");
}

namespace {

// paper: all taps except the remainder ~ U(0, 1), the remainder = 1 − their sum; identity: only the current token;
// gate: logit of U(0, 1), so that the share itself is uniform.
Initializer initial_taps(const ShiftConfig& config, int taps) {
  if (config.form == ShiftForm::gate) {
    return [](const Philox& random, int64_t index) {
      const double share = random.uniform(static_cast<uint64_t>(index));
      return std::log(share / (1 - share));
    };
  }
  if (config.init == ShiftInit::identity) {
    return [taps](const Philox&, int64_t index) { return index % taps == taps - 1 ? 1.0 : 0.0; };
  }
  const int remainder = config.remainder == ShiftRemainder::oldest ? 0 : taps - 1;
  return [taps, remainder](const Philox& random, int64_t index) {
    if (index % taps != remainder) return random.uniform(static_cast<uint64_t>(index));
    double rest = 1;
    const int64_t row = index - index % taps;
    for (int64_t i = row; i < row + taps; ++i) {
      if (i != index) rest -= random.uniform(static_cast<uint64_t>(i));
    }
    return rest;
  };
}

}  // namespace

KvShift::KvShift(ParameterSet& set, const std::string& prefix, const std::string& stream, int64_t heads, int previous,
                 const ShiftConfig& config, bool rotate, int layer)
    : previous_(previous), rotate_(rotate), form_(tap_form(config.form)) {
  if (previous == 0) return;
  const int64_t columns = taps_of_head(config, previous);
  raw_ = set.declare({.name = prefix + ".shift_" + stream, .shape = {heads, columns}, .split_dim = 0,
                      .initial = initial_taps(config, previous + 1), .group = DecayGroup::shift, .keep_precise = true,
                      .layer = layer});
}

int64_t KvShift::table_elements() const {
  return raw_ == nullptr || form_ == TapForm::free ? 0 : raw_->box.extent[0] * (previous_ + 1);
}

void KvShift::set_table(const Tensor& table) {
  if (raw_ == nullptr) return;
  taps_ = form_ == TapForm::free ? raw_->weight : table.view({raw_->box.extent[0], previous_ + 1});
}

void KvShift::prepare(Stream& stream) const {
  if (table_elements() > 0) shift_taps_forward(stream, raw_->weight, form_, taps_);
}

ShiftRope KvShift::how(Run& run, const Tensor& rope, const Tensor& carried) const {
  return {.taps = taps_, .rope = rotate_ ? rope : Tensor(), .positions = run.documents.positions,
          .shift_start = run.documents.shift_start, .carried = carried};
}

void KvShift::forward(Run& run, const Tensor& rope, const std::vector<Forward>& streams) {
  std::vector<ShiftForward> calls;
  for (const auto& [shift, x, y, carried] : streams) calls.push_back({x, shift.how(run, rope, carried), y});
  shift_rope_forward(run.stream, calls);
}

void KvShift::backward(Run& run, const Tensor& rope, const std::vector<Backward>& streams) {
  ArenaScope scope(run.scratch);
  std::vector<ShiftBackward> calls;
  for (const auto& [shift, d_y, x, d_x] : streams) {
    Tensor d_taps = shift.raw_ == nullptr ? Tensor() : shift.raw_->gradient;
    if (shift.table_elements() > 0) {  // otherwise the taps are the parameters
      d_taps = run.scratch.allocate(shift.taps_.dtype(), shift.taps_.shape());
      fill_zero(run.stream, d_taps);
    }
    calls.push_back({d_y, x, shift.how(run, rope, {}), d_x, d_taps});
  }
  const Tensor scratch =
      run.scratch.allocate(accumulation_type(calls[0].x.dtype()), shift_rope_scratch(run.stream, calls));
  shift_rope_backward(run.stream, calls, scratch);
  for (size_t i = 0; i < streams.size(); ++i) {
    const KvShift& shift = streams[i].shift;
    if (shift.table_elements() == 0) continue;
    shift_taps_backward(run.stream, shift.raw_->weight, shift.form_, calls[i].d_taps, InOut(shift.raw_->gradient));
  }
}

}  // namespace shiftron

// KV shift with RoPE on the streams (query, key and value) of a layer; the paper's section 3 ("KV shifting attention").
#pragma once

#include <vector>

#include "kernels/kernels.h"
#include "model/config.h"
#include "parallel/parameter.h"
#include "parallel/run.h"

namespace shiftron {

TapForm tap_form(ShiftForm form);

// Mixes each row of a stream with the previous ones of its document, then rotates it (query and key).
class KvShift {
 public:
  // `previous` tokens are mixed in, 0 = none; declares "shift_<stream>" if there are any.
  KvShift(ParameterSet& set, const std::string& prefix, const std::string& stream, int64_t heads, int previous,
          const ShiftConfig& config, bool rotate, int layer);
  int previous() const { return previous_; }
  const Parameter* parameter() const { return raw_; }  // null without shift
  // Elements of A that prepare() needs.
  int64_t table_elements() const;
  void set_table(const Tensor& table);
  // Computes the taps from the current weights; call before the first forward after weights change.
  void prepare(Stream& stream) const;
  const Tensor& taps() const { return taps_; }  // [local heads, previous + 1] A, oldest first; undefined without shift
  bool is_identity() const { return previous_ == 0 && !rotate_; }

  // The streams of a layer, in one call: x, y, d_y, d_x [rows, local heads, head_dim].
  struct Forward {
    const KvShift& shift;
    Tensor x, y;
    Tensor carried = {};  // see ShiftRope; undefined in training
  };
  static void forward(Run& run, const Tensor& rope, const std::vector<Forward>& streams);
  struct Backward {
    const KvShift& shift;
    Tensor d_y, x, d_x;  // d_x of the raw stream
  };
  // Adds to the gradients of the taps.
  static void backward(Run& run, const Tensor& rope, const std::vector<Backward>& streams);

 private:
  ShiftRope how(Run& run, const Tensor& rope, const Tensor& carried) const;
  int previous_;
  bool rotate_;
  TapForm form_;
  Parameter* raw_ = nullptr;
  Tensor taps_;  // the weights themselves if the form does not change them
};

}  // namespace shiftron

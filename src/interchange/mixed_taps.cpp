// Computed by the model's own kernel, on the host.
#include "interchange/mixed_taps.h"

#include <algorithm>

#include "checkpoint/boxes.h"
#include "interchange/hugging_face_names.h"
#include "kernels/element.h"
#include "kernels/kernels.h"
#include "model/kv_shift.h"

namespace shiftron {

std::vector<double> mixed_taps(StoredRows& rows, const ModelConfig& model, int64_t layer, int stream) {
  const int64_t heads = heads_of(model, stream);
  const int previous = previous_tokens(model.shift, stream);
  if (previous == 0) return std::vector<double>(static_cast<size_t>(heads), 1.0);
  const int index = rows.find(name_of_taps(layer, stream));
  const Shape shape = {heads, taps_of_head(model.shift, previous)};
  std::vector<double> taps;
  std::vector<std::byte> values;
  for_type(rows.read(index, whole_box(shape), values), [&](auto element) {
    using From = decltype(element);
    using A = Accumulation<From>;
    std::vector<A> raw(static_cast<size_t>(shape.count())), mixed(static_cast<size_t>(heads * (previous + 1)));
    const auto* from = reinterpret_cast<const From*>(values.data());
    std::transform(from, from + shape.count(), raw.begin(), [](From value) { return to_accumulate(value); });
    const TapForm form = tap_form(model.shift.form);
    if (form == TapForm::free) {
      mixed = raw;
    } else {
      Ledger ledger;
      Stream stream_of_host{.ledger = &ledger};
      const DType type = DTypeOf<A>::value;
      shift_taps_forward(stream_of_host, ConstTensor(raw.data(), type, shape, DeviceKind::cpu), form,
                         Tensor(mixed.data(), type, {heads, previous + 1}, DeviceKind::cpu));
    }
    taps.assign(mixed.begin(), mixed.end());
  });
  return taps;
}

MixedTaps::MixedTaps(std::unique_ptr<TensorSource> source, const ModelConfig& model)
    : source_(std::move(source)), model_(with_defaults(model)), rows_(*source_, model_), tensors_(source_->tensors()) {
  if (tap_form(model_.shift.form) == TapForm::free) return;
  for (int64_t layer = 0; layer < model_.layers; ++layer) {
    for (const int stream : {0, 1, 2}) {
      const int index = find(TensorGroup::parameters, name_of_taps(layer, stream));
      if (index < 0) continue;
      ManifestTensor& tensor = tensors_[static_cast<size_t>(index)];
      tensor.shape = {heads_of(model_, stream), previous_tokens(model_.shift, stream) + 1};
      tensor.dtype = accumulation_type(tensor.dtype);
      taps_[index] = {layer, stream};
    }
  }
}

void MixedTaps::read(int index, const Box& box, void* to) {
  const auto found = taps_.find(index);
  if (found == taps_.end()) return source_->read(index, box, to);
  const ManifestTensor& tensor = tensors_[static_cast<size_t>(index)];
  const std::vector<double> whole = mixed_taps(rows_, model_, found->second.layer, found->second.stream);
  for_type(tensor.dtype, [&](auto element) {
    using To = Accumulation<decltype(element)>;
    for_each_run(whole_box(tensor.shape), box, box, [&](int64_t from, int64_t at, int64_t count) {
      std::transform(whole.begin() + from, whole.begin() + from + count, static_cast<To*>(to) + at,
                     [](double value) { return static_cast<To>(value); });
    });
  });
}

}  // namespace shiftron

// Compares the model's own stages, one layer at a time, with the plain reader.
#include "interchange/export_check.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "checkpoint/boxes.h"
#include "core/philox.h"
#include "core/progress.h"
#include "interchange/model_pieces.h"
#include "interchange/plain_forward.h"
#include "interchange/stored_rows.h"
#include "kernels/element.h"

namespace shiftron {
namespace {

constexpr int64_t kTokens = 16;
constexpr int64_t kPiece = int64_t{1} << 20;  // elements read at once, or one row
constexpr NumberTypes kTypes = {DType::float64, DType::float64};

// Sets the stage's masters from the source.
void fill(ParameterSet& set, TensorSource& source, StoredTypes types) {
  std::vector<std::byte> values;
  std::vector<double> wide;
  for (const auto& parameter : set.parameters()) {
    const ParameterSpec& spec = parameter->spec;
    const int index = source.find(TensorGroup::parameters, spec.name);
    if (index < 0) throw_bad_input("parameters/", spec.name, " is missing from the checkpoint");
    const ManifestTensor& tensor = source.tensors()[static_cast<size_t>(index)];
    const bool is_taps = spec.group == DecayGroup::shift;  // taps are never rounded to bfloat16
    const SafetensorsType type = spec.shape.dims() == 1 ? types.norms : types.matrices;
    const SafetensorsType written = is_taps && type == SafetensorsType::BF16 ? SafetensorsType::F32 : type;
    for_each_rows(whole_box(spec.shape), kPiece, [&](const Box& box, int64_t first) {
      const int64_t count = box.extent.count();
      values.resize(static_cast<size_t>(count * size_of(tensor.dtype)));
      source.read(index, box, values.data());
      wide.resize(static_cast<size_t>(count));
      for_type(tensor.dtype, [&](auto element) {
        const auto* from = reinterpret_cast<const decltype(element)*>(values.data());
        for (int64_t i = 0; i < count; ++i) {
          const double value = to_accumulate(from[i]);
          wide[static_cast<size_t>(i)] = stored_value(value, written);
        }
      });
      set.write(*parameter, ParameterState::master, first, count, wide.data());
    });
  }
}

ModelPieces pieces_of(const ModelConfig& model, const std::vector<int32_t>& ids) {
  return {model,
          kTypes,
          {},
          {ids, {static_cast<int64_t>(ids.size())}},
          {"to check an export, which computes one layer, or the head, at a time in float64",
           "export on a machine with more memory"}};
}

}  // namespace

std::vector<std::vector<double>> staged_logits(TensorSource& source, const ModelConfig& model, StoredTypes types,
                                               const std::vector<int32_t>& ids, const std::function<void()>& layer_done,
                                               const std::function<void(const std::vector<double>&)>& residual) {
  CHECK(static_cast<int64_t>(ids.size()) <= kTokens, ids.size(), " tokens");
  ModelPieces pieces = pieces_of(model, ids);
  const auto fill_piece = [&](ParameterSet& set) { fill(set, source, types); };
  for (int64_t layer = -1; layer < model.layers; ++layer) {
    pieces.forward(layer, fill_piece);
    if (residual) residual(pieces.rows());
    if (layer >= 0 && layer_done) layer_done();
  }
  std::vector<std::vector<double>> logits;
  pieces.head(fill_piece, [&](size_t, const Tensor& all) {
    const auto* from = all.data<double>();
    for (size_t t = 0; t < ids.size(); ++t, from += model.vocab) logits.emplace_back(from, from + model.vocab);
  });
  if (layer_done) layer_done();
  return logits;
}

void require_memory_of_check(const ModelConfig& model) {
  pieces_of(model, std::vector<int32_t>(kTokens)).require_memory();
}

ExportCheck check_export(TensorSource& source, const ModelConfig& model, StoredTypes types, const std::string& path) {
  const Philox random(0, "export check");
  std::vector<int32_t> ids(kTokens);
  for (size_t t = 0; t < ids.size(); ++t) {
    ids[t] = static_cast<int32_t>(random.uniform(t) * static_cast<double>(model.vocab));
  }
  Progress progress("checking", static_cast<uint64_t>(2 * (model.layers + 1)), "layers");
  const auto layer_done = [&] { progress.advance(1); };
  double longest_square = 0;
  const auto measure = [&](const std::vector<double>& rows) {
    for (auto row = rows.begin(); row < rows.end(); row += model.hidden) {
      longest_square = std::max(longest_square, std::inner_product(row, row + model.hidden, row, 0.0));
    }
  };
  const auto ours = staged_logits(source, model, types, ids, layer_done, measure);
  const auto theirs = plain_logits(path, ids, layer_done);
  ExportCheck check{.tokens = kTokens, .longest_activation = std::sqrt(longest_square)};
  for (size_t t = 0; t < ids.size(); ++t) {
    for (size_t i = 0; i < ours[t].size(); ++i) {
      const double difference = std::abs(ours[t][i] - theirs[t][i]);
      check.largest_difference = std::isnan(difference) ? INFINITY : std::max(check.largest_difference, difference);
      check.largest_logit = std::max(check.largest_logit, std::abs(ours[t][i]));
    }
  }
  const bool precise = source.tensors().front().dtype == DType::float64 && types.matrices == SafetensorsType::F64;
  const bool gated = model.shift.form == ShiftForm::gate && !precise;
  check.allowed = (gated ? 1e-5 : 1e-9) * check.largest_logit;
  check.passed = check.largest_difference <= check.allowed;
  return check;
}

}  // namespace shiftron

// The model's own stages, one layer at a time, against the plain reader.
#include "evaluate/export_check.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "checkpoint/boxes.h"
#include "checkpoint/stored_rows.h"
#include "core/host_limits.h"
#include "core/philox.h"
#include "core/progress.h"
#include "evaluate/plain_forward.h"
#include "kernels/element.h"
#include "model/transformer.h"

namespace shiftron {
namespace {

constexpr int64_t kTokens = 16;
constexpr int64_t kPiece = int64_t{1} << 20;  // elements read at once, or one row
constexpr NumberTypes kTypes = {DType::float64, DType::float64};

// The stage's masters out of the source.
void fill(ParameterSet& set, TensorSource& source, StoredTypes types) {
  std::vector<std::byte> values;
  std::vector<double> wide;
  for (const auto& parameter : set.parameters()) {
    const ParameterSpec& spec = parameter->spec;
    const int index = source.find(TensorGroup::parameters, spec.name);
    if (index < 0) throw_bad_input("parameters/", spec.name, " is missing in the checkpoint");
    const ManifestTensor& tensor = source.tensors()[static_cast<size_t>(index)];
    const bool is_taps = spec.group == DecayGroup::shift;  // which are never rounded to bfloat16
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

// One piece of the model on one stream.
class Piece {
 public:
  Piece(const ModelConfig& model, const StagePlace& place, const Stream& where, const Groups& groups,
        const MemoryPlan& plan)
      : stream_(where),
        groups_(groups),
        set_(groups.layout, groups.at, kTypes),
        stage_(set_, model, place, RecomputeKind::none),
        activations_(stream_, "activations", plan, "activations"),
        operands_(stream_, "operands", plan, "activations"),
        scratch_(stream_, "scratch", plan, "scratch"),
        hidden_(model.hidden) {
    set_.allocate(stream_, false);
    stage_.make_tables(stream_, kTokens);
  }
  ParameterSet& parameters() { return set_; }

  // Rows [tokens, hidden] for the next piece, or logits [tokens, vocab] of the last; `before` is unused in the first.
  std::vector<double> run(const std::vector<int32_t>& ids, const std::vector<double>& before) {
    const auto rows = static_cast<int64_t>(ids.size());
    const bool is_meta = stream_.device == DeviceKind::meta;
    const auto numbers = [&](auto value_of) {
      const Tensor tensor = activations_.allocate(DType::int32, {rows});
      for (int64_t i = 0; !is_meta && i < rows; ++i) tensor.data<int32_t>()[i] = value_of(i);
      return tensor;
    };
    const auto zero = [](int64_t) { return int32_t{0}; };
    const Tensor tokens = numbers([&](int64_t i) { return ids[static_cast<size_t>(i)]; });
    Tensor input;
    if (!stage_.first()) {
      input = activations_.allocate(DType::float64, {rows, hidden_});
      if (!is_meta) std::ranges::copy(before, input.data<double>());
    }
    stage_.prepare(stream_);
    Run run{.stream = stream_,
            .activations = activations_,
            .operands = operands_,
            .scratch = scratch_,
            .groups = groups_,
            .training = false,
            .gather_rows = false,
            .rows = rows,
            .sequence_length = rows,
            .documents = {numbers(zero), numbers(zero), numbers([](int64_t i) { return static_cast<int32_t>(i); })},
            .loss_scale = 1,
            .microbatch = 0,
            .weight_gradients = unused_};
    TransformerStage::Saved saved;
    const Tensor result = stage_.last() ? stage_.logits(run, input)
                                        : stage_.forward(run, {.ids = tokens, .targets = {}}, input, saved, {}, {});
    if (is_meta) return {};
    const auto* from = result.data<double>();
    return {from, from + result.count()};
  }
  MemoryPlan peaks() const {
    return {{"activations", activations_.peak()}, {"operands", operands_.peak()}, {"scratch", scratch_.peak()}};
  }

 private:
  Stream stream_;
  const Groups& groups_;
  ParameterSet set_;
  TransformerStage stage_;
  Arena activations_, operands_, scratch_;
  WeightGradientQueue unused_;
  int64_t hidden_;
};

// Piece −1 is the embedding, piece `layers` the head.
StagePlace place_of(const ModelConfig& model, int64_t piece) {
  const int64_t begin = std::clamp<int64_t>(piece, 0, model.layers),
                end = std::clamp<int64_t>(piece + 1, 0, model.layers);
  return {.layers = {begin, piece < 0 ? begin : end}, .first = piece < 0, .last = piece == model.layers};
}

struct PiecePlan {
  MemoryPlan arenas;
  int64_t bytes;  // of all its memory
};
PiecePlan plan_of(const ModelConfig& model, const StagePlace& place, const std::vector<int32_t>& ids) {
  const auto world = make_meta_world(0, 1);
  const Groups groups = make_groups(*world, {}, model.kv_heads);
  Ledger planned;
  Piece meta(model, place, {.device = DeviceKind::meta, .ledger = &planned}, groups, {});
  meta.run(ids, {});
  return {.arenas = meta.peaks(), .bytes = planned.memory_total()};
}

[[noreturn]] void refuse_memory(int64_t bytes) {
  throw_bad_input("not enough memory: ", bytes,
                  " bytes are needed to check an export, which computes a layer, or the head, in float64; free memory, "
                  "raise the limit of this process (ulimit -v), or export on a machine with more");
}

std::unique_ptr<Piece> make_piece(const ModelConfig& model, int64_t number, const Stream& where, const Groups& groups,
                                  const std::vector<int32_t>& ids) {
  const StagePlace place = place_of(model, number);
  const PiecePlan plan = plan_of(model, place, ids);
  try {
    return std::make_unique<Piece>(model, place, where, groups, plan.arenas);
  } catch (const Error& error) {  // whose advice is for whoever trains
    if (error.code() != ExitCode::bad_input) throw;
    refuse_memory(plan.bytes);
  }
}

}  // namespace

std::vector<std::vector<double>> staged_logits(TensorSource& source, const ModelConfig& model, StoredTypes types,
                                               const std::vector<int32_t>& ids, const std::function<void()>& layer_done,
                                               const std::function<void(const std::vector<double>&)>& residual) {
  CHECK(static_cast<int64_t>(ids.size()) <= kTokens, ids.size(), " tokens");
  const auto world = make_single_world();
  const Groups groups = make_groups(*world, {}, model.kv_heads);
  std::vector<double> rows;
  for (int64_t layer = -1; layer <= model.layers; ++layer) {
    Ledger ledger;
    const auto piece = make_piece(model, layer, {.ledger = &ledger}, groups, ids);
    fill(piece->parameters(), source, types);
    rows = piece->run(ids, rows);
    if (layer < model.layers && residual) residual(rows);
    if (layer >= 0 && layer_done) layer_done();
  }
  std::vector<std::vector<double>> logits;
  for (size_t t = 0; t < ids.size(); ++t) {
    const auto from = rows.begin() + static_cast<int64_t>(t) * model.vocab;
    logits.emplace_back(from, from + model.vocab);
  }
  return logits;
}

void require_memory_of_check(const ModelConfig& model) {
  const std::vector<int32_t> ids(kTokens);
  for (const int64_t piece : {int64_t{-1}, int64_t{0}, model.layers}) {  // layers are alike
    const int64_t bytes = plan_of(model, place_of(model, piece), ids).bytes;
    if (!has_memory(bytes)) refuse_memory(bytes);
  }
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

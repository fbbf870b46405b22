// Taps from the step's files, and as the model's own initializers draw them.
#include "evaluate/head_taps.h"

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "checkpoint/boxes.h"
#include "checkpoint/reader.h"
#include "checkpoint/steps.h"
#include "core/check.h"
#include "interchange/mixed_taps.h"
#include "kernels/element.h"
#include "model/transformer.h"
#include "run/saved_state.h"

namespace shiftron {
namespace {

// The initial taps of a run, drawn by the same rule as all initial weights.
class DrawnTaps : public TensorSource {
 public:
  DrawnTaps(const ModelConfig& model, uint64_t seed, DType masters) : taps_({}, {}, {masters, masters}) {
    ParameterSet whole({}, {}, {masters, masters});
    const TransformerStage stage(whole, model, {.layers = {0, model.layers}}, RecomputeKind::none);
    for (const auto& parameter : whole.parameters()) {
      const ParameterSpec& spec = parameter->spec;
      if (spec.group != DecayGroup::shift) continue;
      taps_.declare(spec);
      tensors_.push_back({TensorGroup::parameters, spec.name, spec.shape, masters});
    }
    taps_.allocate(stream_, false);
    taps_.initialise(seed);
  }
  const std::vector<ManifestTensor>& tensors() const override { return tensors_; }
  int find(TensorGroup group, const std::string& name) const override {
    const auto found = std::ranges::find_if(
        tensors_, [&](const ManifestTensor& tensor) { return tensor.group == group && tensor.name == name; });
    return found == tensors_.end() ? -1 : static_cast<int>(found - tensors_.begin());
  }
  void read(int index, const Box& box, void* to) override {
    const ManifestTensor& tensor = tensors_[static_cast<size_t>(index)];
    const Parameter& parameter = *taps_.find(tensor.name);
    for_type(tensor.dtype, [&](auto element) {
      using T = decltype(element);
      const T* values = parameter.weight.data<T>();
      for_each_run(whole_box(tensor.shape), box, box, [&](int64_t from, int64_t at, int64_t count) {
        std::copy_n(values + from, count, static_cast<T*>(to) + at);
      });
    });
  }

 private:
  Ledger ledger_;
  Stream stream_{.ledger = &ledger_};
  ParameterSet taps_;
  std::vector<ManifestTensor> tensors_;
};

std::vector<HeadTaps> taps_of(StoredRows& rows, const ModelConfig& model, int64_t layer, int stream) {
  const std::vector<double> mixed = mixed_taps(rows, model, layer, stream);  // oldest first
  const auto count = static_cast<std::ptrdiff_t>(previous_tokens(model.shift, stream) + 1);
  std::vector<HeadTaps> heads;
  for (auto head = mixed.begin(); head != mixed.end(); head += count) {
    heads.push_back({{std::make_reverse_iterator(head + count), std::make_reverse_iterator(head)}});
  }
  return heads;
}

std::vector<KvPair> pairs_of(TensorSource& source, const ModelConfig& model) {
  std::vector<KvPair> pairs;
  if (model.shift.key == 0 && model.shift.value == 0) return pairs;
  StoredRows rows(source, model);
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    const std::vector<HeadTaps> keys = taps_of(rows, model, layer, 1), values = taps_of(rows, model, layer, 2);
    for (int64_t head = 0; head < model.kv_heads; ++head) {
      pairs.push_back({layer, head, keys[static_cast<size_t>(head)], values[static_cast<size_t>(head)]});
    }
  }
  return pairs;
}

void read_initial(const CheckpointModel& model, TapReport& report) {
  const std::filesystem::path directory = std::filesystem::path(model.directory).lexically_normal();
  const std::filesystem::path steps = (directory.has_filename() ? directory : directory.parent_path()).parent_path();
  const std::string first = (steps / step_name(0)).string();
  const ModelConfig& shape = model.config.model;
  if (std::filesystem::exists(first + "/" + kManifestName)) {
    try {
      // The shapes must match, as another run's step may have been copied here.
      if (open_checkpoint(first).config.model == shape) {
        StepReader reader(first, check_step(first));
        report.initial = pairs_of(reader, shape);
        report.initial_from = first;
        return;
      }
    } catch (const Error& error) {  // damaged or just deleted: the seed gives the same values
      if (error.code() != ExitCode::no_checkpoint) throw;
    }
  }
  const SavedState state = saved_state(model.content.state_json, model.directory);
  if (!state.imported_from.empty() || !state.origin.from.empty()) return;
  const DType masters = model.config.train.precision == Precision::fp64 ? DType::float64 : DType::float32;
  DrawnTaps drawn(shape, static_cast<uint64_t>(model.config.train.seed), masters);
  report.initial = pairs_of(drawn, shape);
  report.initial_from = "seed " + std::to_string(model.config.train.seed);
}

}  // namespace

double HeadTaps::sum() const {
  return std::accumulate(taps.begin(), taps.end(), 0.0);
}

PairCounts count_pairs(const std::vector<KvPair>& pairs) {
  PairCounts counts{};
  for (const KvPair& pair : pairs) ++counts[pair.key.favours_current()][pair.value.favours_current()];
  return counts;
}

TapReport report_taps(const CheckpointModel& model) {
  const ModelConfig& shape = model.config.model;
  TapReport report;
  StepReader reader(model.directory, check_step(model.directory));
  report.pairs = pairs_of(reader, shape);
  if (shape.shift.query > 0) {
    StoredRows rows(reader, shape);
    for (int64_t layer = 0; layer < shape.layers; ++layer) report.queries.push_back(taps_of(rows, shape, layer, 0));
  }
  if (report.pairs.empty()) return report;
  read_initial(model, report);
  if (shape.shift.key == 0 || shape.shift.value == 0) return report;
  report.counts = count_pairs(report.pairs);
  if (report.initial.empty()) return report;
  report.initial_counts = count_pairs(report.initial);
  int64_t changed = 0;
  for (size_t i = 0; i < report.pairs.size(); ++i) {
    const KvPair &now = report.pairs[i], &then = report.initial[i];
    changed += now.key.favours_current() != then.key.favours_current() ||
               now.value.favours_current() != then.value.favours_current();
  }
  report.changed_quadrant = changed;
  return report;
}

}  // namespace shiftron

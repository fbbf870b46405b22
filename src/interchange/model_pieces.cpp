// Each piece is planned on meta, built, run and freed.
#include "interchange/model_pieces.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include "core/check.h"
#include "core/host_limits.h"
#include "kernels/element.h"

namespace shiftron {

// One piece on one stream.
class ModelPieces::Piece {
 public:
  Piece(const ModelConfig& model, NumberTypes types, const StagePlace& place, const Stream& where,
        std::unique_ptr<HostCommunicator> world, const MemoryPlan& plan, int64_t positions)
      : stream_(where),
        world_(std::move(world)),
        groups_(make_groups(*world_, {}, model.kv_heads)),
        set_(groups_.layout, groups_.at, types),
        stage_(set_, model, place, RecomputeKind::none),
        activations_(stream_, "activations", plan, "activations"),
        operands_(stream_, "operands", plan, "activations"),
        scratch_(stream_, "scratch", plan, "scratch"),
        hidden_(model.hidden) {
    set_.allocate(stream_, false);
    stage_.make_tables(stream_, positions);
  }
  ParameterSet& parameters() { return set_; }
  // Call it after the parameters change.
  void prepare() { stage_.prepare(stream_); }

  // `before`: the previous piece's rows; unused by the first piece. Calls take() with the rows for the next piece, or
  // with logits if it is the last.
  void run(const PieceTexts& texts, const double* before, const TransformerStage::AttentionVisitor& visit,
           const std::function<void(const Tensor& result)>& take) {
    activations_.release();
    scratch_.release();
    const auto rows = static_cast<int64_t>(texts.ids.size());
    const Tensor ids = numbers(rows, [&](int64_t row) { return texts.ids[static_cast<size_t>(row)]; });
    std::vector<int32_t> start;
    for (const int64_t length : texts.lengths)
      start.resize(start.size() + static_cast<size_t>(length), static_cast<int32_t>(start.size()));
    const auto start_of = [&](int64_t row) { return start[static_cast<size_t>(row)]; };
    const auto position_of = [&](int64_t row) { return static_cast<int32_t>(row) - start_of(row); };
    Run run{.stream = stream_,
            .activations = activations_,
            .operands = operands_,
            .scratch = scratch_,
            .groups = groups_,
            .training = false,
            .gather_rows = false,
            .rows = rows,
            .sequence_length = rows,
            .documents = {numbers(rows, start_of), numbers(rows, start_of), numbers(rows, position_of)},
            .loss_scale = 1,
            .microbatch = 0,
            .weight_gradients = unused_};
    const Tensor input = stage_.first() ? Tensor() : input_of(rows, before);
    TransformerStage::Saved saved;
    const Tensor result = stage_.last() ? stage_.logits(run, input)
                                        : stage_.forward(run, {.ids = ids, .targets = {}}, input, saved, {}, {});
    if (visit && !stage_.last()) stage_.visit_attention(run, saved, visit);
    take(result);
  }
  MemoryPlan peaks() const {
    return {{"activations", activations_.peak()}, {"operands", operands_.peak()}, {"scratch", scratch_.peak()}};
  }

 private:
  bool is_meta() const { return stream_.device == DeviceKind::meta; }
  template <typename ValueOf>
  Tensor numbers(int64_t rows, const ValueOf& value_of) {
    const Tensor tensor = activations_.allocate(DType::int32, {rows});
    for (int64_t i = 0; !is_meta() && i < rows; ++i) tensor.data<int32_t>()[i] = value_of(i);
    return tensor;
  }
  Tensor input_of(int64_t rows, const double* before) {
    const Tensor input = activations_.allocate(set_.types().activation, {rows, hidden_});
    if (is_meta()) return input;
    for_type(input.dtype(), [&](auto element) {
      using T = decltype(element);
      std::transform(before, before + input.count(), input.data<T>(),
                     [](double value) { return round_to<T>(static_cast<Accumulation<T>>(value)); });
    });
    return input;
  }

  Stream stream_;
  std::unique_ptr<HostCommunicator> world_;
  Groups groups_;
  ParameterSet set_;
  TransformerStage stage_;
  Arena activations_, operands_, scratch_;
  WeightGradientQueue unused_;
  int64_t hidden_;
};

ModelPieces::ModelPieces(const ModelConfig& model, NumberTypes types, const CpuOptions& cpu, PieceTexts texts,
                         Words words)
    : model_(model), types_(types), cpu_(cpu), texts_(std::move(texts)), words_(std::move(words)) {
  const int64_t rows = std::accumulate(texts_.lengths.begin(), texts_.lengths.end(), int64_t{0});
  CHECK(rows > 0 && rows == static_cast<int64_t>(texts_.ids.size()), rows, " rows of ", texts_.ids.size(), " tokens");
}

StagePlace ModelPieces::place_of(int64_t piece) const {
  const int64_t begin = std::clamp<int64_t>(piece, 0, model_.layers),
                end = std::clamp<int64_t>(piece + 1, 0, model_.layers);
  return {.layers = {begin, piece < 0 ? begin : end}, .first = piece < 0, .last = piece == model_.layers};
}

PieceTexts ModelPieces::texts_of(int64_t piece) const {
  if (piece < model_.layers) return texts_;
  const int64_t longest = *std::ranges::max_element(texts_.lengths);
  return {std::vector<int32_t>(static_cast<size_t>(longest)), {longest}};
}

ModelPieces::Plan ModelPieces::plan_of(int64_t piece) const {
  Ledger planned;
  Stream stream{.device = DeviceKind::meta, .ledger = &planned, .cpu = cpu_};
  const PieceTexts texts = texts_of(piece);
  Piece meta(model_, types_, place_of(piece), stream, make_meta_world(0, 1), {}, std::ranges::max(texts.lengths));
  meta.run(
      texts, nullptr, [](int, const Attention::Streams&, const Tensor&) {}, [](const Tensor&) {});
  return {.arenas = meta.peaks(), .bytes = planned.memory_total()};
}

void ModelPieces::refuse_memory(int64_t bytes) const {
  throw_bad_input("not enough memory: ", bytes, " bytes are needed ", words_.purpose,
                  "; free memory, raise the limit of this process (ulimit -v), or ", words_.instead);
}

std::unique_ptr<ModelPieces::Piece> ModelPieces::make_piece(int64_t piece, Ledger& ledger, const Fill& fill) const {
  const Plan plan = plan_of(piece);
  std::unique_ptr<Piece> made;
  try {
    made = std::make_unique<Piece>(model_, types_, place_of(piece), Stream{.ledger = &ledger, .cpu = cpu_},
                                   make_single_world(), plan.arenas, std::ranges::max(texts_.lengths));
  } catch (const Error& error) {  // replaced, because its advice is about training
    if (error.code() != ExitCode::bad_input) throw;
    refuse_memory(plan.bytes);
  }
  fill(made->parameters());
  made->prepare();
  return made;
}

void ModelPieces::forward(int64_t piece, const Fill& fill, const TransformerStage::AttentionVisitor& visit) {
  CHECK(piece >= -1 && piece < model_.layers, "piece ", piece);
  Ledger ledger;
  const auto here = make_piece(piece, ledger, fill);
  here->run(texts_, rows_.data(), visit, [&](const Tensor& result) {
    rows_.resize(static_cast<size_t>(result.count()));
    for_type(result.dtype(), [&](auto element) {
      const auto* from = result.data<decltype(element)>();
      std::transform(from, from + result.count(), rows_.begin(),
                     [](auto value) { return static_cast<double>(to_accumulate(value)); });
    });
  });
}

void ModelPieces::head(const Fill& fill, const std::function<void(size_t text, const Tensor& logits)>& visit) const {
  Ledger ledger;
  const auto here = make_piece(model_.layers, ledger, fill);
  int64_t begin = 0;
  for (size_t text = 0; text < texts_.lengths.size(); begin += texts_.lengths[text++]) {
    const int64_t length = texts_.lengths[text];
    const auto first = texts_.ids.begin() + begin;
    here->run({{first, first + length}, {length}}, rows_.data() + begin * model_.hidden, {},
              [&](const Tensor& logits) { visit(text, logits); });
  }
}

void ModelPieces::require_memory() const {
  for (const int64_t piece : {int64_t{-1}, int64_t{0}, model_.layers}) {  // all layers have the same size
    const int64_t bytes = plan_of(piece).bytes;
    if (!has_memory(bytes)) refuse_memory(bytes);
  }
}

}  // namespace shiftron

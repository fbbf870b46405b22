// Row exchange over tp, Linear, and the two layers that split the vocabulary.
#include "parallel/tensor_parallel.h"

#include <algorithm>
#include <exception>

#include "core/has_cuda.h"
#include "kernels/kernels.h"
#include "parallel/communicator_nccl_cuda.h"

namespace shiftron {
namespace {

// Memory in which a product of `rows` rows with w [out, in] may rearrange an operand of `dtype`; undefined if unneeded.
Tensor product_scratch(Run& run, const Tensor& w, DType dtype, int64_t rows) {
  const Shape shape = matmul_scratch(run.stream, dtype, rows, w.extent(1), w.extent(0));
  return shape.count() > 0 ? run.scratch.allocate(dtype, shape) : Tensor();
}
Tensor product_scratch(Run& run, const Tensor& w, int64_t rows) {
  return product_scratch(run, w, w.dtype(), rows);
}

void add_weight_gradient(Run& run, const WeightGradient& product) {
  ArenaScope scope(run.scratch);
  matmul_backward_weight(run.stream, product.d_y, product.x, InOut(product.gradient),
                         product_scratch(run, product.gradient, product.x.dtype(), product.x.extent(0)));
}

// An operand's current values, kept for as long as the microbatch lives.
Tensor kept_operand(Run& run, const Tensor& operand, bool unchanged) {
  if (unchanged && run.activations.keeps(operand)) return operand;
  const Tensor kept = run.operands.allocate(operand.dtype(), operand.shape());
  copy(run.stream, operand, kept);
  return kept;
}

// partial [rows, n] → local: its rows of the sum over tp. If rows are not gathered: all rows, in `partial` itself.
void sum_rows(Run& run, const Tensor& partial, const Tensor& local) {
  if (run.groups.tp->size() == 1) return;
  if (run.gather_rows)
    run.groups.tp->reduce_scatter(run.stream, partial, local).wait(run.stream);
  else
    run.groups.tp->all_reduce(run.stream, InOut(partial), Reduction::sum).wait(run.stream);
}

// [local rows, n] → [rows, n] in `arena`: every tp rank's rows. With tp = 1 the tensor itself.
Tensor gather_rows(Run& run, const Tensor& local, Arena& arena) {
  if (local.extent(0) == run.rows) return local;
  Tensor whole = arena.allocate(local.dtype(), {run.rows, local.extent(1)});
  run.groups.tp->all_gather(run.stream, local, whole).wait(run.stream);
  return whole;
}

// [rows, n] partial sums → [local rows, n] in `arena`: summed over tp. With tp = 1 the tensor itself.
Tensor reduce_rows(Run& run, const Tensor& partial, Arena& arena) {
  const bool in_place = run.groups.tp->size() == 1 || !run.gather_rows;
  const Tensor local = in_place ? partial : arena.allocate(partial.dtype(), {run.local_rows(), partial.extent(1)});
  sum_rows(run, partial, local);
  return local;
}

Tensor as_matrix(const Tensor& tensor, int64_t columns) {
  return tensor.view({tensor.count() / columns, columns});
}

std::unique_ptr<Communicator> make_group(HostCommunicator& world, const std::vector<int>& members,
                                         const std::string& name, DeviceKind device, NcclUse use = NcclUse::sums) {
  std::unique_ptr<HostCommunicator> group = world.split(members, name);
  if (device != DeviceKind::cuda) return group;
  CHECK(kHasCuda, "this build has no CUDA");
  if constexpr (kHasCuda) return make_nccl_communicator(*group, use);
  return nullptr;
}

}  // namespace

Groups make_groups(HostCommunicator& world, const ParallelLayout& layout, int64_t kv_heads, const Schedule& schedule,
                   DeviceKind device) {
  CHECK(world.size() == layout.ranks(), world.size(), " ranks for a layout of ", layout.ranks());
  const int rank = world.rank();
  const auto form = [&](const std::vector<int>& members, const std::string& name) {
    return make_group(world, members, name, device);
  };
  Groups groups;
  groups.layout = layout;
  groups.at = layout.coordinates(rank);
  groups.world = make_group(world, layout.ranks_in_usual_order(), "world", device,
                            NcclUse::scalars);  // the control plane keeps its own order
  groups.tp = form(layout.group(rank, Axis::tp), "tp");
  groups.cp = form(layout.group(rank, Axis::cp), "cp");
  groups.dp = form(layout.group(rank, Axis::dp), "dp");
  groups.kv_replica = form(layout.kv_replica_group(rank, kv_heads), "kv_replica");
  groups.tied = form(layout.tied_embedding_group(rank), "tied");
  const std::vector<int> stages = layout.group(rank, Axis::pp);
  for (const Channel& channel : channels_of(schedule, layout.pp)) {
    if (groups.at.pp != channel.from && groups.at.pp != channel.to) continue;
    const int from = stages[static_cast<size_t>(channel.from)], to = stages[static_cast<size_t>(channel.to)];
    groups.channels.push_back({channel, make_group(world, {from, to}, "pp", device, NcclUse::messages)});
  }
  return groups;
}

Communicator& Groups::channel(const Channel& channel) const {
  for (const ChannelEnd& end : channels) {
    if (end.channel == channel) return *end.group;
  }
  CHECK(false, "no channel from stage ", channel.from, " to stage ", channel.to);
}

Groups::~Groups() {
  if (std::uncaught_exceptions() > 0) give_up();
}

// Together, because one may wait for a stream that waits for another.
void Groups::give_up() const noexcept {
  const auto all = [this] { for_each([](Communicator& group) { group.give_up(); }); };
  if constexpr (kHasCuda)
    give_up_together(all);
  else
    all();
}

void Groups::abandon() const noexcept {
  give_up();
  for_each([](Communicator& group) { group.abandon(); });
}

std::string Groups::under_way() const {
  std::string all;
  for_each([&all](Communicator& group) {
    const std::string one = group.under_way();
    if (!one.empty()) all += (all.empty() ? "" : "; ") + one;
  });
  return all;
}

void run_weight_gradients(Run& run) {
  std::deque<WeightGradient>& waiting = run.weight_gradients.waiting;
  CHECK(!waiting.empty() && waiting.front().microbatch == run.microbatch, "microbatch ", run.microbatch,
        " is not the oldest with pending weight gradients");
  while (!waiting.empty() && waiting.front().microbatch == run.microbatch) {
    add_weight_gradient(run, waiting.front());
    waiting.pop_front();
  }
}

Tensor sum_residual(Run& run, const Residual& stream) {
  if (stream.before.defined()) add(run.stream, stream.before, stream.x, stream.x);
  return stream.x;
}

Linear::Linear(const ParameterSet& set, std::vector<Parameter*> parameters, int64_t in, SplitFeatures split)
    : set_(&set), parameters_(std::move(parameters)), in_(in), split_(split) {}

int64_t Linear::out() const {
  int64_t count = 0;
  for (const Parameter* parameter : parameters_) count += parameter->box.extent.count();
  return count / in_;
}

void Linear::multiply(Run& run, const Tensor& x, const Tensor& y) const {
  ArenaScope scope(run.scratch);
  const Tensor weight = set_->joined(parameters_, &Parameter::weight, in_);
  matmul_forward(run.stream, x, weight, y, product_scratch(run, weight, x.extent(0)));
}

Tensor Linear::gather_input(Run& run, const Tensor& local, Arena& arena) const {
  CHECK(split_ == SplitFeatures::output, "rows are gathered where the output's features are split");
  return gather_rows(run, local, arena);
}

Tensor Linear::gather_gradient(Run& run, const Tensor& d_local, Arena& arena) const {
  CHECK(split_ == SplitFeatures::input, "gradients are gathered where the input's features are split");
  return gather_rows(run, d_local, arena);
}

Tensor Linear::forward(Run& run, const Tensor& x, Arena& arena) const {
  const Tensor y = arena.allocate(x.dtype(), {x.extent(0), out()});
  multiply(run, x, y);
  return y;
}

Residual Linear::forward_add(Run& run, const Tensor& x, const Tensor& residual, Tensor y) const {
  CHECK(split_ == SplitFeatures::input, "sums are made where the input's features are split");
  ArenaScope scope(run.scratch);
  if (run.groups.tp->size() == 1) {
    const Tensor weight = set_->joined(parameters_, &Parameter::weight, in_);
    matmul_forward_add(run.stream, x, weight, residual, y, product_scratch(run, weight, x.extent(0)));
    return y;
  }
  const Tensor partial = run.gather_rows ? run.scratch.allocate(y.dtype(), {run.rows, y.extent(1)}) : y;
  multiply(run, x, partial);
  sum_rows(run, partial, y);
  return {y, residual};
}

Tensor Linear::partial_input_gradient(Run& run, const Tensor& d_y, Arena& arena) const {
  Tensor d_x = arena.allocate(d_y.dtype(), {d_y.extent(0), in_});
  ArenaScope scope(run.scratch);
  const Tensor weight = set_->joined(parameters_, &Parameter::weight, in_);
  matmul_backward_input(run.stream, d_y, weight, d_x, product_scratch(run, weight, d_y.extent(0)));
  return d_x;
}

Tensor Linear::backward_input(Run& run, const Tensor& d_y, Arena& arena) const {
  const Tensor d_x = partial_input_gradient(run, d_y, arena);
  return split_ == SplitFeatures::output ? reduce_rows(run, d_x, arena) : d_x;
}

void Linear::backward_weight(Run& run, const Tensor& d_y, const Tensor& x, KeptOperand unchanged) const {
  WeightGradient product{run.microbatch, d_y, x, set_->joined(parameters_, &Parameter::gradient, in_)};
  if (!run.weight_gradients.deferred) return add_weight_gradient(run, product);
  product.d_y = kept_operand(run, d_y, unchanged == KeptOperand::d_y);
  product.x = kept_operand(run, x, unchanged == KeptOperand::x);
  run.weight_gradients.waiting.push_back(product);
}

Tensor Linear::backward(Run& run, const Tensor& d_y, const Tensor& x, Arena& arena, KeptOperand unchanged) const {
  const Tensor d_x = partial_input_gradient(run, d_y, arena);
  backward_weight(run, d_y, x, unchanged);
  return split_ == SplitFeatures::output ? reduce_rows(run, d_x, arena) : d_x;
}

Tensor VocabularyParallelEmbedding::forward(Run& run, const Tensor& ids, Saved& saved) const {
  saved.ids = ids;
  const int64_t hidden = table_->spec.shape[1];
  const bool exchanged = run.groups.tp->size() > 1;
  if (!exchanged || !run.gather_rows) {
    Tensor y = run.activations.allocate(table_->weight.dtype(), {run.rows, hidden});
    embedding_forward(run.stream, ids, table_->weight, table_->box.offset[0], y);
    return reduce_rows(run, y, run.activations);
  }
  ArenaScope scope(run.scratch);
  Tensor partial = run.scratch.allocate(table_->weight.dtype(), {run.rows, hidden});
  embedding_forward(run.stream, ids, table_->weight, table_->box.offset[0], partial);
  return reduce_rows(run, partial, run.activations);
}

void VocabularyParallelEmbedding::backward(Run& run, const Tensor& d_y, const Saved& saved) const {
  ArenaScope scope(run.scratch);
  const Tensor d_whole = gather_rows(run, d_y, run.scratch);
  embedding_backward(run.stream, saved.ids, d_whole, table_->box.offset[0], InOut(table_->gradient));
}

Range VocabularyParallelLoss::vocabulary() const {
  return {head_->box.offset[0], head_->box.offset[0] + head_->box.extent[0]};
}

Tensor VocabularyParallelLoss::unrounded_logits(Run& run, const Tensor& x) const {
  return logits(run, x, {0, head_->box.extent[0]}, accumulation_type(x.dtype()));
}

Tensor VocabularyParallelLoss::logits(Run& run, const Tensor& x, Range range) const {
  return logits(run, x, range, x.dtype());
}

Tensor VocabularyParallelLoss::logits(Run& run, const Tensor& x, Range range, DType type) const {
  Tensor y = run.scratch.allocate(type, {x.extent(0), range.size()});
  ArenaScope scope(run.scratch);
  const Tensor weight = as_matrix(head_->weight, head_->spec.shape[1]).rows(range.begin, range.size());
  matmul_forward(run.stream, x, weight, y, product_scratch(run, weight, x.extent(0)));
  return y;
}

Tensor VocabularyParallelLoss::precise_logits(Run& run, const Tensor& x, Range range) const {
  const DType type = accumulation_type(x.dtype());
  if (x.dtype() == type) return logits(run, x, range);
  Tensor y = run.scratch.allocate(type, {x.extent(0), range.size()});
  ArenaScope scope(run.scratch);
  const auto widened = [&](const Tensor& narrow) {
    const Tensor wide = run.scratch.allocate(type, narrow.shape());
    copy(run.stream, narrow, wide);
    return wide;
  };
  const Tensor weight = widened(as_matrix(head_->weight, head_->spec.shape[1]).rows(range.begin, range.size()));
  matmul_forward(run.stream, widened(x), weight, y, product_scratch(run, weight, x.extent(0)));
  return y;
}

// Rows whose logits exist at the same time, with the vocabulary in blocks.
struct VocabularyParallelLoss::Chunk {
  Tensor x, target, loss, correct;  // [rows, hidden], [rows], [rows], [rows]
  int blocks;
  std::vector<Tensor> logits{};  // of each block; their gradient if log_sum_exp is undefined
  Tensor log_sum_exp{};          // of all shards

  int64_t rows() const { return x.extent(0); }
};

Range VocabularyParallelLoss::block_of(const Chunk& chunk, int block) const {
  return split_range(head_->box.extent[0], chunk.blocks, block);
}

int64_t VocabularyParallelLoss::first_token(const Chunk& chunk, int block) const {
  return vocabulary().begin + block_of(chunk, block).begin;
}

void VocabularyParallelLoss::add_losses(Run& run, Chunk& chunk, Tensor totals) const {
  const int shards = run.groups.tp->size(), blocks = chunk.blocks;
  const int64_t rows = chunk.rows();
  if (run.training && shards == 1 && blocks == 1) {
    chunk.logits.push_back(logits(run, chunk.x, {0, head_->box.extent[0]}));
    cross_entropy(run.stream, InOut(chunk.logits[0]), chunk.target, run.loss_scale, chunk.loss, chunk.correct);
    shiftron::add_losses(run.stream, chunk.loss, chunk.correct, chunk.target, InOut(totals));
    return;
  }
  const DType accumulation = accumulation_type(chunk.x.dtype());
  Tensor statistics = run.scratch.allocate(accumulation, {blocks, rows, kRowStatistics});
  for (int block = 0; block < blocks; ++block) {
    chunk.logits.push_back(logits(run, chunk.x, block_of(chunk, block)));
    cross_entropy_statistics(run.stream, chunk.logits.back(), chunk.target, first_token(chunk, block),
                             statistics.rows(block, 1).view({rows, kRowStatistics}));
  }
  Tensor all_statistics = run.scratch.allocate(accumulation, {shards * blocks, rows, kRowStatistics});
  chunk.log_sum_exp = run.scratch.allocate(accumulation, {rows});
  run.groups.tp->all_gather(run.stream, statistics, all_statistics).wait(run.stream);
  cross_entropy_combine(run.stream, all_statistics, chunk.target, chunk.log_sum_exp, chunk.loss, chunk.correct);
  shiftron::add_losses(run.stream, chunk.loss, chunk.correct, chunk.target, InOut(totals));
}

void VocabularyParallelLoss::add_gradients(Run& run, Chunk& chunk, Tensor d_x) const {
  const int64_t hidden = head_->spec.shape[1];
  const Tensor weight = as_matrix(head_->weight, hidden), gradient = as_matrix(head_->gradient, hidden);
  const DType accumulation = accumulation_type(d_x.dtype());
  // One product is rounded once; several are added before they are rounded.
  const bool rounded = chunk.blocks == 1 || d_x.dtype() == accumulation;
  const Tensor sum = rounded ? d_x : run.scratch.allocate(accumulation, {chunk.rows(), hidden});
  if (chunk.blocks > 1) fill_zero(run.stream, sum);
  for (int block = 0; block < chunk.blocks; ++block) {
    const Range range = block_of(chunk, block);
    const Tensor block_weight = weight.rows(range.begin, range.size());
    const Tensor& d_logits = chunk.logits[block];
    if (chunk.log_sum_exp.defined()) {
      cross_entropy_backward(run.stream, InOut(d_logits), chunk.log_sum_exp, chunk.target, first_token(chunk, block),
                             run.loss_scale);
    }
    ArenaScope product_scope(run.scratch);
    const Tensor scratch = product_scratch(run, block_weight, chunk.rows());
    if (chunk.blocks == 1) {
      matmul_backward_input(run.stream, d_logits, block_weight, sum, scratch);
    } else {
      matmul_backward_input_sum(run.stream, d_logits, block_weight, InOut(sum), scratch);
    }
    matmul_backward_weight(run.stream, d_logits, chunk.x, InOut(gradient.rows(range.begin, range.size())), scratch);
  }
  if (!rounded) copy(run.stream, sum, d_x);
}

void VocabularyParallelLoss::forward(Run& run, const Tensor& x_local, const Tensor& targets, Saved& saved,
                                     Tensor totals, Tensor losses, Tensor correct) const {
  const int64_t hidden = head_->spec.shape[1];
  const DType dtype = x_local.dtype();
  const int shards = run.groups.tp->size();
  // The largest share of the vocabulary, because all ranks of tp must agree.
  const int64_t vocab = (head_->spec.shape[0] + shards - 1) / shards;
  const auto [chunk_rows, blocks] = loss_tiles(run.stream, run.rows, vocab, dtype);
  // If rows are split, the gradient of all rows is partial and summed below; otherwise it is saved directly.
  if (run.training) saved.d_x = run.activations.allocate(dtype, {run.local_rows(), hidden});
  ArenaScope scope(run.scratch);
  const Tensor x = gather_rows(run, x_local, run.scratch);
  Tensor d_x = saved.d_x;
  if (run.training && shards > 1) d_x = run.scratch.allocate(dtype, {run.rows, hidden});
  const auto pass_rows = [&, blocks = blocks](int64_t begin, int64_t rows) {
    ArenaScope chunk_scope(run.scratch);
    const auto of_rows = [&](const Tensor& wanted) {
      return wanted.defined() ? wanted.rows(begin, rows) : run.scratch.allocate(accumulation_type(dtype), {rows});
    };
    Chunk chunk{.x = x.rows(begin, rows),
                .target = targets.rows(begin, rows),
                .loss = of_rows(losses),
                .correct = of_rows(correct),
                .blocks = blocks};
    add_losses(run, chunk, totals);
    if (run.training) add_gradients(run, chunk, d_x.rows(begin, rows));
  };
  const int64_t chunks = run.rows / chunk_rows;
  for_each_identical(run.stream, chunks, [&, rows = chunk_rows](int64_t i) { pass_rows(i * rows, rows); });
  if (run.rows > chunks * chunk_rows) pass_rows(chunks * chunk_rows, run.rows - chunks * chunk_rows);
  if (run.training && shards > 1) run.groups.tp->reduce_scatter(run.stream, d_x, saved.d_x).wait(run.stream);
}

}  // namespace shiftron

// A forward pass over every window of a dataset.
#include "evaluate/held_out.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "checkpoint/restore.h"
#include "core/event.h"
#include "core/progress.h"
#include "data/loader.h"
#include "data/tokenizer.h"
#include "kernels/kernels.h"
#include "parallel/agree.h"
#include "train/batches.h"
#include "train/device.h"
#include "train/engine.h"

namespace shiftron {

namespace {

int64_t sum_over_ranks(ControlPlane& world, int64_t value) {
  int64_t sum = 0;
  for (const std::string& part : world.gather_text(std::to_string(value), 0)) sum += std::stoll(part);
  return std::stoll(world.broadcast_text(std::to_string(sum), 0));
}

// What is divided by.
void refuse_without_text(const HeldOutResult& counted, const std::string& dataset) {
  if (counted.targets == 0) {
    throw_bad_input(dataset, " holds nothing to predict: its ", counted.windows,
                    " windows have no counted target; build it from documents with text");
  }
  if (counted.bytes == 0) {
    throw_bad_input(dataset, " holds no text to predict: the ", counted.targets, " counted targets of its ",
                    counted.windows, " windows are ends of documents; build it from longer documents");
  }
}

void refuse_non_finite(const HeldOutResult& counted, const std::string& directory) {
  if (std::isfinite(counted.loss)) return;
  throw_bad_input("the loss of ", directory, " is no finite number: ", kWhyNotFinite);
}

// The checkpoint's, or the dataset's where it was imported without one, as train allows. Throws Error(bad_input) where
// the dataset is of another.
Tokenizer tokenizer_for(const Loader& data, const CheckpointModel& model, const std::string& dataset) {
  const std::string& bytes = model.content.tokenizer_model;
  Tokenizer own(bytes.empty() ? data.tokenizer_bytes() : bytes, bytes.empty() ? dataset : model.directory);
  if (data.tokenizer_hash() != own.hash()) {
    throw_bad_input(dataset, " was made with tokenizer ", data.tokenizer_hash(), ", the checkpoint with ", own.hash(),
                    "; build the dataset with ", model.directory, "/tokenizer.model");
  }
  if (data.end_of_document() != own.end_of_document()) {
    throw_bad_input(dataset, " ends documents by token ", data.end_of_document(), ", its tokenizer by ",
                    own.end_of_document(), "; build the dataset anew");
  }
  if (data.vocab_size() > model.config.model.vocab) {
    throw_bad_input(dataset, " has ", data.vocab_size(), " tokens, the model of ", model.directory, " ",
                    model.config.model.vocab, "; build the dataset with the model's tokenizer");
  }
  return own;
}

// One microbatch at a time, whose rows tp divides; how many windows it holds changes no result.
RunConfig in_microbatches(RunConfig config, const ParallelLayout& layout) {
  TrainSection& train = config.train;
  const int64_t multiple = layout.tp / std::gcd<int64_t>(layout.tp, train.sequence_length);
  train.micro_batch = (train.micro_batch + multiple - 1) / multiple * multiple;
  train.global_batch = train.micro_batch * layout.dp;
  return config;
}

// What the engine of this rank allocates.
MemoryPlan plan_of(const RunConfig& config, const ParallelLayout& layout, int rank, int ranks, int threads) {
  Ledger planned;
  Stream meta = planning_stream(config, threads, planned);
  const auto world = make_meta_world(rank, ranks);
  Engine engine(config, make_groups(*world, layout, config.model.kv_heads, schedule_of(config)), meta, {}, false);
  engine.evaluate(
      1, [](int, HostBatch&) {}, Tensor(nullptr, DType::float64, {2}, DeviceKind::meta));
  return engine.arena_peaks();
}

// Every window of a dataset, in order, dealt to the data parallel ranks microbatch by microbatch.
class Windows {
 public:
  Windows(const CheckpointModel& model, const RunConfig& config, const std::string& dataset)
      : train_(config.train),
        loader_({{.directory = dataset, .weight = 0}}, train_.sequence_length, 0, config.data.document_reset, false),
        tokenizer_(tokenizer_for(loader_, model, dataset)),
        microbatches_(evaluation_batch_count(loader_.windows(), train_.global_batch)) {}

  const Loader& loader() const { return loader_; }
  int microbatches() const { return microbatches_; }
  // Microbatch `index` of data parallel rank `dp`; behind the last window nothing is counted.
  void read(int index, int dp, HostBatch& batch) {
    const int64_t first = index * train_.global_batch + dp * train_.micro_batch;
    for (int64_t i = 0; i < train_.micro_batch; ++i) {
      const int64_t window = first + i, row = i * train_.sequence_length;
      loader_.read(std::min(window, loader_.windows() - 1), 1, batch.ids.data() + row, batch.targets.data() + row,
                   batch.document_starts.data() + row);
      if (window >= loader_.windows()) std::fill_n(batch.targets.begin() + row, train_.sequence_length, -1);
    }
  }
  // Of the text that the batch's counted targets stand for.
  int64_t bytes_of(const HostBatch& batch) const {
    int64_t bytes = 0;
    for (const int32_t target : batch.targets) bytes += target >= 0 ? tokenizer_.bytes_of(target) : 0;
    return bytes;
  }

 private:
  TrainSection train_;
  Loader loader_;
  Tokenizer tokenizer_;
  int microbatches_;
};

}  // namespace

HeldOutResult evaluate_held_out(const CheckpointModel& model, const std::string& dataset, HostCommunicator& world,
                                const HostShare& share) {
  const ParallelLayout layout = make_layout(model.config.parallel, world.size());
  const RunConfig config = in_microbatches(model.config, layout);
  std::optional<Windows> windows;
  all_agree(world, [&] { windows.emplace(model, config, dataset); });

  const MemoryPlan plan = plan_of(config, layout, world.rank(), world.size(), share.threads);
  Ledger ledger;
  Stream stream{.ledger = &ledger};
  const std::unique_ptr<Queue> queue = start_device(config, share, world, stream).queue;
  Engine engine(config, make_groups(world, layout, config.model.kv_heads, schedule_of(config), stream.device), stream,
                plan, false);
  Log log(world.rank());
  all_agree(world, [&] {
    load_parameters(model.directory, engine.parameters(),
                    {.threads = share.threads, .log = world.rank() == 0 ? &log : nullptr});
  });

  const Coordinates at = engine.groups().at;
  const bool counts = at.tp == 0 && engine.last();
  std::optional<Progress> progress;
  if (world.rank() == 0) progress.emplace("evaluate", static_cast<uint64_t>(windows->microbatches()), "batches");
  Buffer device(stream.device, 2 * size_of(DType::float64), ledger, "scalars");
  Buffer pinned = staging_buffer(stream, 2 * size_of(DType::float64));
  const Tensor sums = device.tensor(0, DType::float64, {2});  // losses, counted
  const Tensor host_sums = pinned.tensor(0, DType::float64, {2});
  int64_t bytes = 0;
  const BatchReader read = [&](int index, HostBatch& batch) {
    windows->read(index, at.dp, batch);
    if (counts) bytes += windows->bytes_of(batch);
    if (progress) progress->update(static_cast<uint64_t>(index) + 1);
  };
  engine.evaluate(windows->microbatches(), read, sums);
  engine.groups().world->all_reduce(stream, InOut(sums), Reduction::sum).wait(stream);
  download(stream, sums, host_sums);
  finish(stream);
  const double* sum = host_sums.host_data<double>();
  HeldOutResult result{.loss = sum[0] / sum[1],
                       .targets = static_cast<int64_t>(sum[1]),
                       .bytes = sum_over_ranks(world, bytes),
                       .windows = windows->loader().windows(),
                       .dropped_tokens = windows->loader().dropped_tokens()};
  told_by_first(world, [&] {
    refuse_without_text(result, dataset);
    refuse_non_finite(result, model.directory);
  });
  result.perplexity = std::exp(result.loss);
  result.bits_per_byte = sum[0] / (std::log(2.0) * static_cast<double>(result.bytes));
  return result;
}

}  // namespace shiftron

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

}  // namespace

HeldOutResult evaluate_held_out(const CheckpointModel& model, const std::string& dataset, HostCommunicator& world,
                                const HostShare& share) {
  RunConfig config = model.config;
  const ParallelLayout layout = make_layout(config.parallel, world.size());
  // Its rows are divided by tp; how many windows it holds changes no result.
  const int64_t multiple = layout.tp / std::gcd<int64_t>(layout.tp, config.train.sequence_length);
  config.train.micro_batch = (config.train.micro_batch + multiple - 1) / multiple * multiple;
  config.train.global_batch = config.train.micro_batch * layout.dp;  // one microbatch at a time
  const TrainSection& train = config.train;
  std::optional<Loader> opened;
  std::optional<Tokenizer> own;
  all_agree(world, [&] {
    opened.emplace(std::vector<DataSource>{{.directory = dataset, .weight = 0}}, train.sequence_length, 0,
                   config.data.document_reset, false);
    own.emplace(tokenizer_for(*opened, model, dataset));
  });
  Loader& loader = *opened;
  const Tokenizer& tokenizer = *own;

  Ledger ledger;
  MemoryPlan plan;
  const BatchReader nothing = [](int, HostBatch&) {};
  {
    Ledger planned;
    Stream meta = planning_stream(config, share.threads, planned);
    const auto meta_world = make_meta_world(world.rank(), world.size());
    Engine engine(config, make_groups(*meta_world, layout, config.model.kv_heads, schedule_of(config)), meta, {},
                  false);
    engine.evaluate(1, nothing, Tensor(nullptr, DType::float64, {2}, DeviceKind::meta));
    plan = engine.arena_peaks();
  }
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
  const int64_t round = train.global_batch;
  const int64_t windows = loader.windows();
  const auto microbatches = static_cast<int>((windows + round - 1) / round);
  std::optional<Progress> progress;
  if (world.rank() == 0) progress.emplace("evaluate", static_cast<uint64_t>(microbatches), "batches");
  Buffer device(stream.device, 2 * size_of(DType::float64), ledger, "scalars");
  Buffer pinned = staging_buffer(stream, 2 * size_of(DType::float64));
  const Tensor sums = device.tensor(0, DType::float64, {2});  // losses, counted
  const Tensor host_sums = pinned.tensor(0, DType::float64, {2});
  int64_t bytes = 0;
  const BatchReader read = [&](int index, HostBatch& batch) {
    for (int64_t i = 0; i < train.micro_batch; ++i) {
      const int64_t window = index * round + at.dp * train.micro_batch + i;
      const int64_t row = i * train.sequence_length;
      loader.read(std::min(window, windows - 1), 1, batch.ids.data() + row, batch.targets.data() + row,
                  batch.document_starts.data() + row);
      if (window >= windows) std::fill_n(batch.targets.begin() + row, train.sequence_length, -1);
    }
    if (counts) {
      for (const int32_t target : batch.targets) {
        if (target >= 0) bytes += tokenizer.bytes_of(target);
      }
    }
    if (progress) progress->update(static_cast<uint64_t>(index) + 1);
  };
  engine.evaluate(microbatches, read, sums);
  engine.groups().world->all_reduce(stream, InOut(sums), Reduction::sum).wait(stream);
  download(stream, sums, host_sums);
  finish(stream);
  const double* sum = host_sums.host_data<double>();
  HeldOutResult result{.loss = sum[0] / sum[1],
                       .targets = static_cast<int64_t>(sum[1]),
                       .bytes = sum_over_ranks(world, bytes),
                       .windows = windows,
                       .dropped_tokens = loader.dropped_tokens()};
  told_by_first(world, [&] {
    refuse_without_text(result, dataset);
    refuse_non_finite(result, model.directory);
  });
  result.perplexity = std::exp(result.loss);
  result.bits_per_byte = sum[0] / (std::log(2.0) * static_cast<double>(result.bytes));
  return result;
}

}  // namespace shiftron

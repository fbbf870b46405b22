// A forward pass over the windows of a dataset.
#include "evaluate/held_out.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>

#include "checkpoint/restore.h"
#include "core/event.h"
#include "core/progress.h"
#include "data/loader.h"
#include "data/tokenizer.h"
#include "kernels/kernels.h"
#include "parallel/agree.h"
#include "parallel/connect_groups.h"
#include "train/batches.h"
#include "train/device.h"
#include "train/engine.h"
#include "train/overflow.h"

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
    throw_bad_input(dataset, " holds nothing to predict: its ", text_of_windows(counted),
                    " have no counted target; build it from documents with text");
  }
  if (counted.has_text && counted.bytes == 0) {
    throw_bad_input(dataset, " holds no text to predict: the ", counted.targets, " counted targets of its ",
                    text_of_windows(counted), " are ends of documents; build it from longer documents");
  }
}

void refuse_non_finite(const HeldOutResult& counted, const std::string& directory) {
  if (std::isfinite(counted.loss)) return;
  throw_bad_input("the loss of ", directory, " is no finite number: ", kWhyNotFinite);
}

void require_vocabulary(const Loader& data, const CheckpointModel& model, const std::string& dataset) {
  if (data.vocab_size() <= model.config.model.vocab) return;
  throw_bad_input(dataset, " has ", data.vocab_size(), " tokens, the model of ", model.directory, " ",
                  model.config.model.vocab, "; build the dataset with the model's tokenizer");
}

// The checkpoint's, or the dataset's where it was imported without one, as train allows; none where both have none.
// Throws Error(bad_input) where the dataset is of another.
std::optional<Tokenizer> tokenizer_for(const Loader& data, const CheckpointModel& model, const std::string& dataset) {
  const std::string& bytes = model.content.tokenizer_model;
  if (data.tokenizer_bytes().empty()) {
    if (!bytes.empty()) {
      throw_bad_input(dataset, " has no tokenizer, ", model.directory,
                      " has one; build the dataset with --ids --tokenizer ", model.directory, "/tokenizer.model");
    }
    require_vocabulary(data, model, dataset);
    return std::nullopt;
  }
  Tokenizer own(bytes.empty() ? data.tokenizer_bytes() : bytes, bytes.empty() ? dataset : model.directory);
  if (data.tokenizer_hash() != own.hash()) {
    throw_bad_input(dataset, " was made with tokenizer ", data.tokenizer_hash(), ", the checkpoint with ", own.hash(),
                    "; build the dataset with ", model.directory, "/tokenizer.model");
  }
  if (data.end_of_document() != own.end_of_document()) {
    throw_bad_input(dataset, " ends documents by token ", data.end_of_document(), ", its tokenizer by ",
                    own.end_of_document(), "; build the dataset anew");
  }
  require_vocabulary(data, model, dataset);
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

// What the engine of this rank allocates; `traffic` gets what it exchanges.
MemoryPlan plan_of(const RunConfig& config, const ParallelLayout& layout, int rank, int ranks, int threads,
                   std::map<std::string, TrafficCost>& traffic) {
  Ledger planned;
  Stream meta = planning_stream(config, threads, planned);
  const auto world = make_meta_world(rank, ranks);
  Engine engine(config, make_groups(*world, layout, config.model.kv_heads, schedule_of(config)), meta, {}, false);
  engine.evaluate(
      1, [](int, HostBatch&) {}, Tensor(nullptr, DType::float64, {2}, DeviceKind::meta));
  traffic = planned.traffic();
  return engine.arena_peaks();
}

// Of the text that the batch's counted targets stand for.
int64_t bytes_of(const HostBatch& batch, const Tokenizer& tokenizer) {
  int64_t bytes = 0;
  for (const int32_t target : batch.targets) bytes += target >= 0 ? tokenizer.bytes_of(target) : 0;
  return bytes;
}

}  // namespace

std::string text_of_windows(const HeldOutResult& result) {
  const std::string all = std::to_string(result.windows_of_dataset) + " windows";
  return result.windows == result.windows_of_dataset ? all : "first " + std::to_string(result.windows) + " of " + all;
}

HeldOutResult evaluate_held_out(const CheckpointModel& model, const std::string& dataset, HostCommunicator& world,
                                const HostShare& share, int64_t windows) {
  const ParallelLayout layout = make_layout(model.config.parallel, world.size());
  RunConfig config = in_microbatches(model.config, layout);
  config.evaluation.sequences = windows;
  const std::vector<DataSource> sources = {{.directory = dataset, .weight = 0}};
  std::optional<Loader> loader;
  std::optional<Tokenizer> tokenizer;
  int microbatches = 0;
  all_agree(world, [&] {
    loader.emplace(open_loader(config, sources, false));
    tokenizer = tokenizer_for(*loader, model, dataset);
    microbatches = evaluation_microbatches(config, layout, *loader);
  });
  std::vector<GivenValue> data;
  add_data(data, "the dataset", sources, *loader);
  require_given_alike(world, data);

  std::map<std::string, TrafficCost> traffic;
  const MemoryPlan plan = plan_of(config, layout, world.rank(), world.size(), share.threads, traffic);
  Ledger ledger;
  Stream stream{.ledger = &ledger};
  const std::unique_ptr<Queue> queue = start_device(config, share, world, stream).queue;
  Groups groups = make_groups(world, layout, config.model.kv_heads, schedule_of(config), stream.device);
  connect_groups(world, groups, traffic, stream);
  Engine engine(config, std::move(groups), stream, plan, false);
  Log log(world.rank());
  all_agree(world, [&] {
    load_parameters(model.directory, engine.parameters(),
                    {.threads = share.threads, .log = world.rank() == 0 ? &log : nullptr});
  });

  const Coordinates at = engine.groups().at;
  const bool counts = tokenizer && at.tp == 0 && engine.last();
  std::optional<Progress> progress;
  if (world.rank() == 0) progress.emplace("evaluate", static_cast<uint64_t>(microbatches), "batches");
  Buffer device(stream.device, 2 * size_of(DType::float64), ledger, "scalars");
  Buffer pinned = staging_buffer(stream, 2 * size_of(DType::float64));
  const Tensor sums = device.tensor(0, DType::float64, {2});  // losses, counted
  const Tensor host_sums = pinned.tensor(0, DType::float64, {2});
  int64_t bytes = 0;
  const BatchReader read_windows = evaluation_batches(config, layout, at.dp, *loader);
  const BatchReader read = [&](int index, HostBatch& batch) {
    read_windows(index, batch);
    if (counts) bytes += bytes_of(batch, *tokenizer);
    if (progress) progress->update(static_cast<uint64_t>(index) + 1);
  };
  engine.evaluate(microbatches, read, sums);
  engine.groups().world->all_reduce(stream, InOut(sums), Reduction::sum).wait(stream);
  download(stream, sums, host_sums);
  finish(stream);
  const double* sum = host_sums.host_data<double>();
  HeldOutResult result{.loss = sum[0] / sum[1],
                       .targets = static_cast<int64_t>(sum[1]),
                       .has_text = tokenizer.has_value(),
                       .bytes = sum_over_ranks(world, bytes),
                       .windows = evaluation_sequences(config, *loader),
                       .windows_of_dataset = loader->windows(),
                       .dropped_tokens = loader->dropped_tokens()};
  all_agree(world, [&] {
    refuse_without_text(result, dataset);
    refuse_non_finite(result, model.directory);
  });
  if (world.rank() == 0 && are_logits_equal(result.loss, config.model.vocab))
    log.warning(dataset + ": " + kLogitsAreEqual);
  result.perplexity = std::exp(result.loss);
  if (result.has_text) result.bits_per_byte = sum[0] / (std::log(2.0) * static_cast<double>(result.bytes));
  return result;
}

}  // namespace shiftron

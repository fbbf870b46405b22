// A forward pass over the windows of datasets.
#include "evaluate/held_out.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <sstream>

#include "checkpoint/restore.h"
#include "core/event.h"
#include "core/hash.h"
#include "core/progress.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "kernels/kernels.h"
#include "parallel/agree.h"
#include "parallel/connect_groups.h"
#include "run/overflow.h"
#include "run/saved_state.h"
#include "tokenizer/load_tokenizer.h"
#include "train/batches.h"
#include "train/device.h"
#include "train/engine.h"
#include "train/trainer.h"

namespace shiftron {

namespace {

// The sum of each value over the ranks.
std::vector<int64_t> sums_over_ranks(ControlPlane& world, const std::vector<int64_t>& values) {
  const auto text_of = [](const std::vector<int64_t>& numbers) {
    std::string text;
    for (const int64_t number : numbers) text += std::to_string(number) + " ";
    return text;
  };
  std::vector<int64_t> sums(values.size());
  const auto add = [&sums](const std::string& text) {
    std::istringstream numbers(text);
    for (int64_t& sum : sums) {
      int64_t number = 0;
      numbers >> number;
      sum += number;
    }
  };
  for (const std::string& part : world.gather_text(text_of(values), 0)) add(part);
  const std::string all = world.broadcast_text(text_of(sums), 0);
  std::ranges::fill(sums, 0);
  add(all);
  return sums;
}

// Refuses counts of zero, which results are divided by.
void refuse_without_text(const HeldOutResult& counted, const std::string& dataset) {
  if (counted.targets == 0) {
    throw_bad_input(dataset, " contains nothing to predict: its ", text_of_windows(counted),
                    " have no counted target; build it from documents with text");
  }
  if (counted.has_text && counted.bytes == 0) {
    throw_bad_input(dataset, " contains no text to predict: the ", counted.targets, " counted targets of its ",
                    text_of_windows(counted), " are ends of documents; build it from longer documents");
  }
}

void refuse_non_finite(const HeldOutResult& counted, const std::string& directory) {
  if (std::isfinite(counted.loss)) return;
  throw_bad_input("the loss of ", directory, " is not finite: ", kNonFiniteAdvice);
}

void require_vocabulary(const Loader& data, const CheckpointModel& model, const std::string& dataset) {
  if (data.vocab_size() <= model.config.model.vocab) return;
  throw_bad_input(dataset, " has ", data.vocab_size(), " tokens, but the model of ", model.directory, " has only ",
                  model.config.model.vocab, "; build the dataset with the model's tokenizer");
}

// Without a tokenizer only the token that ends documents shows that a dataset belongs to another model.
void require_end_of_document(const Loader& data, const CheckpointModel& model, const std::string& dataset) {
  const auto trained = saved_state(model.content.state_json, model.directory).end_of_document;
  if (!trained || *trained == data.end_of_document()) return;
  throw_bad_input(dataset, " ends documents with token ", data.end_of_document(), ", but ", model.directory,
                  " was trained on documents that end with ", *trained, "; give data made for this model");
}

// The checkpoint's tokenizer, or the dataset's if the checkpoint was imported without one, as train allows; none if
// both have none, or one that this program cannot use. Throws Error(bad_input) if the dataset was made with another
// one.
std::unique_ptr<const Tokenizer> tokenizer_for(const Loader& data, const CheckpointModel& model,
                                               const std::string& dataset) {
  const StoredTokenizer& of_model = model.content.tokenizer;
  if (!data.tokenizer().is_there()) {
    if (of_model.is_there()) {
      throw_bad_input(dataset, " has no tokenizer, but ", model.directory,
                      " has one; make the dataset with it: give `data build --ids` or `data import` --tokenizer ",
                      tokenizer_path(model));
    }
    require_end_of_document(data, model, dataset);
    require_vocabulary(data, model, dataset);
    return nullptr;
  }
  const std::string hash = to_hex(xxh3_128((of_model.is_there() ? of_model : data.tokenizer()).file.bytes));
  if (data.tokenizer_hash() != hash) {
    throw_bad_input(dataset, " was built with tokenizer ", data.tokenizer_hash(), ", but the checkpoint has ", hash,
                    "; build the dataset with ", tokenizer_path(model));
  }
  std::unique_ptr<const Tokenizer> own = of_model.is_there() ? usable_tokenizer(of_model, model.directory)
                                                             : usable_tokenizer(data.tokenizer(), dataset);
  if (own && data.end_of_document() != own->end_of_document()) {
    throw_bad_input(dataset, " ends documents with token ", data.end_of_document(), ", but ",
                    of_model.is_there() ? "the checkpoint's tokenizer" : "its tokenizer", " with ",
                    own->end_of_document(), "; build the dataset again with --end-of-document");
  }
  require_vocabulary(data, model, dataset);
  return own;
}

// Makes the rows of a microbatch a multiple of tp. The number of windows in a microbatch does not change the result.
RunConfig in_microbatches(RunConfig config, const ParallelLayout& layout) {
  TrainSection& train = config.train;
  const int64_t multiple = layout.tp / std::gcd<int64_t>(layout.tp, train.sequence_length);
  train.micro_batch = (train.micro_batch + multiple - 1) / multiple * multiple;
  train.global_batch = train.micro_batch * layout.dp;
  return config;
}

// What this rank's engine allocates; `traffic` gets what it exchanges.
MemoryPlan plan_of(const RunConfig& config, const ParallelLayout& layout, int rank, int ranks, int threads,
                   int64_t sources, std::map<std::string, TrafficCost>& traffic) {
  Ledger planned;
  Stream meta = planning_stream(config, threads, planned);
  const auto world = make_meta_world(rank, ranks);
  Engine engine(config, make_groups(*world, layout, config.model.kv_heads, schedule_of(config)), meta, {}, false);
  const Tensor totals(nullptr, DType::float64, {1 + sources, kLossTotals}, DeviceKind::meta);
  const SourceTotals of_sources = {.totals = sources > 1 ? totals.rows(1, sources) : Tensor(), .of = {}};
  engine.evaluate(
      1, [](int, HostBatch&) {}, totals.rows(0, 1).view({kLossTotals}), {}, of_sources);
  traffic = planned.traffic();
  return engine.arena_peaks();
}

// Bytes of text of the batch's counted targets in these rows.
int64_t bytes_of(const HostBatch& batch, const SourceTotals::Rows& rows, const Tokenizer& tokenizer) {
  int64_t bytes = 0;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const int32_t target = batch.targets[static_cast<size_t>(row)];
    bytes += target >= 0 ? tokenizer.bytes_of(target) : 0;
  }
  return bytes;
}

// The result for the totals of add_losses and the bytes of text.
HeldOutResult result_of(const double* totals, int64_t bytes) {
  const MeanLoss mean = mean_loss(totals);
  const double bits = totals[0] / std::log(2.0);
  return {.loss = mean.loss,
          .perplexity = std::exp(mean.loss),
          .bits_per_byte = bytes > 0 ? bits / static_cast<double>(bytes) : std::nan(""),
          .accuracy = mean.accuracy,
          .targets = static_cast<int64_t>(mean.counted),
          .bytes = bytes};
}

}  // namespace

std::string text_of_windows(const HeldOutResult& result) {
  const std::string all = std::to_string(result.windows_of_dataset) + " windows";
  return result.windows == result.windows_of_dataset ? all : "first " + std::to_string(result.windows) + " of " + all;
}

HeldOutResults evaluate_held_out(const CheckpointModel& model, const std::vector<std::string>& datasets,
                                 HostCommunicator& world, const HostShare& share, int64_t windows) {
  const ParallelLayout layout = make_layout(model.config.parallel, world.size());
  RunConfig config = in_microbatches(model.config, layout);
  config.evaluation.sequences = windows;
  std::vector<DataSource> sources;
  std::string names;
  for (const std::string& dataset : datasets) {
    sources.push_back({.directory = dataset, .weight = 0});
    names += (names.empty() ? "" : " and ") + dataset;
  }
  const auto source_count = std::ssize(sources);
  std::optional<Loader> loader;
  std::unique_ptr<const Tokenizer> tokenizer;
  int microbatches = 0;
  run_on_all_ranks(world, [&] {
    loader.emplace(open_loader(config, sources, false));
    tokenizer = tokenizer_for(*loader, model, datasets.front());
    microbatches = evaluation_microbatches(config, layout, *loader);
  });
  std::vector<RankSetting> data;
  add_data(data, "the dataset", sources, *loader);
  require_same_settings(world, data);

  std::map<std::string, TrafficCost> traffic;
  const MemoryPlan plan = plan_of(config, layout, world.rank(), world.size(), share.threads, source_count, traffic);
  Ledger ledger;
  Stream stream{.ledger = &ledger};
  const std::unique_ptr<Queue> queue = start_device(config, share, world, stream).queue;
  Groups groups = make_groups(world, layout, config.model.kv_heads, schedule_of(config), stream.device);
  connect_groups(world, groups, traffic, stream);
  Engine engine(config, std::move(groups), stream, plan, false);
  Log log(world.rank());
  run_on_all_ranks(world, [&] {
    load_parameters(model.directory, engine.parameters(),
                    {.threads = share.threads, .log = world.rank() == 0 ? &log : nullptr});
  });

  const Coordinates at = engine.groups().at;
  const bool counts = tokenizer != nullptr && at.tp == 0 && engine.last();
  std::optional<Progress> progress;
  if (world.rank() == 0) progress.emplace("evaluate", static_cast<uint64_t>(microbatches), "batches");
  const Shape all_totals = {1 + source_count, kLossTotals};  // all data, then each dataset
  Buffer device(stream.device, all_totals.count() * size_of(DType::float64), ledger, "scalars");
  Buffer pinned = staging_buffer(stream, all_totals.count() * size_of(DType::float64));
  const Tensor sums = device.tensor(0, DType::float64, all_totals);
  const Tensor host_sums = pinned.tensor(0, DType::float64, all_totals);
  std::vector<int64_t> bytes(sources.size());
  const auto sources_of = [&](int index) { return evaluated_sources(config, layout, at.dp, *loader, index); };
  const BatchReader read_windows = evaluation_batches(config, layout, at.dp, *loader);
  const BatchReader read = [&](int index, HostBatch& batch) {
    read_windows(index, batch);
    if (counts) {
      for (const SourceTotals::Rows& rows : sources_of(index)) {
        bytes[static_cast<size_t>(rows.source)] += bytes_of(batch, rows, *tokenizer);
      }
    }
    if (progress) progress->update(static_cast<uint64_t>(index) + 1);
  };
  SourceTotals of_sources;
  if (source_count > 1) of_sources = {.totals = sums.rows(1, source_count), .of = sources_of};
  engine.evaluate(microbatches, read, sums.rows(0, 1).view({kLossTotals}), {}, of_sources);
  engine.groups().world->all_reduce(stream, InOut(sums), Reduction::sum).wait(stream);
  download(stream, sums, host_sums);
  finish(stream);
  const double* sum = host_sums.host_data<double>();
  const std::vector<int64_t> all_bytes = sums_over_ranks(world, bytes);
  HeldOutResults results{.all = result_of(sum, std::reduce(all_bytes.begin(), all_bytes.end())), .sources = {}};
  results.all.has_text = tokenizer != nullptr;
  results.all.windows = evaluation_sequences(config, *loader);
  results.all.windows_of_dataset = loader->windows();
  results.all.dropped_tokens = loader->dropped_tokens();
  run_on_all_ranks(world, [&] {
    refuse_without_text(results.all, names);
    refuse_non_finite(results.all, model.directory);
  });
  if (world.rank() == 0 && are_logits_equal(results.all.loss, config.model.vocab))
    log.warning(names + ": " + kLogitsAreEqual);
  if (source_count == 1) return results;
  const std::vector<int64_t> evaluated = evaluated_windows(loader->windows_of_sources(), results.all.windows);
  const std::vector<int64_t> dropped = loader->dropped_tokens_of_sources();
  for (size_t i = 0; i < sources.size(); ++i) {
    HeldOutResult& result =
        results.sources.emplace_back(result_of(sum + (i + 1) * static_cast<size_t>(kLossTotals), all_bytes[i]));
    result.has_text = tokenizer != nullptr;
    result.windows = evaluated[i];
    result.windows_of_dataset = loader->windows_of_sources()[i];
    result.dropped_tokens = dropped[i];
  }
  return results;
}

}  // namespace shiftron

// Samples by step number alone.
#include "train/batches.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace shiftron {
namespace {

int64_t evaluation_sequences(const RunConfig& config, const Loader& loader) {
  const int64_t wanted = config.evaluation.sequences;
  return wanted == 0 ? loader.windows() : std::min(wanted, loader.windows());
}

}  // namespace

Loader open_loader(const RunConfig& config, const std::vector<DataSource>& sources, bool shuffle) {
  return Loader(sources, config.train.sequence_length, static_cast<uint64_t>(config.train.seed),
                config.data.document_reset, shuffle);
}

int64_t first_sample(const RunConfig& config, int dp_size, int64_t step, int index, int dp) {
  const TrainSection& train = config.train;
  return (step - 1) * train.global_batch + (static_cast<int64_t>(index) * dp_size + dp) * train.micro_batch;
}

BatchReader training_batches(const RunConfig& config, const ParallelLayout& layout, int dp, int64_t step,
                             Loader& loader) {
  return [&config, &loader, dp_size = layout.dp, dp, step](int index, HostBatch& batch) {
    loader.read(first_sample(config, dp_size, step, index, dp), config.train.micro_batch, batch.ids.data(),
                batch.targets.data(), batch.document_starts.data());
  };
}

BatchReader evaluation_batches(const RunConfig& config, const ParallelLayout& layout, int dp, Loader& loader) {
  return [&config, &loader, dp_size = layout.dp, dp](int index, HostBatch& batch) {
    const int64_t rows = config.train.micro_batch, length = config.train.sequence_length;
    const int64_t first = (static_cast<int64_t>(index) * dp_size + dp) * rows;
    loader.read(first, rows, batch.ids.data(), batch.targets.data(), batch.document_starts.data());
    const int64_t end = evaluation_sequences(config, loader);
    for (int64_t row = std::clamp<int64_t>(end - first, 0, rows); row < rows; ++row) {
      std::fill_n(batch.targets.begin() + row * length, length, -1);
    }
  };
}

int evaluation_microbatches(const RunConfig& config, const ParallelLayout& layout, const Loader& loader) {
  const int64_t round = config.train.micro_batch * layout.dp;  // sequences
  return static_cast<int>((evaluation_sequences(config, loader) + round - 1) / round);
}

std::string dump_step(const RunConfig& config, int64_t step) {
  Loader loader = open_loader(config, config.data.train, true);
  const int64_t length = config.train.sequence_length;
  std::vector<int32_t> ids(static_cast<size_t>(length)), targets(ids.size());
  std::vector<uint8_t> starts(ids.size());
  nlohmann::ordered_json dump = {{"step", step}};
  for (const char* key : {"ids", "targets", "document_starts"}) dump[key] = nlohmann::ordered_json::array();
  for (int64_t i = 0; i < config.train.global_batch; ++i) {
    loader.read((step - 1) * config.train.global_batch + i, 1, ids.data(), targets.data(), starts.data());
    dump["ids"].push_back(ids);
    dump["targets"].push_back(targets);
    nlohmann::ordered_json offsets = nlohmann::ordered_json::array();
    for (size_t row = 0; row < starts.size(); ++row) {
      if (starts[row] != 0) offsets.push_back(row);
    }
    dump["document_starts"].push_back(offsets);
  }
  return dump.dump();
}

}  // namespace shiftron

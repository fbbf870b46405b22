// Samples are a function of the step number alone.
#include "train/batches.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/check.h"

namespace shiftron {

Loader open_loader(const RunConfig& config, const std::vector<DataSource>& sources, bool shuffle) {
  return Loader(sources, config.train.sequence_length, static_cast<uint64_t>(config.train.seed),
                config.data.document_reset, shuffle);
}

void add_data(std::vector<RankSetting>& given, const std::string& key, const std::vector<DataSource>& sources,
              const Loader& loader) {
  const std::vector<std::string> fingerprints = loader.fingerprints_of_sources();
  const std::string hash = loader.tokenizer_hash();
  for (size_t i = 0; i < sources.size(); ++i) {
    given.push_back({detail::concatenate(key, " ", i > 0 ? detail::concatenate(i + 1, ": ") : "", sources[i].directory),
                     detail::concatenate("(fingerprint ", fingerprints[i], ", ", loader.windows_of_sources()[i],
                                         " windows, ", hash.empty() ? "no tokenizer" : "tokenizer " + hash, ")")});
  }
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

std::vector<int64_t> evaluated_windows(const std::vector<int64_t>& windows, int64_t count) {
  using Wide = unsigned __int128;
  const int64_t all = std::reduce(windows.begin(), windows.end());
  std::vector<int64_t> evaluated;
  int64_t before = 0, begin = 0;  // windows and sequences of the previous sources
  for (const int64_t of_source : windows) {
    before += of_source;
    const auto end =
        static_cast<int64_t>((static_cast<Wide>(count) * static_cast<Wide>(before) * 2 + static_cast<Wide>(all)) /
                             (static_cast<Wide>(all) * 2));
    evaluated.push_back(end - begin);
    begin = end;
  }
  return evaluated;
}

int64_t evaluated_window(const std::vector<int64_t>& windows, int64_t count, int64_t index) {
  const int64_t all = std::reduce(windows.begin(), windows.end());
  CHECK(index >= 0 && index < count && count <= all, "sequence ", index, " of ", count, ", windows ", all);
  const std::vector<int64_t> evaluated = evaluated_windows(windows, count);
  int64_t before = 0, begin = 0;  // windows and sequences of the previous sources
  for (size_t source = 0; source < windows.size(); ++source) {
    if (index < begin + evaluated[source]) return before + index - begin;
    begin += evaluated[source];
    before += windows[source];
  }
  throw_crash("sequence ", index, " of ", count, " belongs to no data source");
}

int64_t evaluation_sequences(const RunConfig& config, const Loader& loader) {
  const int64_t wanted = config.evaluation.sequences;
  return wanted == 0 ? loader.windows() : std::min(wanted, loader.windows());
}

BatchReader evaluation_batches(const RunConfig& config, const ParallelLayout& layout, int dp, Loader& loader) {
  return [&config, &loader, dp_size = layout.dp, dp](int index, HostBatch& batch) {
    const int64_t rows = config.train.micro_batch, length = config.train.sequence_length;
    const int64_t first = (static_cast<int64_t>(index) * dp_size + dp) * rows;
    const int64_t count = evaluation_sequences(config, loader);
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t at = row * length;
      loader.read(evaluated_window(loader.windows_of_sources(), count, std::min(first + row, count - 1)), 1,
                  batch.ids.data() + at, batch.targets.data() + at, batch.document_starts.data() + at);
      if (first + row >= count) std::fill_n(batch.targets.begin() + at, length, -1);
    }
  };
}

std::vector<SourceTotals::Rows> evaluated_sources(const RunConfig& config, const ParallelLayout& layout, int dp,
                                                  const Loader& loader, int index) {
  const int64_t sequences = config.train.micro_batch, length = config.train.sequence_length;
  const int64_t first = (static_cast<int64_t>(index) * layout.dp + dp) * sequences;
  const int64_t count = evaluation_sequences(config, loader);
  const std::vector<int64_t>& windows = loader.windows_of_sources();
  std::vector<SourceTotals::Rows> rows;
  for (int64_t sequence = 0; sequence < sequences && first + sequence < count; ++sequence) {
    int64_t window = evaluated_window(windows, count, first + sequence), source = 0;
    while (window >= windows[static_cast<size_t>(source)]) window -= windows[static_cast<size_t>(source++)];
    if (rows.empty() || rows.back().source != source) rows.push_back({source, sequence * length, sequence * length});
    rows.back().end += length;
  }
  return rows;
}

int evaluation_batch_count(int64_t sequences, int64_t round) {
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  const int64_t count = (sequences + round - 1) / round;
  if (count > kMost) {
    throw_bad_input("an evaluation of ", sequences, " windows has ", count, " batches; the maximum is ", kMost,
                    "; raise train.micro_batch, or evaluate on less data");
  }
  return static_cast<int>(count);
}

int evaluation_microbatches(const RunConfig& config, const ParallelLayout& layout, const Loader& loader) {
  return evaluation_batch_count(evaluation_sequences(config, loader), config.train.micro_batch * layout.dp);
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

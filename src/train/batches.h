// Which samples a rank reads in a step and in an evaluation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/loader.h"
#include "parallel/same_settings.h"
#include "train/engine.h"

namespace shiftron {

// shuffle = false: windows in order, for evaluation.
Loader open_loader(const RunConfig& config, const std::vector<DataSource>& sources, bool shuffle);

// Adds what `loader` found in each of the sources that `key` names.
void add_data(std::vector<RankSetting>& given, const std::string& key, const std::vector<DataSource>& sources,
              const Loader& loader);

// Number of the first sample that microbatch `index` of rank `dp` reads in `step` (from 1).
int64_t first_sample(const RunConfig& config, int dp_size, int64_t step, int index, int dp);

// Read what data-parallel rank `dp` needs. `config` and `loader` must outlive the reader, here and in
// evaluation_batches().
BatchReader training_batches(const RunConfig& config, const ParallelLayout& layout, int dp, int64_t step,
                             Loader& loader);
// How many windows of each source are among the `count` sequences of an evaluation; `windows`: of each source. A source
// contributes its first windows, in proportion to its share of all windows.
std::vector<int64_t> evaluated_windows(const std::vector<int64_t>& windows, int64_t count);
// The window that is sequence `index` of such an evaluation; windows are numbered through all sources, one after
// another.
int64_t evaluated_window(const std::vector<int64_t>& windows, int64_t count, int64_t index);
// Number of windows of an evaluation: config.evaluation.sequences, or all if that is 0 or exceeds their number.
int64_t evaluation_sequences(const RunConfig& config, const Loader& loader);
// Reads these windows; rows that only fill up the last microbatch are not counted.
BatchReader evaluation_batches(const RunConfig& config, const ParallelLayout& layout, int dp, Loader& loader);
// Which rows of microbatch `index` of such an evaluation belong to which source, in order.
std::vector<SourceTotals::Rows> evaluated_sources(const RunConfig& config, const ParallelLayout& layout, int dp,
                                                  const Loader& loader, int index);
// Number of batches of `round` sequences, the last one filled up. Throws Error(bad_input) if that exceeds an int.
int evaluation_batch_count(int64_t sequences, int64_t round);
// Microbatches of each data-parallel rank in an evaluation. Throws as above.
int evaluation_microbatches(const RunConfig& config, const ParallelLayout& layout, const Loader& loader);

// The samples of step `step` in the order of the global batch, as training reads them: JSON
// {"step", "ids": [[…]], "targets": [[…]], "document_starts": [[…]]}.
std::string dump_step(const RunConfig& config, int64_t step);

}  // namespace shiftron

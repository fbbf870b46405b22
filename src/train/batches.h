// Which samples a rank reads in a step and in an evaluation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/loader.h"
#include "parallel/given_alike.h"
#include "train/engine.h"

namespace shiftron {

// shuffle = false: windows in order, for evaluation.
Loader open_loader(const RunConfig& config, const std::vector<DataSource>& sources, bool shuffle);

// Adds what `loader` found in each of the sources that `key` names.
void add_data(std::vector<GivenValue>& given, const std::string& key, const std::vector<DataSource>& sources,
              const Loader& loader);

// Number of the first sample that microbatch `index` of rank `dp` reads in `step` (from 1).
int64_t first_sample(const RunConfig& config, int dp_size, int64_t step, int index, int dp);

// Both read from `loader`, which outlives them, what data-parallel rank `dp` needs.
BatchReader training_batches(const RunConfig& config, const ParallelLayout& layout, int dp, int64_t step,
                             Loader& loader);
// Of sources with so many windows: how many of each are among the `count` sequences of an evaluation. Each source gives
// its first ones, as many as its share of all windows.
std::vector<int64_t> evaluated_windows(const std::vector<int64_t>& windows, int64_t count);
// The window that is sequence `index` of these; windows are counted over the sources one after another.
int64_t evaluated_window(const std::vector<int64_t>& windows, int64_t count, int64_t index);
// Windows of an evaluation: config.evaluation.sequences, or all where that is unset or more.
int64_t evaluation_sequences(const RunConfig& config, const Loader& loader);
// These; rows that fill up the last microbatch are not counted.
BatchReader evaluation_batches(const RunConfig& config, const ParallelLayout& layout, int dp, Loader& loader);
// Of a microbatch of such an evaluation, in order: which rows are of which source.
std::vector<SourceTotals::Rows> evaluated_sources(const RunConfig& config, const ParallelLayout& layout, int dp,
                                                  const Loader& loader, int index);
// Batches of `round` sequences, the last one filled up. Throws Error(bad_input) where they are too many to number.
int evaluation_batch_count(int64_t sequences, int64_t round);
// Microbatches of each data-parallel rank in an evaluation. Throws likewise.
int evaluation_microbatches(const RunConfig& config, const ParallelLayout& layout, const Loader& loader);

// The samples of step `step` in the order of the global batch, as training reads them: JSON
// {"step", "ids": [[…]], "targets": [[…]], "document_starts": [[…]]}.
std::string dump_step(const RunConfig& config, int64_t step);

}  // namespace shiftron

// Converts a saved step to the files of another layout, or to one file, in a directory where a run can resume from it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/step_writer.h"
#include "config/config_text.h"
#include "config/run_config.h"
#include "core/log.h"

namespace shiftron {

// "tp=4,pp=2,dp=8,zero=1,stage_layers=3,1": keys of [parallel], and dp, which is not a key. A part without "=" belongs
// to the value before it.
struct ParsedLayout {
  std::vector<Setting> settings;  // of [parallel]
  std::string dp = "1";
};
// Throws Error(bad_input) if a part has no key before it, or if a key is given twice.
ParsedLayout parse_layout(const std::string& text);

// `saved` with that layout. Keys that the words leave out get their defaults, except parallel.bucket_elements, which
// stays, and parallel.recompute, which stays if it is the same for all stages. `ranks` returns the layout's number of
// ranks. Throws Error(bad_input) that lists every fault, as `train` does.
RunConfig config_with_layout(const RunConfig& saved, const ParsedLayout& words, int& ranks);

// What each rank of a run of `config` writes and reads back, in the order of their files. Ranks without a file are left
// out.
std::vector<StepFile> files_of_layout(const RunConfig& config, const ParallelLayout& layout);

struct ConvertOptions {
  std::optional<DType> precision;  // of parameters; unset: unchanged
  bool drop_optimizer = false;     // write parameters only
  StepWriteOptions write{};
  std::function<void(const struct ConvertedStep& made)> notify{};  // called before the command removes its last file
};

struct ConvertedStep {
  std::string directory;    // of the step: OUTPUT/checkpoints/step-S
  std::string config_file;  // OUTPUT/config.conf
  ParallelLayout layout;
  size_t files = 0;                // of tensors
  uint64_t bytes = 0;              // of all files
  bool can_train = false;          // `train` accepts it: it has moments, or needs none
  bool has_training_keys = false;  // its configuration also says how to train
  bool was_there = false;          // an earlier, killed command of the same conversion had made it
};

// Writes OUTPUT/checkpoints/step-S, split as the ranks of the layout would write it, and OUTPUT/config.conf. Parameters
// are cast only if moments are dropped, because a run could not resume bit by bit otherwise. OUTPUT must hold no run:
// no step, and no config.conf except that of the same conversion, interrupted. Only one process at a time works there.
// A conversion that fails leaves no step, and nothing if OUTPUT did not exist before. If it was killed after its step
// got its name, the same command can be repeated. Errors: the layout, the output, a cast with moments (bad_input); a
// damaged step (no_checkpoint); the disk (crash).
ConvertedStep convert_step(const std::string& step_directory, const std::string& layout, const std::string& output,
                           Log& log, const ConvertOptions& options = {});

}  // namespace shiftron

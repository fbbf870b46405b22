// A saved step as files of another layout, or as one file, in a directory where a run can go on from it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/step_writer.h"
#include "core/log.h"
#include "train/run_config.h"

namespace shiftron {

// "tp=4,pp=2,dp=8,zero=1,stage_layers=3,1": keys of [parallel], and dp, which is no key. A part without "=" belongs to
// the value before it.
struct LayoutWords {
  std::vector<Setting> settings;  // of [parallel]
  std::string dp = "1";
};
// Throws Error(bad_input) where a part has no key before it, or a key comes twice.
LayoutWords read_layout_words(const std::string& text);

// `saved` under that layout: what the words leave out has its default, but parallel.bucket_elements stays, and
// parallel.recompute where it is the same for all stages. `ranks`: of the layout. Throws Error(bad_input) that lists
// every fault as `train` does.
RunConfig under_layout(const RunConfig& saved, const LayoutWords& words, int& ranks);

// What every rank of a run of `config` writes, and reads back, in the order of their files; ranks without a file left
// out.
std::vector<StepFile> files_of_layout(const RunConfig& config, const ParallelLayout& layout);

struct ConvertOptions {
  std::optional<DType> precision;  // of parameters; unset: as they are
  bool drop_optimizer = false;     // parameters alone
  StepWriteOptions write{};
  std::function<void(const struct ConvertedStep& made)> tell{};  // before the last trace of the command goes
};

struct ConvertedStep {
  std::string directory;    // of the step: OUTPUT/checkpoints/step-S
  std::string config_file;  // OUTPUT/config.conf
  ParallelLayout layout;
  size_t files = 0;        // of tensors
  uint64_t bytes = 0;      // of all files
  bool can_train = false;  // `train` takes it: it has moments, or needs none
  bool says_how = false;   // its configuration states a training, too
  bool was_there = false;  // the same conversion had made it, and was killed
};

// Writes OUTPUT/checkpoints/step-S, cut as the ranks of the layout would, and OUTPUT/config.conf. Parameters are cast
// only where moments are left out: a run could not go on bit by bit. OUTPUT must hold no run: no step, no config.conf
// but that of the same conversion, interrupted; one process at a time works there. A conversion that fails leaves no
// step, and nothing where OUTPUT was not there before; one that was killed after its step got its name can be given
// again. Errors: the layout, the output, a cast with moments (bad_input); a damaged step (no_checkpoint); the disk
// (crash).
ConvertedStep convert_step(const std::string& step_directory, const std::string& layout, const std::string& output,
                           Log& log, const ConvertOptions& options = {});

}  // namespace shiftron

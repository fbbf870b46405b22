// Loss, perplexity, accuracy and bits per byte of a checkpoint on datasets, in any layout.
#pragma once

#include <string>
#include <vector>

#include "core/host.h"
#include "evaluate/checkpoint_model.h"
#include "parallel/host_communicator.h"

namespace shiftron {

struct HeldOutResult {
  double loss = 0;           // nats per counted target
  double perplexity = 0;     // e^loss
  double bits_per_byte = 0;  // nats of all counted targets / (ln 2 · bytes of their text); NaN without a tokenizer
  double accuracy = 0;       // share of counted targets that are the likeliest token
  int64_t targets = 0;       // counted
  bool has_text = true;      // the data or the checkpoint has a tokenizer
  int64_t bytes = 0;         // of their text
  int64_t windows = 0;       // predicted
  int64_t windows_of_dataset = 0;
  int64_t dropped_tokens = 0;  // after the last whole window
};

struct HeldOutResults {
  HeldOutResult all;
  // One for each dataset, if there are several. Means over nothing are NaN.
  std::vector<HeldOutResult> sources;
};

// "9 windows", "first 2 of 9 windows".
std::string text_of_windows(const HeldOutResult& result);

// Evaluates `windows` of the datasets, the first ones of each, as evaluation.sequences does in a run; 0 = all. Every
// rank of `world` calls it and gets the same result; dp is what model.config.parallel leaves. Throws Error(bad_input)
// that names the datasets if they have no counted target or no byte of text.
HeldOutResults evaluate_held_out(const CheckpointModel& model, const std::vector<std::string>& datasets,
                                 HostCommunicator& world, const HostShare& share, int64_t windows = 0);

}  // namespace shiftron

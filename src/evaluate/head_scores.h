// What a step's heads attend to in repeated random tokens: previous-token, current-token and induction scores, and the
// loss on the first and the second copy.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "evaluate/checkpoint_model.h"

namespace shiftron {

struct RepeatOptions {
  uint64_t seed = 0;
  int64_t sequences = 8;                               // of each period
  std::optional<int64_t> first_token{}, last_token{};  // range to draw from; unset: the whole vocabulary
};

// Lengths of the repeated part. With a single length, a head whose rotary embedding happens to favour that distance
// would score high whatever the tokens are.
inline constexpr int64_t kPeriods[] = {6, 12, 24, 31};

// Sequences of 2 · period tokens, x[t + period] = x[t], each a separate document. The tokens within a period are
// distinct.
struct RepeatedTokens {
  std::vector<int64_t> periods;             // those of kPeriods that fit train.sequence_length and the candidates
  std::vector<std::vector<int32_t>> texts;  // options.sequences of the first period, then of the next
  int64_t candidates = 0;                   // number of tokens to draw from
  int64_t period_of(size_t text) const { return static_cast<int64_t>(texts[text].size()) / 2; }
};
// Draws u(0), u(1), … are the uniform numbers of the stream (seed, "repeated tokens PERIOD SEQUENCE"), SEQUENCE from 0;
// each gives candidate number floor(u · candidates) and is skipped if the period has that token already. Candidates are
// the tokens first … last in order, without those that begin or end texts. Throws Error(bad_input) if no period fits.
RepeatedTokens repeated_tokens(const CheckpointModel& model, const RepeatOptions& options);

// Means of attention weights over the rows t = period … 2 · period − 1 of all sequences of a period; a head's score is
// the minimum over the periods.
struct HeadScore {
  int64_t layer = 0, head = 0, kv_head = 0;
  double induction = 0;  // on t − period + 1, the token after the previous occurrence of token t
  double previous = 0;   // on t − 1
  double current = 0;    // on t
  std::vector<double> induction_of_periods;
};

struct HeadReport {
  RepeatedTokens tokens;
  std::vector<HeadScore> heads;  // by layer, then by head
  // Nats per token over all sequences: for tokens 1 … period − 1 of the first copy, which nothing predicts, and for the
  // same tokens of the second copy, each of which follows a token that occurred before.
  double first_copy_loss = 0, second_copy_loss = 0;
  bool is_finite() const;
};

// Computes on the CPU with one layer in memory at a time, in float64 if the run did, otherwise in float32. `piece_done`
// is called layers + 2 times. Throws Error(bad_input) if there is not enough memory, Error(no_checkpoint) if the step
// is damaged. Weights that are not finite give NaN.
HeadReport score_heads(const CheckpointModel& model, const RepeatOptions& options, int threads,
                       const std::function<void()>& piece_done = {});

// The head with the largest value of `of`, the first of equal ones; NaN is smaller than any number.
const HeadScore& best_head(const std::vector<HeadScore>& heads, double HeadScore::*of);

}  // namespace shiftron

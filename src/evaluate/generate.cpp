// Feeds a prompt, then each token that was chosen.
#include "evaluate/generate.h"

#include <algorithm>
#include <cmath>

#include "parallel/agree.h"

namespace shiftron {

namespace {

bool are_finite(const std::vector<double>& logits, int64_t known) {
  return std::all_of(logits.begin(), logits.begin() + known, [](double logit) { return std::isfinite(logit); });
}

}  // namespace

NonFiniteLogits::NonFiniteLogits(int64_t tokens)
    : Error(detail::concatenate("the model's logits after ", tokens, " tokens are not finite: ", kNonFiniteAdvice),
            ExitCode::bad_input) {}

Continuation continue_tokens(Decoder& decoder, const std::vector<int32_t>& prompt, const GenerateOptions& options,
                             int64_t vocab, int32_t end, const std::function<void(int32_t)>& show, int64_t number,
                             int64_t sample) {
  CHECK(!prompt.empty() && options.chunk > 0, "nothing to continue: ", prompt.size(), " tokens, chunk ", options.chunk);
  const auto length = static_cast<int64_t>(prompt.size());
  const bool stops = options.separates_documents && decoder.shift_stops_at_documents();
  std::vector<double> logits;
  for (auto begin = prompt.begin(); begin < prompt.end();) {
    auto piece_end = begin + std::min(options.chunk, prompt.end() - begin);
    if (stops) {
      const auto last = std::find(begin, piece_end, end);
      if (last != piece_end) piece_end = last + 1;
    }
    logits = decoder.feed_last({begin, piece_end});
    if (stops && piece_end[-1] == end) decoder.begin_document();
    begin = piece_end;
  }
  const Philox draws = draws_of(options.sampling.seed, number, sample);
  Continuation made{.prompt = number, .sample = sample};
  while (std::ssize(made.ids) < options.tokens) {
    if (!made.ids.empty()) logits = decoder.feed_last({made.ids.back()});
    if (!are_finite(logits, vocab)) throw NonFiniteLogits(length + std::ssize(made.ids));
    const std::span known(logits.data(), static_cast<size_t>(vocab));
    const int32_t next = choose_token(known, options.sampling, draws.uniform(made.ids.size()));
    made.ended = next == end;
    if (made.ended) break;
    made.ids.push_back(next);
    if (options.scores) made.log_probability += log_probability_of(logits, next);
    if (show) show(next);
    if (options.ends_with && options.ends_with(next)) break;
  }
  return made;
}

void report_non_finite_once(const ControlPlane& world, const std::function<void()>& decode) {
  try {
    decode();
  } catch (const NonFiniteLogits& error) {
    if (world.rank() > 0) end_without_report(error.code());
    throw;
  }
}

// Without document reset, training shows a document's first token after the end of another document.
std::vector<int32_t> with_document_start(std::vector<int32_t> ids, const RunConfig& config, int32_t end,
                                         int32_t beginning) {
  if (beginning >= 0) {
    if (ids.empty() || ids.front() != beginning) ids.insert(ids.begin(), beginning);
    return ids;
  }
  if (ids.empty() || !config.data.document_reset) ids.insert(ids.begin(), end);
  return ids;
}

}  // namespace shiftron

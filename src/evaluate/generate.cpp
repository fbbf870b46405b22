// Sampling, and the end of a continuation.
#include "evaluate/generate.h"

#include <algorithm>
#include <cmath>

#include "core/philox.h"
#include "data/tokenizer.h"
#include "parallel/agree.h"

namespace shiftron {

namespace {

int32_t choose(const std::vector<double>& logits, int64_t known, double temperature, double draw) {
  const auto end = logits.begin() + known;
  const auto best = std::max_element(logits.begin(), end);
  if (temperature <= 0) return static_cast<int32_t>(best - logits.begin());
  double total = 0;
  for (auto it = logits.begin(); it != end; ++it) total += std::exp((*it - *best) / temperature);
  double left = draw * total;
  for (auto it = logits.begin(); it != end; ++it) {
    left -= std::exp((*it - *best) / temperature);
    if (left <= 0) return static_cast<int32_t>(it - logits.begin());
  }
  return static_cast<int32_t>(known - 1);
}

bool are_finite(const std::vector<double>& logits, int64_t known) {
  return std::all_of(logits.begin(), logits.begin() + known, [](double logit) { return std::isfinite(logit); });
}

}  // namespace

NonFiniteLogits::NonFiniteLogits(int64_t tokens)
    : Error(detail::concatenate("the model's logits after ", tokens, " tokens are not finite: ", kWhyNotFinite),
            ExitCode::bad_input) {}

std::vector<int32_t> continue_tokens(Decoder& decoder, const std::vector<int32_t>& prompt,
                                     const GenerateOptions& options, int64_t vocab, int32_t end,
                                     const std::function<void(int32_t)>& show) {
  CHECK(!prompt.empty() && options.chunk > 0, "nothing to continue: ", prompt.size(), " tokens, chunk ", options.chunk);
  const auto length = static_cast<int64_t>(prompt.size());
  const bool stops = options.parts_documents && decoder.shift_stops_at_documents();
  std::vector<double> logits;
  for (auto begin = prompt.begin(); begin < prompt.end();) {
    auto behind = begin + std::min(options.chunk, prompt.end() - begin);
    if (stops) {
      const auto last = std::find(begin, behind, end);
      if (last != behind) behind = last + 1;
    }
    logits = decoder.feed_last({begin, behind});
    if (stops && behind[-1] == end) decoder.begin_document();
    begin = behind;
  }
  const Philox random(options.seed, "generate");
  std::vector<int32_t> made;
  while (static_cast<int64_t>(made.size()) < options.tokens) {
    if (!made.empty()) logits = decoder.feed_last({made.back()});
    if (!are_finite(logits, vocab)) throw NonFiniteLogits(length + static_cast<int64_t>(made.size()));
    const int32_t next = choose(logits, vocab, options.temperature, random.uniform(made.size()));
    if (next == end) break;
    made.push_back(next);
    if (show) show(next);
    if (options.ends_with && options.ends_with(next)) break;
  }
  return made;
}

void report_non_finite_once(const ControlPlane& world, const std::function<void()>& decode) {
  try {
    decode();
  } catch (const NonFiniteLogits& error) {
    if (world.rank() > 0) leave_to_another(error.code());
    throw;
  }
}

// Without document reset, training shows a document's first token after the end of another document.
std::vector<int32_t> as_beginning_of_document(std::vector<int32_t> ids, const RunConfig& config, int32_t end) {
  if (ids.empty() || !config.data.document_reset) ids.insert(ids.begin(), end);
  return ids;
}

std::vector<int32_t> generate(const CheckpointModel& model, const std::string& prompt, const GenerateOptions& options,
                              HostCommunicator& world, const HostShare& share,
                              const std::function<void(const std::string&)>& show) {
  const Tokenizer tokenizer = tokenizer_of(model);
  const std::vector<int32_t> ids =
      as_beginning_of_document(tokenizer.encode(prompt), model.config, tokenizer.end_of_document());
  Decoder decoder(model, world, share, static_cast<int64_t>(ids.size()) + options.tokens, options.chunk);
  const auto show_text = [&](int32_t token) {
    if (show) show(tokenizer.text_of(token));
  };
  std::vector<int32_t> made;
  report_non_finite_once(world, [&] {
    made = continue_tokens(decoder, ids, options, tokenizer.vocab_size(), tokenizer.end_of_document(), show_text);
  });
  return made;
}

}  // namespace shiftron

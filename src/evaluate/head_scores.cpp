// Draws the sequences, and computes one dot product for each attention weight: exp(q · k / √head_dim − log_sum_exp).
#include "evaluate/head_scores.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "checkpoint/parameter_reads.h"
#include "checkpoint/steps.h"
#include "core/check.h"
#include "core/philox.h"
#include "interchange/model_pieces.h"
#include "interchange/stored_rows.h"
#include "kernels/element.h"
#include "run/saved_state.h"
#include "train/engine.h"

namespace shiftron {
namespace {

// Tokens that begin or end texts and never occur inside one.
std::set<int64_t> tokens_between_texts(const CheckpointModel& model) {
  std::set<int64_t> tokens;
  if (model.content.tokenizer.is_there()) {
    const std::unique_ptr<const Tokenizer> tokenizer = tokenizer_of(model);
    tokens.insert(tokenizer->end_of_document());
    if (tokenizer->beginning_of_document() >= 0) tokens.insert(tokenizer->beginning_of_document());
  }
  const ModelOrigin origin = saved_state(model.content.state_json, model.directory).origin;
  tokens.insert(origin.end_tokens.begin(), origin.end_tokens.end());
  if (origin.begin_token) tokens.insert(*origin.begin_token);
  return tokens;
}

std::vector<int32_t> candidates_of(const CheckpointModel& model, const RepeatOptions& options) {
  const int64_t vocab = model.config.model.vocab;
  const int64_t first = options.first_token.value_or(0), last = options.last_token.value_or(vocab - 1);
  if (first > last || last >= vocab) {
    throw_bad_input("tokens ", first, " to ", last, " are not a range of the model's vocabulary, 0 to ", vocab - 1,
                    "; change --first-token or --last-token");
  }
  const std::set<int64_t> left_out = tokens_between_texts(model);
  std::vector<int32_t> candidates;
  for (int64_t token = first; token <= last; ++token) {
    if (!left_out.contains(token)) candidates.push_back(static_cast<int32_t>(token));
  }
  return candidates;
}

std::vector<int32_t> draw_period(const std::vector<int32_t>& candidates, int64_t period, const Philox& random) {
  std::vector<int32_t> tokens;
  for (uint64_t draw = 0; std::ssize(tokens) < period; ++draw) {
    const auto number = static_cast<size_t>(random.uniform(draw) * static_cast<double>(candidates.size()));
    const int32_t token = candidates[std::min(number, candidates.size() - 1)];
    if (std::ranges::find(tokens, token) == tokens.end()) tokens.push_back(token);
  }
  return tokens;
}

// Sums over the rows of one period.
struct Sums {
  double induction = 0, previous = 0, current = 0;
};

// Sums of one layer, [period][head].
class LayerSums {
 public:
  LayerSums(const RepeatedTokens& tokens, int64_t heads)
      : tokens_(tokens), sums_(tokens.periods.size(), std::vector<Sums>(static_cast<size_t>(heads))) {}

  // q [rows, heads, head_dim], k [rows, kv_heads, head_dim] T, log_sum_exp [heads, rows] A.
  void add(const Tensor& q, const Tensor& k, const Tensor& log_sum_exp) {
    for_type(q.dtype(), [&](auto element) { add_rows<decltype(element)>(q, k, log_sum_exp); });
  }

  std::vector<HeadScore> scores(int64_t layer, int64_t kv_heads, int64_t sequences) const {
    std::vector<HeadScore> heads;
    const auto count = std::ssize(sums_[0]);
    for (int64_t head = 0; head < count; ++head) {
      HeadScore score{.layer = layer, .head = head, .kv_head = head / (count / kv_heads), .induction_of_periods = {}};
      score.induction = score.previous = score.current = std::numeric_limits<double>::infinity();
      for (size_t i = 0; i < sums_.size(); ++i) {
        const Sums& sums = sums_[i][static_cast<size_t>(head)];
        const auto rows = static_cast<double>(tokens_.periods[i] * sequences);
        score.induction_of_periods.push_back(sums.induction / rows);
        lower(score.induction, sums.induction / rows);
        lower(score.previous, sums.previous / rows);
        lower(score.current, sums.current / rows);
      }
      heads.push_back(std::move(score));
    }
    return heads;
  }

 private:
  // NaN is kept.
  static void lower(double& least, double value) {
    if (!(value >= least)) least = value;
  }

  template <typename T>
  void add_rows(const Tensor& q, const Tensor& k, const Tensor& log_sum_exp) {
    using A = Accumulation<T>;
    const int64_t heads = q.extent(1), head_dim = q.extent(2), group = heads / k.extent(1);
    const double scale = 1 / std::sqrt(static_cast<double>(head_dim));
    for (int64_t head = 0; head < heads; ++head) {
      const auto weight = [&](int64_t row, int64_t key) {
        const T* of_query = q.data<T>() + row * q.stride(0) + head * q.stride(1);
        const T* of_key = k.data<T>() + key * k.stride(0) + head / group * k.stride(1);
        double product = 0;
        for (int64_t i = 0; i < head_dim; ++i) {
          product += static_cast<double>(to_accumulate(of_query[i])) * static_cast<double>(to_accumulate(of_key[i]));
        }
        return std::exp(product * scale -
                        static_cast<double>(log_sum_exp.data<A>()[head * log_sum_exp.stride(0) + row]));
      };
      int64_t begin = 0;
      for (size_t text = 0; text < tokens_.texts.size(); ++text) {
        const int64_t period = tokens_.period_of(text);
        const auto place = std::ranges::find(tokens_.periods, period) - tokens_.periods.begin();
        Sums& sums = sums_[static_cast<size_t>(place)][static_cast<size_t>(head)];
        for (int64_t row = begin + period; row < begin + 2 * period; ++row) {
          sums.induction += weight(row, row - period + 1);
          sums.previous += weight(row, row - 1);
          sums.current += weight(row, row);
        }
        begin += 2 * period;
      }
    }
  }

  const RepeatedTokens& tokens_;
  std::vector<std::vector<Sums>> sums_;
};

// −log softmax of a row of logits at `target`.
template <typename A>
double loss_of(const A* logits, int64_t vocab, int32_t target) {
  double largest = -std::numeric_limits<double>::infinity(), total = 0;
  for (int64_t i = 0; i < vocab; ++i) largest = std::max(largest, static_cast<double>(logits[i]));
  for (int64_t i = 0; i < vocab; ++i) total += std::exp(static_cast<double>(logits[i]) - largest);
  return std::log(total) + largest - static_cast<double>(logits[target]);
}

}  // namespace

RepeatedTokens repeated_tokens(const CheckpointModel& model, const RepeatOptions& options) {
  const std::vector<int32_t> candidates = candidates_of(model, options);
  RepeatedTokens tokens{.periods = {}, .texts = {}, .candidates = std::ssize(candidates)};
  const int64_t longest = model.config.train.sequence_length;
  for (const int64_t period : kPeriods) {
    if (period <= tokens.candidates && 2 * period <= longest) tokens.periods.push_back(period);
  }
  if (tokens.periods.empty()) {
    throw_bad_input(
        "scores need ", kPeriods[0], " different tokens, each twice, but there are ", tokens.candidates,
        " to draw from, and ", model.directory, " was trained on sequences of ", longest,
        " tokens; widen the range of --first-token and --last-token, or choose a run with longer sequences");
  }
  for (const int64_t period : tokens.periods) {
    for (int64_t sequence = 0; sequence < options.sequences; ++sequence) {
      const Philox random(options.seed, "repeated tokens " + std::to_string(period) + " " + std::to_string(sequence));
      std::vector<int32_t> text = draw_period(candidates, period, random);
      text.resize(static_cast<size_t>(2 * period));
      std::copy_n(text.begin(), period, text.begin() + period);
      tokens.texts.push_back(std::move(text));
    }
  }
  return tokens;
}

bool HeadReport::is_finite() const {
  return std::isfinite(first_copy_loss) && std::isfinite(second_copy_loss) &&
         std::ranges::all_of(heads, [](const HeadScore& head) {
           return std::isfinite(head.induction) && std::isfinite(head.previous) && std::isfinite(head.current);
         });
}

HeadReport score_heads(const CheckpointModel& model, const RepeatOptions& options, int threads,
                       const std::function<void()>& piece_done) {
  const ModelConfig& shape = model.config.model;
  HeadReport report{.tokens = repeated_tokens(model, options), .heads = {}};
  PieceTexts texts;
  for (const std::vector<int32_t>& text : report.tokens.texts) {
    texts.ids.insert(texts.ids.end(), text.begin(), text.end());
    texts.lengths.push_back(std::ssize(text));
  }
  const Precision precision = model.config.train.precision == Precision::fp64 ? Precision::fp64 : Precision::fp32;
  ModelPieces pieces(shape, number_types(precision), {.threads = threads}, std::move(texts),
                     {"to score the heads, which loads one layer, or the output head, at a time",
                      "give fewer --sequences, or use a machine with more memory"});
  StepReader reader(model.directory, check_step(model.directory));
  const StoredRows rows(reader, shape);
  const auto fill = [&](ParameterSet& set) {
    for (const auto& parameter : set.parameters()) rows.find(parameter->spec.name);  // throws if it is missing
    read_into(reader, wanted_of(set, {}), set, threads);
  };
  for (int64_t piece = -1; piece < shape.layers; ++piece) {
    LayerSums sums(report.tokens, shape.heads);
    pieces.forward(piece, fill, [&](int, const Attention::Streams& of, const Tensor& log_sum_exp) {
      sums.add(of.q, of.k, log_sum_exp);
    });
    if (piece >= 0) {
      for (HeadScore& score : sums.scores(piece, shape.kv_heads, options.sequences))
        report.heads.push_back(std::move(score));
    }
    if (piece_done) piece_done();
  }
  int64_t counted = 0;
  pieces.head(fill, [&](size_t text, const Tensor& logits) {
    const std::vector<int32_t>& ids = report.tokens.texts[text];
    const int64_t period = report.tokens.period_of(text);
    for_type(logits.dtype(), [&](auto element) {
      const auto* first = logits.data<decltype(element)>();
      if constexpr (!std::is_same_v<decltype(element), bfloat16>) {
        const auto loss = [&](int64_t row) {
          return loss_of(first + row * logits.stride(0), shape.vocab, ids[static_cast<size_t>(row + 1)]);
        };
        for (int64_t row = 0; row + 1 < period; ++row, ++counted) {
          report.first_copy_loss += loss(row);
          report.second_copy_loss += loss(row + period);
        }
      }
    });
  });
  report.first_copy_loss /= static_cast<double>(counted);
  report.second_copy_loss /= static_cast<double>(counted);
  if (piece_done) piece_done();
  return report;
}

const HeadScore& best_head(const std::vector<HeadScore>& heads, double HeadScore::*of) {
  const auto value = [of](const HeadScore& head) {
    return std::isnan(head.*of) ? -std::numeric_limits<double>::infinity() : head.*of;
  };
  return *std::ranges::max_element(heads, {}, value);
}

}  // namespace shiftron

// The paper's Theorems 1 to 3 and Figure 2 in fp64: its statements about induction heads, compared with the shift and
// attention kernels of the model. Tokens are counted from 1 as in the paper, rows from 0. The tests record their values
// as properties THEOREM.VALUE of the JSON report, which experiments/theorems judges.
#include <fmt/format.h>

#include <limits>
#include <numeric>

#include "kernels/kernel_testing.h"

namespace shiftron::kernel_testing {
namespace {

void record(const std::string& name, double value) {
  ::testing::Test::RecordProperty(name, fmt::format("{}", value));
}

using Rows = std::vector<std::vector<double>>;  // [tokens][channels]

// Elements in (−1, 1).
Rows random_tokens(const std::string& name, size_t count, size_t channels) {
  const Philox random(1, name);
  Rows rows(count, std::vector<double>(channels));
  for (size_t i = 0; i < count * channels; ++i) rows[i / channels][i % channels] = 2 * random.uniform(i) - 1;
  return rows;
}

double product_of(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (size_t i = 0; i < b.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

// Σ softmax(scores)_s values_s.
std::vector<double> softmax_sum(std::vector<double> scores, const Rows& values) {
  const double largest = *std::ranges::max_element(scores);
  for (double& score : scores) score = std::exp(score - largest);
  const double total = std::accumulate(scores.begin(), scores.end(), 0.0);
  std::vector<double> sum(values[0].size());
  for (size_t s = 0; s < scores.size(); ++s) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += scores[s] / total * values[s][i];
  }
  return sum;
}

// The paper's Definition 1: the sum over tokens s = 2 … L − 1 of what `key_of(s)` scores for the last token.
template <typename KeyOf>
std::vector<double> induction_sum(const Rows& x, double sigma, double m, const KeyOf& key_of) {
  const size_t last = x.size();
  std::vector<double> scores;
  for (size_t s = 2; s < last; ++s) {
    scores.push_back(product_of(x[last - 1], key_of(s)) / sigma - m * static_cast<double>(last - s));
  }
  return softmax_sum(scores, Rows(x.begin() + 1, x.end() - 1));
}

std::vector<double> induction_head(const Rows& x, double sigma, double m) {
  return induction_sum(x, sigma, m, [&](size_t s) { return x[s - 2]; });
}

// One head of KV shifting attention by the kernels of the model. alpha, beta: (current, previous token), as in the
// paper.
struct ShiftedHead {
  std::vector<double> alpha, beta;
  Rows mixed_keys{};

  // What each row attends to; all three have the same head_dim.
  Rows attend(const Rows& q, const Rows& k, const Rows& v) {
    const auto rows = static_cast<int64_t>(q.size()), head_dim = static_cast<int64_t>(q[0].size());
    const Shape shape = {rows, 1, head_dim};
    Device device;
    const Owned table = zeros({2, 1, head_dim / 2}), positions = integers(std::vector<int64_t>(q.size(), 0));
    const Owned start = integers(std::vector<int64_t>(q.size(), 0));
    rope_table(device.stream, 100, table);
    const Owned key_taps(DType::float64, {1, 2}, {alpha[1], alpha[0]});
    const Owned value_taps(DType::float64, {1, 2}, {beta[1], beta[0]});
    const Owned query(DType::float64, shape, flat(q)), key(DType::float64, shape, flat(k)),
        value(DType::float64, shape, flat(v)), key_out(DType::float64, shape), value_out(DType::float64, shape),
        out(DType::float64, shape), log_sum_exp(DType::float64, {1, rows});
    // Position 0 everywhere: a rotation by nothing, as ALiBi knows none.
    shift_rope_forward(device.stream, {{key, {key_taps, table, positions, start, {}}, key_out},
                                       {value, {value_taps, {}, positions, start, {}}, value_out}});
    const AttentionShape attention{rows};
    const Owned scratch(DType::float64, attention_scratch(device.stream, query, key_out, attention));
    attention_forward(device.stream, query, key_out, value_out, start, attention, out, log_sum_exp, scratch);
    mixed_keys = rows_of(key_out, q.size());
    return rows_of(out, q.size());
  }

 private:
  static std::vector<double> flat(const Rows& rows) {
    std::vector<double> values;
    for (const auto& row : rows) values.insert(values.end(), row.begin(), row.end());
    return values;
  }
  static Rows rows_of(const Owned& tensor, size_t count) {
    const std::vector<double> values = tensor.values();
    Rows rows;
    const size_t width = values.size() / count;
    for (size_t i = 0; i < values.size(); i += width) {
      rows.emplace_back(values.begin() + static_cast<std::ptrdiff_t>(i),
                        values.begin() + static_cast<std::ptrdiff_t>(i + width));
    }
    return rows;
  }
};

constexpr size_t kChannels = 15;  // d; a head has one more
constexpr std::initializer_list<size_t> kLengths = {3, 10, 40, 200};

// The two layers of Theorem 1's proof: the first hands every token the ones strictly before it, in shares that fall by
// e^−p from one to the next.
std::vector<double> two_layers(const Rows& x, double sigma, double m, double p) {
  return induction_sum(x, sigma, m, [&](size_t s) {
    std::vector<double> scores;
    for (size_t tau = 1; tau < s; ++tau) scores.push_back(-p * static_cast<double>(s - 1 - tau));
    return softmax_sum(scores, Rows(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(s - 1)));
  });
}

double error_of_two_layers(size_t length, double sigma, double p) {
  const Rows x = random_tokens("theorem 1", length, kChannels);
  return largest_difference(two_layers(x, sigma, 0.01, p), induction_head(x, sigma, 0.01));
}

TEST(Theorems, Theorem1TwoLayersComeWithinItsBound) {
  double largest = 0;
  for (const size_t length : kLengths) {
    for (const double sigma : {1.0, 0.25}) {
      for (int p = 1; p <= 30; ++p) {
        const double bound = 4 * (kChannels / sigma) * std::exp(-p) / (1 - std::exp(-p));
        const double error = error_of_two_layers(length, sigma, p);
        EXPECT_LE(error, bound) << length << " tokens, p " << p << ", sigma " << sigma;
        largest = std::max(largest, error / bound);
      }
    }
  }
  record("theorem1.error_over_bound", largest);
}

TEST(Theorems, Theorem1ErrorFallsAsTheBoundDoes) {
  double largest = 0;
  for (const size_t length : {10, 40, 200}) {
    for (const double p : {4.0, 6.0, 8.0}) {
      const double ratio = error_of_two_layers(length, 1, p) / error_of_two_layers(length, 1, 2 * p);
      EXPECT_NEAR(ratio / std::exp(p), 1, 0.02) << length << " tokens, p " << p;
      largest = std::max(largest, std::abs(ratio / std::exp(p) - 1));
    }
  }
  record("theorem1.deviation_of_ratio", largest);
}

// Theorem 2's head: α = (0, 1/σ), where the kernel divides by √head_dim; β = (1, 0). ALiBi, −m(L − s), is +m·s under
// softmax: token s holds s in one more channel of its key, of which the shift makes s − 1, and every query holds m σ.
Rows theorem_2(const Rows& x, double sigma, double m, ShiftedHead& head) {
  Rows q = x, k = x, v = x;
  for (size_t s = 1; s <= x.size(); ++s) {
    q[s - 1].push_back(m * sigma);
    k[s - 1].push_back(static_cast<double>(s));
    v[s - 1].push_back(0);
  }
  head.alpha = {0, std::sqrt(static_cast<double>(kChannels + 1)) / sigma};
  head.beta = {1, 0};
  return head.attend(q, k, v);
}

// A causal head also sees token 1, whose key is empty, and the last token, whose key is the one before it.
TEST(Theorems, Theorem2IsTheInductionHeadWithTwoMoreTerms) {
  double predicted = 0, full = 0;
  for (const size_t length : kLengths) {
    for (const auto& [sigma, m] : {std::pair(1.0, 0.01), std::pair(0.25, 0.1)}) {
      const Rows x = random_tokens("theorem 2", length, kChannels);
      std::vector<double> scores = {-m * static_cast<double>(length - 1)};
      for (size_t s = 2; s <= length; ++s) {
        scores.push_back(product_of(x[length - 1], x[s - 2]) / sigma - m * static_cast<double>(length - s));
      }
      const std::vector<double> expected = softmax_sum(scores, x);
      ShiftedHead head;
      const std::vector<double> found = theorem_2(x, sigma, m, head).back();
      const double to_expected = largest_difference(found, expected);
      const double to_head = largest_difference(found, induction_head(x, sigma, m));
      EXPECT_LE(to_expected, 1e-13) << length << " tokens, sigma " << sigma;
      EXPECT_GT(to_head, length == 3 ? 0.1 : 1e-9) << length << " tokens, sigma " << sigma << ": the two terms count";
      predicted = std::max(predicted, to_expected);
      full = std::max(full, to_head);
    }
  }
  record("theorem2.difference_with_two_terms", predicted);
  record("theorem2.full_difference", full);
}

// Without these terms it is the induction head.
TEST(Theorems, Theorem2RestrictedSumIsTheInductionHead) {
  double largest = 0;
  for (const size_t length : kLengths) {
    for (const auto& [sigma, m] : {std::pair(1.0, 0.01), std::pair(0.25, 0.1)}) {
      const Rows x = random_tokens("theorem 2", length, kChannels);
      ShiftedHead head;
      theorem_2(x, sigma, m, head);
      std::vector<double> query = x.back();
      query.push_back(m * sigma);
      std::vector<double> scores;
      for (size_t s = 2; s < length; ++s) {
        scores.push_back(product_of(query, head.mixed_keys[s - 1]) / std::sqrt(static_cast<double>(kChannels + 1)));
      }
      const std::vector<double> found = softmax_sum(scores, Rows(x.begin() + 1, x.end() - 1));
      const double difference = largest_difference(found, induction_head(x, sigma, m));
      EXPECT_LE(difference, 1e-13) << length << " tokens, sigma " << sigma;
      largest = std::max(largest, difference);
    }
  }
  record("theorem2.restricted_difference", largest);
}

// Theorem 3's setting as d → ∞, where embeddings are orthonormal: T different tokens, then token i once more.
struct Repeat {
  size_t vocab, i;  // T, i; 1 < i < T − 1
  double alpha1, alpha2, beta1, beta2;

  // Table 5 with O(T) counted: T − 2 other keys score 0. Its rows i − 1 and T say e^α2 where the sums above it make
  // e^α1 (the paper's slip), as does equation 12.
  std::vector<double> logits() const {
    const double sum = 2 * std::exp(alpha1) + std::exp(alpha2) + static_cast<double>(vocab) - 2;
    const double a1 = std::exp(alpha1) / sum, a2 = std::exp(alpha2) / sum;
    std::vector<double> of_tokens(vocab, (beta1 + beta2) / sum);
    of_tokens[i - 2] = of_tokens[vocab - 1] = beta1 / sum + beta2 * a1;
    of_tokens[i - 1] = 2 * beta1 * a1 + beta2 * a2;
    of_tokens[i] = beta1 * a2 + beta2 / sum;
    return of_tokens;
  }
  // −log softmax of token i + 1.
  double loss() const {
    const std::vector<double> of_tokens = logits();
    double total = 0;
    for (const double logit : of_tokens) total += std::exp(logit);
    return std::log(total) - of_tokens[i];
  }
};

TEST(Theorems, Theorem3LogitsAndLossAreThePapersTable5) {
  double of_logits = 0, of_loss = 0;
  for (const Repeat& of :
       {Repeat{8, 3, 0.3, 0.7, 0.6, 0.4}, Repeat{8, 6, 0, 1, 1, 0}, Repeat{32, 2, -0.8, 2.5, 1.4, -0.6},
        Repeat{32, 17, 1.2, -0.4, -0.5, 0.9}, Repeat{256, 100, -1, -2, -0.3, -0.7}}) {
    SCOPED_TRACE(::testing::Message() << "T " << of.vocab << ", i " << of.i);
    Rows x(of.vocab + 1, std::vector<double>(of.vocab));
    for (size_t t = 0; t < of.vocab; ++t) x[t][t] = 1;
    x[of.vocab] = x[of.i - 1];
    Rows q = x;
    for (auto& row : q) {
      for (double& value : row) value *= std::sqrt(static_cast<double>(of.vocab));  // which the kernel divides by
    }
    ShiftedHead head{.alpha = {of.alpha1, of.alpha2}, .beta = {of.beta1, of.beta2}};
    const std::vector<double> found = head.attend(q, x, x).back();  // W_o and the embeddings are 1
    const double difference = largest_difference(found, of.logits());
    EXPECT_LE(difference, 1e-14);
    of_logits = std::max(of_logits, difference);

    Device device;
    const auto vocab = static_cast<int64_t>(of.vocab);
    const Owned logits(DType::float64, {1, vocab}, found), losses(DType::float64, {1}), correct(DType::float64, {1});
    cross_entropy(device.stream, InOut(logits), integers({static_cast<int64_t>(of.i)}), 1, losses, correct);
    EXPECT_NEAR(losses[0], of.loss(), 1e-14);
    of_loss = std::max(of_loss, std::abs(losses[0] - of.loss()));
  }
  record("theorem3.logits_difference", of_logits);
  record("theorem3.loss_difference", of_loss);
}

// Figure 2: where taps sum to 1, the loss is least at α1 = 0, β1 = 1.
TEST(Theorems, Figure2LossIsLeastAtTheInductionHead) {
  constexpr int kSteps = 100;
  for (const size_t vocab : {8, 32, 256}) {
    const auto loss = [&](int alpha, int beta) {
      const double alpha1 = alpha / double{kSteps}, beta1 = beta / double{kSteps};
      return Repeat{vocab, 3, alpha1, 1 - alpha1, beta1, 1 - beta1}.loss();
    };
    const double least = loss(0, kSteps);
    double margin = std::numeric_limits<double>::infinity();
    for (int alpha = 0; alpha <= kSteps; ++alpha) {
      for (int beta = 0; beta <= kSteps; ++beta) {
        if (alpha == 0 && beta == kSteps) continue;
        ASSERT_GT(loss(alpha, beta), least) << "T " << vocab << ", alpha1 " << alpha << " %, beta1 " << beta << " %";
        margin = std::min(margin, loss(alpha, beta) - least);
      }
    }
    record(fmt::format("figure2.margin_{}", vocab), margin);
  }
}

}  // namespace
}  // namespace shiftron::kernel_testing

// The model as plain loops over whole tensors in float64, after the formulas of kernels.h and ARCHITECTURE.md.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "model/config.h"

namespace shiftron::testing {

using Values = std::vector<double>;             // row-major
using Weights = std::map<std::string, Values>;  // whole tensors by name

// What every row of a microbatch may see; arrays of all rows.
struct Rows {
  size_t sequence_length = 0;
  std::vector<int> attention_start{}, shift_start{}, positions{};
  size_t count() const { return positions.size(); }
};

// Samples of documents of these lengths; the shift sees the rows that attention sees, or the whole sample.
inline Rows make_rows(const std::vector<std::vector<int>>& samples, bool shift_crosses = false) {
  Rows rows;
  for (const auto& documents : samples) {
    const auto sample = static_cast<int>(rows.count());
    for (const int length : documents) {
      const auto document = static_cast<int>(rows.count());
      for (int position = 0; position < length; ++position) {
        rows.attention_start.push_back(document);
        rows.shift_start.push_back(shift_crosses ? sample : document);
        rows.positions.push_back(position);
      }
    }
    rows.sequence_length = rows.count() - static_cast<size_t>(sample);
  }
  return rows;
}

inline Values sum(const Values& a, const Values& b) {
  Values y(a);
  for (size_t i = 0; i < y.size(); ++i) y[i] += b[i];
  return y;
}
inline double dot(const Values& a, const Values& b) {
  double total = 0;
  for (size_t i = 0; i < a.size(); ++i) total += a[i] * b[i];
  return total;
}

// y = x wᵀ, w [out, in].
inline Values plain_product(const Values& x, const Values& w, size_t in) {
  const size_t rows = x.size() / in, out = w.size() / in;
  Values y(rows * out);
  for (size_t t = 0; t < rows; ++t) {
    for (size_t o = 0; o < out; ++o) {
      for (size_t i = 0; i < in; ++i) y[t * out + o] += x[t * in + i] * w[o * in + i];
    }
  }
  return y;
}

inline Values plain_norm(const Values& x, const Values& w, double epsilon) {
  const size_t hidden = w.size();
  Values y(x);
  for (size_t row = 0; row < x.size(); row += hidden) {
    double squares = 0;
    for (size_t i = 0; i < hidden; ++i) squares += x[row + i] * x[row + i];
    const double r = 1 / std::sqrt(squares / static_cast<double>(hidden) + epsilon);
    for (size_t i = 0; i < hidden; ++i) y[row + i] = x[row + i] * r * w[i];
  }
  return y;
}

// [heads, count], oldest first, from what is learned.
inline Values plain_taps(const Values& raw, ShiftForm form) {
  Values taps;
  for (const double value : raw) {
    const double share = 1 / (1 + std::exp(-value));
    if (form == ShiftForm::gate) taps.push_back(1 - share);
    taps.push_back(form == ShiftForm::gate ? share : form == ShiftForm::clamp ? std::clamp(value, 0.0, 1.0) : value);
  }
  return taps;
}

// z_t = Σ_j taps[h, j] x_{t − (count − 1 − j)} over the rows that t may see.   x [rows, heads, head_dim]
inline Values plain_shift(const Values& x, const Values& taps, size_t heads, const Rows& rows) {
  const size_t width = x.size() / rows.count(), head_dim = width / heads, count = taps.size() / heads;
  Values z(x.size());
  for (size_t t = 0; t < rows.count(); ++t) {
    for (size_t j = 0; j < count; ++j) {
      const size_t back = count - 1 - j;
      if (static_cast<int>(t) - static_cast<int>(back) < rows.shift_start[t]) continue;
      for (size_t i = 0; i < width; ++i) {
        z[t * width + i] += taps[i / head_dim * count + j] * x[(t - back) * width + i];
      }
    }
  }
  return z;
}

// Element i of the first half of a head and of the second turn by position · base^(−2i/head_dim).
inline Values plain_rotation(const Values& z, size_t head_dim, double base, const Rows& rows) {
  const size_t width = z.size() / rows.count(), half = head_dim / 2;
  Values y(z.size());
  for (size_t at = 0; at < z.size(); at += head_dim) {
    for (size_t i = 0; i < half; ++i) {
      const double turns = std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
      const double angle = rows.positions[at / width] * turns;
      y[at + i] = z[at + i] * std::cos(angle) - z[at + half + i] * std::sin(angle);
      y[at + half + i] = z[at + i] * std::sin(angle) + z[at + half + i] * std::cos(angle);
    }
  }
  return y;
}

// out_t = Σ_s softmax_s(q_t·k_s / √head_dim) v_s;   q [rows, heads, head_dim], k, v [rows, KV heads, head_dim]
inline Values plain_softmax_sum(const Values& q, const Values& k, const Values& v, size_t head_dim, const Rows& rows) {
  const size_t width = q.size() / rows.count(), kv_width = k.size() / rows.count();
  Values out(q.size());
  for (size_t t = 0; t < rows.count(); ++t) {
    for (size_t at = 0; at < width; at += head_dim) {
      const size_t kv_at = at / head_dim / (width / kv_width) * head_dim;
      double total = 0;
      for (auto s = static_cast<size_t>(rows.attention_start[t]); s <= t; ++s) {
        double score = 0;
        for (size_t i = 0; i < head_dim; ++i) score += q[t * width + at + i] * k[s * kv_width + kv_at + i];
        const double share = std::exp(score / std::sqrt(static_cast<double>(head_dim)));
        total += share;
        for (size_t i = 0; i < head_dim; ++i) out[t * width + at + i] += share * v[s * kv_width + kv_at + i];
      }
      for (size_t i = 0; i < head_dim; ++i) out[t * width + at + i] /= total;
    }
  }
  return out;
}

// A stream (query, key or value) of a layer after projection, shift and, where it applies, rotation.
inline Values plain_stream(const Weights& weights, const std::string& prefix, const std::string& stream,
                           const ModelConfig& config, const Rows& rows, const Values& x) {
  Values z = plain_product(x, weights.at(prefix + "." + stream + ".weight"), static_cast<size_t>(config.hidden));
  const size_t head_dim = static_cast<size_t>(config.head_dim), heads = z.size() / rows.count() / head_dim;
  const auto raw = weights.find(prefix + ".shift_" + stream);
  if (raw != weights.end()) z = plain_shift(z, plain_taps(raw->second, config.shift.form), heads, rows);
  return stream == "value" ? z : plain_rotation(z, head_dim, config.rope_base, rows);
}

inline Values plain_attention(const Weights& weights, const std::string& prefix, const ModelConfig& config,
                              const Rows& rows, const Values& x) {
  const auto stream = [&](const char* name) { return plain_stream(weights, prefix, name, config, rows, x); };
  const auto head_dim = static_cast<size_t>(config.head_dim);
  return plain_product(plain_softmax_sum(stream("query"), stream("key"), stream("value"), head_dim, rows),
                       weights.at(prefix + ".out.weight"), static_cast<size_t>(config.heads) * head_dim);
}

// down(silu(gate x) · up x)
inline Values plain_mlp(const Weights& weights, const std::string& prefix, const ModelConfig& config, const Values& x) {
  const auto hidden = static_cast<size_t>(config.hidden);
  Values y = plain_product(x, weights.at(prefix + ".gate.weight"), hidden);
  const Values up = plain_product(x, weights.at(prefix + ".up.weight"), hidden);
  for (size_t i = 0; i < y.size(); ++i) y[i] *= up[i] / (1 + std::exp(-y[i]));
  return plain_product(y, weights.at(prefix + ".down.weight"), static_cast<size_t>(config.ffn));
}

inline Values plain_layer(const Weights& weights, const std::string& prefix, const ModelConfig& config,
                          const Rows& rows, const Values& x) {
  const auto norm = [&](const char* name, const Values& of) {
    return plain_norm(of, weights.at(prefix + name), config.norm_epsilon);
  };
  const Values middle =
      sum(x, plain_attention(weights, prefix + ".attention", config, rows, norm(".attention_norm.weight", x)));
  return sum(middle, plain_mlp(weights, prefix + ".mlp", config, norm(".mlp_norm.weight", middle)));
}

// [rows, vocab]
inline Values plain_logits(const Weights& weights, const ModelConfig& config, const Rows& rows,
                           const std::vector<int>& ids) {
  const Values& table = weights.at("embedding.weight");
  Values x;
  for (const int id : ids)
    x.insert(x.end(), table.begin() + id * config.hidden, table.begin() + (id + 1) * config.hidden);
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    x = plain_layer(weights, "layers." + std::to_string(layer), config, rows, x);
  }
  return plain_product(plain_norm(x, weights.at("final_norm.weight"), config.norm_epsilon),
                       config.tie_embeddings ? table : weights.at("head.weight"), static_cast<size_t>(config.hidden));
}

// −log softmax at the target, 0 where it is −1.   [rows]
inline Values plain_losses(const Values& logits, const std::vector<int>& targets) {
  const size_t vocab = logits.size() / targets.size();
  Values losses(targets.size());
  for (size_t t = 0; t < targets.size(); ++t) {
    if (targets[t] < 0) continue;
    double total = 0;
    for (size_t i = 0; i < vocab; ++i) total += std::exp(logits[t * vocab + i]);
    losses[t] = std::log(total) - logits[t * vocab + static_cast<size_t>(targets[t])];
  }
  return losses;
}

}  // namespace shiftron::testing

// Llama, tensor by tensor as they lie in the files; rows of weights are read once and used for all tokens.
#include "evaluate/plain_forward.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "checkpoint/safetensors.h"
#include "core/check.h"
#include "core/file.h"

namespace shiftron {
namespace {

constexpr size_t kLanes = 16;                   // tokens that one pass over weights serves
constexpr uint64_t kPiece = uint64_t{1} << 18;  // elements read at once, or one row
using Values = std::vector<double>;             // [channels][tokens]

class PlainModel {
 public:
  PlainModel(const std::string& directory, size_t tokens)
      : files_(directory), config_(nlohmann::json::parse(read_file(directory + "/config.json"))), tokens_(tokens) {}

  std::vector<Values> logits(const std::vector<int32_t>& ids, const std::function<void()>& layer_done) {
    const size_t layers = size("num_hidden_layers"), vocab = size("vocab_size");
    Values x = embed(ids);
    for (size_t layer = 0; layer < layers; ++layer) {
      prefix_ = "model.layers." + std::to_string(layer) + ".";
      add(x, attention(norm(x, prefix_ + "input_layernorm.weight")));
      add(x, mlp(norm(x, prefix_ + "post_attention_layernorm.weight")));
      if (layer_done) layer_done();
    }
    const bool tied = config_.value("tie_word_embeddings", false);
    const Values all = product(tied ? "model.embed_tokens.weight" : "lm_head.weight", norm(x, "model.norm.weight"));
    if (layer_done) layer_done();
    CHECK(all.size() == vocab * tokens_, all.size(), " logits");
    std::vector<Values> of_tokens(tokens_, Values(vocab));
    for (size_t i = 0; i < vocab; ++i) {
      for (size_t t = 0; t < tokens_; ++t) of_tokens[t][i] = all[i * tokens_ + t];
    }
    return of_tokens;
  }

 private:
  size_t size(const char* key) const { return config_.at(key).get<size_t>(); }
  const SafetensorsDirectory::Entry& tensor(const std::string& name) const {
    const auto* entry = files_.find(name);
    if (entry == nullptr) throw_crash(files_.directory(), ": tensor ", name, " is missing");
    return *entry;
  }
  Values whole(const std::string& name) const {
    const auto& entry = tensor(name);
    Values values(entry.tensor->count());
    entry.file->read(*entry.tensor, 0, values.size(), values.data());
    return values;
  }

  Values embed(const std::vector<int32_t>& ids) const {
    const auto& entry = tensor("model.embed_tokens.weight");
    const size_t hidden = size("hidden_size");
    Values x(hidden * tokens_), row(hidden);
    for (size_t t = 0; t < tokens_; ++t) {
      entry.file->read(*entry.tensor, static_cast<uint64_t>(ids[t]) * hidden, hidden, row.data());
      for (size_t i = 0; i < hidden; ++i) x[i * tokens_ + t] = row[i];
    }
    return x;
  }

  Values norm(const Values& x, const std::string& name) const {
    const Values weight = whole(name);
    CHECK(weight.size() * tokens_ == x.size(), name, " has ", weight.size(), " elements");
    const double epsilon = config_.at("rms_norm_eps").get<double>();
    Values y(x.size());
    for (size_t t = 0; t < tokens_; ++t) {
      double squares = 0;
      for (size_t i = 0; i < weight.size(); ++i) squares += x[i * tokens_ + t] * x[i * tokens_ + t];
      const double scale = 1 / std::sqrt(squares / static_cast<double>(weight.size()) + epsilon);
      for (size_t i = 0; i < weight.size(); ++i) y[i * tokens_ + t] = x[i * tokens_ + t] * scale * weight[i];
    }
    return y;
  }

  // W x, W [rows, columns] as it lies.
  Values product(const std::string& name, const Values& x) const {
    const auto& entry = tensor(name);
    CHECK(entry.tensor->shape.size() == 2 && entry.tensor->shape[1] * tokens_ == x.size(), name, " is ",
          entry.tensor->shape_text());
    const size_t rows = entry.tensor->shape[0], columns = entry.tensor->shape[1];
    const size_t most = std::max<size_t>(1, kPiece / columns);
    Values y(rows * tokens_), weights(std::min(rows, most) * columns);
    for (size_t begin = 0; begin < rows; begin += most) {
      const size_t now = std::min(most, rows - begin);
      entry.file->read(*entry.tensor, begin * columns, now * columns, weights.data());
      for (size_t first = 0; first < tokens_; first += kLanes) {
        const size_t lanes = std::min(kLanes, tokens_ - first);
        for (size_t i = 0; i < now; ++i) {
          double sums[kLanes] = {};
          const double* row = weights.data() + i * columns;
          for (size_t j = 0; j < columns; ++j) {
            const double* from = x.data() + j * tokens_ + first;
            for (size_t t = 0; t < lanes; ++t) sums[t] += row[j] * from[t];
          }
          std::copy_n(sums, lanes, y.data() + (begin + i) * tokens_ + first);
        }
      }
    }
    return y;
  }

  static void add(Values& x, const Values& y) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }

  // Channel `channel` of `x` behind its taps, oldest first; nothing stands before the first token.
  void mix(Values& x, size_t channel, const double* taps, size_t count) const {
    double* row = x.data() + channel * tokens_;
    for (size_t t = tokens_; t-- > 0;) {  // from the back: what is read still is what it was
      double sum = 0;
      for (size_t lag = 0; lag < count && lag <= t; ++lag) sum += taps[count - 1 - lag] * row[t - lag];
      row[t] = sum;
    }
  }

  void shift(Values& x, const char* name, size_t heads, size_t head_dim) const {
    const auto* entry = files_.find(prefix_ + "self_attn." + name);
    if (entry == nullptr) return;
    const Values taps = whole(prefix_ + "self_attn." + name);
    const size_t count = taps.size() / heads;
    CHECK(count * heads == taps.size(), name, " is ", entry->tensor->shape_text());
    for (size_t channel = 0; channel < heads * head_dim; ++channel)
      mix(x, channel, taps.data() + channel / head_dim * count, count);
  }

  void canon(Values& q, Values& k, Values& v) const {
    const auto* entry = files_.find(prefix_ + "self_attn.canonB.weight");
    if (entry == nullptr) return;
    Values taps = whole(prefix_ + "self_attn.canonB.weight");
    const size_t count = entry->tensor->shape.back();
    size_t channel = 0;
    for (Values* stream : {&q, &k, &v}) {
      for (size_t i = 0; i < stream->size() / tokens_; ++i, ++channel) {
        if (config_.at("canon_residual").get<bool>()) taps[(channel + 1) * count - 1] += 1;
        mix(*stream, i, taps.data() + channel * count, count);
      }
    }
  }

  void rotate(Values& x, size_t heads, size_t head_dim) const {
    const double base = config_.at("rope_theta").get<double>();
    for (size_t head = 0; head < heads; ++head) {
      for (size_t i = 0; i < head_dim / 2; ++i) {
        const double frequency = 1 / std::pow(base, 2 * static_cast<double>(i) / static_cast<double>(head_dim));
        double* low = x.data() + (head * head_dim + i) * tokens_;
        double* high = low + head_dim / 2 * tokens_;
        for (size_t t = 0; t < tokens_; ++t) {
          const double angle = static_cast<double>(t) * frequency, a = low[t], b = high[t];
          low[t] = a * std::cos(angle) - b * std::sin(angle);
          high[t] = b * std::cos(angle) + a * std::sin(angle);
        }
      }
    }
  }

  Values attention(const Values& x) const {
    const size_t heads = size("num_attention_heads"), kv_heads = size("num_key_value_heads"),
                 head_dim = size("head_dim");
    Values q = product(prefix_ + "self_attn.q_proj.weight", x);
    Values k = product(prefix_ + "self_attn.k_proj.weight", x);
    Values v = product(prefix_ + "self_attn.v_proj.weight", x);
    shift(q, "conv_q", heads, head_dim);
    shift(k, "conv_k", kv_heads, head_dim);
    shift(v, "conv_v", kv_heads, head_dim);
    canon(q, k, v);
    rotate(q, heads, head_dim);
    rotate(k, kv_heads, head_dim);
    Values y(q.size()), weights(tokens_);
    for (size_t head = 0; head < heads; ++head) {
      const size_t own = head * head_dim * tokens_, kv = head / (heads / kv_heads) * head_dim * tokens_;
      for (size_t t = 0; t < tokens_; ++t) {
        double total = 0, largest = -INFINITY;
        for (size_t s = 0; s <= t; ++s) {
          weights[s] = 0;
          for (size_t i = 0; i < head_dim; ++i) weights[s] += q[own + i * tokens_ + t] * k[kv + i * tokens_ + s];
          weights[s] /= std::sqrt(static_cast<double>(head_dim));
          largest = std::max(largest, weights[s]);
        }
        for (size_t s = 0; s <= t; ++s) total += weights[s] = std::exp(weights[s] - largest);
        for (size_t i = 0; i < head_dim; ++i) {
          double sum = 0;
          for (size_t s = 0; s <= t; ++s) sum += weights[s] * v[kv + i * tokens_ + s];
          y[own + i * tokens_ + t] = sum / total;
        }
      }
    }
    return product(prefix_ + "self_attn.o_proj.weight", y);
  }

  Values mlp(const Values& x) const {
    Values gate = product(prefix_ + "mlp.gate_proj.weight", x);
    const Values up = product(prefix_ + "mlp.up_proj.weight", x);
    for (size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
    return product(prefix_ + "mlp.down_proj.weight", gate);
  }

  SafetensorsDirectory files_;
  nlohmann::json config_;
  size_t tokens_;
  std::string prefix_;  // of the layer that is computed
};

}  // namespace

std::vector<std::vector<double>> plain_logits(const std::string& directory, const std::vector<int32_t>& ids,
                                              const std::function<void()>& layer_done) {
  return PlainModel(directory, ids.size()).logits(ids, layer_done);
}

}  // namespace shiftron

// Llama, tensor by tensor in the files' layout. Rows of weights are read once and used for all tokens.
#include "interchange/plain_forward.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "core/check.h"
#include "core/file.h"
#include "interchange/gguf.h"
#include "interchange/safetensors.h"

namespace shiftron {
namespace {

constexpr size_t kLanes = 16;                          // tokens computed in one pass over weights
constexpr uint64_t kMostElements = uint64_t{1} << 18;  // elements read at once, or one row
using Values = std::vector<double>;                    // [channels][tokens]

// The files of one format. Tensors have Hugging Face's names, numbers the keys of its config.json.
class PlainFiles {
 public:
  virtual ~PlainFiles() = default;
  struct Found {
    std::vector<uint64_t> shape;
    std::function<void(uint64_t first, uint64_t count, double* to)> read;
    uint64_t count() const { return std::accumulate(shape.begin(), shape.end(), uint64_t{1}, std::multiplies<>()); }
    std::string text() const { return SafetensorsTensor{.name = {}, .shape = shape}.shape_text(); }
  };
  virtual std::optional<Found> find(const std::string& name) const = 0;
  virtual double number(const std::string& key) const = 0;  // true is 1
  virtual bool is_tied() const = 0;
  // The two channels of a head that are rotated as pair number `pair`.
  virtual std::array<size_t, 2> rotated(size_t pair, size_t head_dim) const = 0;
};

class HuggingFaceFiles : public PlainFiles {
 public:
  explicit HuggingFaceFiles(const std::string& directory)
      : files_(directory), config_(nlohmann::json::parse(read_file(directory + "/config.json"))) {}
  std::optional<Found> find(const std::string& name) const override {
    const auto* entry = files_.find(name);
    if (entry == nullptr) return {};
    return Found{.shape = entry->tensor->shape, .read = [entry](uint64_t first, uint64_t count, double* to) {
                   entry->file->read(*entry->tensor, first, count, to);
                 }};
  }
  double number(const std::string& key) const override {
    const nlohmann::json& value = config_.at(key);
    return value.is_boolean() ? static_cast<double>(value.get<bool>()) : value.get<double>();
  }
  bool is_tied() const override { return config_.value("tie_word_embeddings", false); }
  std::array<size_t, 2> rotated(size_t pair, size_t head_dim) const override { return {pair, pair + head_dim / 2}; }

 private:
  SafetensorsDirectory files_;
  nlohmann::json config_;
};

// llama.cpp's architecture "llama": neighbouring channels are rotated.
class GgufFiles : public PlainFiles {
 public:
  explicit GgufFiles(const std::string& path) : file_(path) {}
  std::optional<Found> find(const std::string& name) const override {
    const auto tensor = std::ranges::find(file_.tensors(), their_name(name), &SafetensorsTensor::name);
    if (tensor == file_.tensors().end()) return {};
    return Found{.shape = tensor->shape, .read = [this, tensor](uint64_t first, uint64_t count, double* to) {
                   file_.read(*tensor, first, count, to);
                 }};
  }
  double number(const std::string& key) const override {
    static const std::map<std::string, const char*> kKeys = {{"num_hidden_layers", "block_count"},
                                                             {"hidden_size", "embedding_length"},
                                                             {"vocab_size", "vocab_size"},
                                                             {"num_attention_heads", "attention.head_count"},
                                                             {"num_key_value_heads", "attention.head_count_kv"},
                                                             {"head_dim", "attention.key_length"},
                                                             {"rms_norm_eps", "attention.layer_norm_rms_epsilon"},
                                                             {"rope_theta", "rope.freq_base"}};
    const GgufValue& value = file_.entries().at(std::string("llama.") + kKeys.at(key));
    const auto* whole = std::get_if<uint32_t>(&value);
    return whole != nullptr ? static_cast<double>(*whole) : static_cast<double>(std::get<float>(value));
  }
  bool is_tied() const override { return !find("lm_head.weight"); }
  std::array<size_t, 2> rotated(size_t pair, size_t) const override { return {2 * pair, 2 * pair + 1}; }

 private:
  static std::string their_name(std::string name) {
    static const std::pair<const char*, const char*> kParts[] = {{"model.layers.", "blk."},
                                                                 {"model.embed_tokens", "token_embd"},
                                                                 {"model.norm", "output_norm"},
                                                                 {"lm_head", "output"},
                                                                 {"post_attention_layernorm", "ffn_norm"},
                                                                 {"input_layernorm", "attn_norm"},
                                                                 {"self_attn.q_proj", "attn_q"},
                                                                 {"self_attn.k_proj", "attn_k"},
                                                                 {"self_attn.v_proj", "attn_v"},
                                                                 {"self_attn.o_proj", "attn_output"},
                                                                 {"mlp.gate_proj", "ffn_gate"},
                                                                 {"mlp.up_proj", "ffn_up"},
                                                                 {"mlp.down_proj", "ffn_down"}};
    for (const auto& [from, to] : kParts) {
      if (const size_t at = name.find(from); at != name.npos) name.replace(at, std::strlen(from), to);
    }
    return name;
  }
  GgufFile file_;
};

class PlainModel {
 public:
  PlainModel(const PlainFiles& files, size_t tokens) : files_(files), tokens_(tokens) {}

  std::vector<Values> logits(const std::vector<int32_t>& ids, const std::function<void()>& layer_done) {
    const size_t layers = size("num_hidden_layers"), vocab = size("vocab_size");
    Values x = embed(ids);
    for (size_t layer = 0; layer < layers; ++layer) {
      prefix_ = "model.layers." + std::to_string(layer) + ".";
      add(x, attention(norm(x, prefix_ + "input_layernorm.weight")));
      add(x, mlp(norm(x, prefix_ + "post_attention_layernorm.weight")));
      if (layer_done) layer_done();
    }
    const Values all =
        product(files_.is_tied() ? "model.embed_tokens.weight" : "lm_head.weight", norm(x, "model.norm.weight"));
    if (layer_done) layer_done();
    CHECK(all.size() == vocab * tokens_, all.size(), " logits");
    std::vector<Values> of_tokens(tokens_, Values(vocab));
    for (size_t i = 0; i < vocab; ++i) {
      for (size_t t = 0; t < tokens_; ++t) of_tokens[t][i] = all[i * tokens_ + t];
    }
    return of_tokens;
  }

 private:
  size_t size(const char* key) const { return static_cast<size_t>(files_.number(key)); }
  PlainFiles::Found tensor(const std::string& name) const {
    auto found = files_.find(name);
    if (!found) throw_crash("the export: tensor ", name, " is missing");
    return *std::move(found);
  }
  Values whole(const std::string& name) const {
    const auto entry = tensor(name);
    Values values(entry.count());
    entry.read(0, values.size(), values.data());
    return values;
  }

  Values embed(const std::vector<int32_t>& ids) const {
    const auto entry = tensor("model.embed_tokens.weight");
    const size_t hidden = size("hidden_size");
    Values x(hidden * tokens_), row(hidden);
    for (size_t t = 0; t < tokens_; ++t) {
      entry.read(static_cast<uint64_t>(ids[t]) * hidden, hidden, row.data());
      for (size_t i = 0; i < hidden; ++i) x[i * tokens_ + t] = row[i];
    }
    return x;
  }

  Values norm(const Values& x, const std::string& name) const {
    const Values weight = whole(name);
    CHECK(weight.size() * tokens_ == x.size(), name, " has ", weight.size(), " elements");
    const double epsilon = files_.number("rms_norm_eps");
    Values y(x.size());
    for (size_t t = 0; t < tokens_; ++t) {
      double squares = 0;
      for (size_t i = 0; i < weight.size(); ++i) squares += x[i * tokens_ + t] * x[i * tokens_ + t];
      const double scale = 1 / std::sqrt(squares / static_cast<double>(weight.size()) + epsilon);
      for (size_t i = 0; i < weight.size(); ++i) y[i * tokens_ + t] = x[i * tokens_ + t] * scale * weight[i];
    }
    return y;
  }

  // W x, with W [rows, columns] as stored.
  Values product(const std::string& name, const Values& x) const {
    const auto entry = tensor(name);
    CHECK(entry.shape.size() == 2 && entry.shape[1] * tokens_ == x.size(), name, " is ", entry.text());
    const size_t rows = entry.shape[0], columns = entry.shape[1];
    const size_t most = std::max<size_t>(1, kMostElements / columns);
    Values y(rows * tokens_), weights(std::min(rows, most) * columns);
    for (size_t begin = 0; begin < rows; begin += most) {
      const size_t now = std::min(most, rows - begin);
      entry.read(begin * columns, now * columns, weights.data());
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

  // Applies taps (oldest first) to channel `channel` of `x`; before the first token there are zeros.
  void mix(Values& x, size_t channel, const double* taps, size_t count) const {
    double* row = x.data() + channel * tokens_;
    for (size_t t = tokens_; t-- > 0;) {  // from the back, so that values are read before they change
      double sum = 0;
      for (size_t lag = 0; lag < count && lag <= t; ++lag) sum += taps[count - 1 - lag] * row[t - lag];
      row[t] = sum;
    }
  }

  void shift(Values& x, const char* name, size_t heads, size_t head_dim) const {
    const auto entry = files_.find(prefix_ + "self_attn." + name);
    if (!entry) return;
    const Values taps = whole(prefix_ + "self_attn." + name);
    const size_t count = taps.size() / heads;
    CHECK(count * heads == taps.size(), name, " is ", entry->text());
    for (size_t channel = 0; channel < heads * head_dim; ++channel)
      mix(x, channel, taps.data() + channel / head_dim * count, count);
  }

  void canon(Values& q, Values& k, Values& v) const {
    const auto entry = files_.find(prefix_ + "self_attn.canonB.weight");
    if (!entry) return;
    Values taps = whole(prefix_ + "self_attn.canonB.weight");
    const size_t count = entry->shape.back();
    size_t channel = 0;
    for (Values* stream : {&q, &k, &v}) {
      for (size_t i = 0; i < stream->size() / tokens_; ++i, ++channel) {
        if (files_.number("canon_residual") != 0) taps[(channel + 1) * count - 1] += 1;
        mix(*stream, i, taps.data() + channel * count, count);
      }
    }
  }

  void rotate(Values& x, size_t heads, size_t head_dim) const {
    const double base = files_.number("rope_theta");
    for (size_t head = 0; head < heads; ++head) {
      for (size_t i = 0; i < head_dim / 2; ++i) {
        const double frequency = 1 / std::pow(base, 2 * static_cast<double>(i) / static_cast<double>(head_dim));
        const auto [first, second] = files_.rotated(i, head_dim);
        double* low = x.data() + (head * head_dim + first) * tokens_;
        double* high = x.data() + (head * head_dim + second) * tokens_;
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

  const PlainFiles& files_;
  size_t tokens_;
  std::string prefix_;  // of the current layer
};

}  // namespace

std::vector<std::vector<double>> plain_logits(const std::string& path, const std::vector<int32_t>& ids,
                                              const std::function<void()>& layer_done) {
  std::unique_ptr<PlainFiles> files;
  if (std::filesystem::is_directory(path)) {
    files = std::make_unique<HuggingFaceFiles>(path);
  } else {
    files = std::make_unique<GgufFiles>(path);
  }
  return PlainModel(*files, ids.size()).logits(ids, layer_done);
}

}  // namespace shiftron

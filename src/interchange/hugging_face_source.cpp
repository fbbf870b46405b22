// Finds each logical tensor in the files; taps are small and read at once, everything else on demand.
#include "interchange/hugging_face_source.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "core/check.h"

namespace shiftron {
namespace {

constexpr int64_t kMostTaps = 4;
const char* const kStreams[] = {"query", "key", "value"};
constexpr char kPacked[] = "W_pack.weight";  // query, key and value, one after the other

std::vector<double> values_of(const SafetensorsDirectory::Entry& entry) {
  std::vector<double> values(static_cast<size_t>(entry.tensor->count()));
  entry.file->read(*entry.tensor, 0, values.size(), values.data());
  return values;
}

}  // namespace

struct HuggingFaceSource::Found {
  std::vector<double> taps{};  // [heads, count], oldest first; empty: none are stored
  int64_t count = 1;           // 1: the token itself

  // How many of them a head uses. `is_filled_up`: kernels have one width for all streams, so some may be padded in
  // front.
  int64_t needed(int64_t heads, bool is_filled_up) const {
    const auto all_are = [&](int64_t column, double value) {
      for (int64_t head = 0; head < heads; ++head) {
        if (taps[static_cast<size_t>(head * count + column)] != value) return false;
      }
      return true;
    };
    int64_t used = count;
    while (is_filled_up && used > 1 && all_are(count - used, 0)) --used;
    return used == 1 && !all_are(count - 1, 1) ? 2 : used;  // 2: one tap that is not 1, a factor
  }
};

HuggingFaceSource::HuggingFaceSource(const std::string& directory, const HuggingFaceImport& how)
    : SafetensorsSource(directory), norm_head_(how.norm_head) {
  const std::string config = directory + "/config.json";
  config_ = parse_hugging_face_config(read_foreign_config(config), config);
  read_generation_config(directory, config_);
  ModelConfig& model = config_.model;
  if (config_.norm_head && !how.norm_head) {
    throw_bad_input(directory,
                    ": this model divides every row of lm_head by its length when it computes logits; give "
                    "--norm-head, which does that once, at import");
  }
  if (model.layers > static_cast<int64_t>(files_.tensors().size())) {  // before anything is allocated for each layer
    throw_bad_input(directory, ": config.json says ", model.layers, " layers, but the files hold only ",
                    files_.tensors().size(), " tensors");
  }
  const bool is_tied = model.tie_embeddings;
  if (norm_head_) model.tie_embeddings = false;
  check_sizes();
  read_taps(how);
  for (const HuggingFaceName& name : hugging_face_names(model)) {
    add(name, name.stream < 0 ? weight_place(name) : Place{.values = taps_.at({name.layer, name.stream})});
  }
  if (is_tied) check_tied_head();
  finish({".rotary_emb.inv_freq"});  // which follows from rope_theta
}

// Checks sizes of config.json against the shapes of tensors, so that nothing larger than an existing tensor is
// allocated. A product of sizes that would overflow cannot match, because no file holds so many elements.
void HuggingFaceSource::check_sizes() {
  const ModelConfig& model = config_.model;
  const auto size = [](const char* key, int64_t value) { return std::string(key) + " " + std::to_string(value); };
  const auto unsigned_of = [](int64_t value) { return static_cast<uint64_t>(value); };
  const uint64_t hidden = unsigned_of(model.hidden), head_dim = unsigned_of(model.head_dim);
  const uint64_t heads = unsigned_of(model.heads), kv_heads = unsigned_of(model.kv_heads);
  const std::string columns = ", " + size("hidden_size", model.hidden);
  take("model.embed_tokens.weight", {unsigned_of(model.vocab), hidden}, size("vocab_size", model.vocab) + columns);
  const std::string queries = size("num_attention_heads", model.heads),
                    keys = size("num_key_value_heads", model.kv_heads);
  const std::string rows = ", " + size("head_dim", model.head_dim) + columns;
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    const std::string prefix = attention_prefix(layer), packed = prefix + kPacked;
    if (files_.find(packed) != nullptr) {
      take(packed, {(heads + 2 * kv_heads) * head_dim, hidden}, queries + ", " + keys + rows);
    } else {
      take(prefix + "q_proj.weight", {heads * head_dim, hidden}, queries + rows);
      take(prefix + "k_proj.weight", {kv_heads * head_dim, hidden}, keys + rows);
    }
    const std::string up = "model.layers." + std::to_string(layer) + ".mlp.up_proj.weight";
    take(up, {unsigned_of(model.ffn), hidden}, size("intermediate_size", model.ffn) + columns);
  }
}

// conv_q, conv_k, conv_v, or K and V of the paper's listing: [heads, count] or [1, 1, heads, 1, count].
HuggingFaceSource::Found HuggingFaceSource::find_taps(int64_t layer, int stream) {
  constexpr std::array<const char*, 3> kListed = {"Q", "K", "V"};
  const std::string prefix = attention_prefix(layer);
  const Entry* entry = take_if_present(prefix + kConvolutions[static_cast<size_t>(stream)]);
  const Entry* listed = take_if_present(prefix + kListed[static_cast<size_t>(stream)]);
  if (entry != nullptr && listed != nullptr) {
    throw_bad_input(entry->file->path(), ": taps are stored twice, as ", entry->tensor->name, " and ",
                    listed->tensor->name);
  }
  if (entry == nullptr) entry = listed;
  if (entry == nullptr) return {};
  const std::vector<uint64_t>& shape = entry->tensor->shape;
  const auto heads = static_cast<uint64_t>(heads_of(config_.model, stream));
  const uint64_t count = shape.empty() ? 0 : shape.back();
  const bool known =
      shape == std::vector<uint64_t>{heads, count} || shape == std::vector<uint64_t>{1, 1, heads, 1, count};
  if (!known || count < 1 || count > kMostTaps) {
    throw_bad_input(entry->file->path(), ": tensor ", entry->tensor->name, " is ", entry->tensor->shape_text(),
                    ", but taps must be [", heads, ", n] or [1, 1, ", heads, ", 1, n], n from 1 to ", kMostTaps);
  }
  return {values_of(*entry), static_cast<int64_t>(count)};
}

// canonB holds a kernel for each channel of query, key and value; ours is one for each head.
HuggingFaceSource::Found HuggingFaceSource::canon_taps(int64_t layer, int stream) {
  const ModelConfig& model = config_.model;
  const std::string name = attention_prefix(layer) + "canonB.weight";
  if (!config_.canon_kernel) {
    if (const Entry* there = take_if_present(name); there != nullptr) {
      throw_bad_input(there->file->path(), ": tensor ", name,
                      " exists, but config.json has no canon_set; set it to \"B\" to use the tensor");
    }
    return {};
  }
  const auto channels = static_cast<uint64_t>((model.heads + 2 * model.kv_heads) * model.head_dim);
  const auto width = *config_.canon_kernel;
  const Entry* const entry =
      &take(name, {channels, 1, static_cast<uint64_t>(width)}, "canon_kernel " + std::to_string(width));
  const int64_t first = stream == 0 ? 0 : stream == 1 ? model.heads : model.heads + model.kv_heads;  // head
  const int64_t heads = heads_of(model, stream);
  std::vector<double> kernels(static_cast<size_t>(heads * model.head_dim * width));
  entry->file->read(*entry->tensor, static_cast<uint64_t>(first * model.head_dim * width), kernels.size(),
                    kernels.data());
  Found found{.taps = {}, .count = width};
  for (int64_t head = 0; head < heads; ++head) {
    const double* kernel = kernels.data() + head * model.head_dim * width;
    for (int64_t channel = 1; channel < model.head_dim; ++channel) {
      if (std::equal(kernel, kernel + width, kernel + channel * width)) continue;
      throw_bad_input(entry->file->path(), ": layer ", layer, ", ", kStreams[stream], " head ", head,
                      ": the kernel of channel ", channel, " in ", name,
                      " differs from that of channel 0; only one kernel per head is supported");
    }
    found.taps.insert(found.taps.end(), kernel, kernel + width);
    if (config_.canon_residual) found.taps.back() += 1;
  }
  return found;
}

// Either every layer has taps for a stream or, if config.json states none, no layer has.
std::vector<HuggingFaceSource::Found> HuggingFaceSource::stored_taps(int stream) {
  const bool is_canon = config_.form == HuggingFaceForm::canon;
  const int64_t stated = previous_tokens(config_.model.shift, stream);
  const char* const name = kStreams[stream];
  std::vector<Found> layers;
  for (int64_t layer = 0; layer < config_.model.layers; ++layer) {
    layers.push_back(is_canon ? canon_taps(layer, stream) : find_taps(layer, stream));
    const Found& found = layers.back();
    const std::string missing =
        "no taps: tensor " + attention_prefix(layer) + kConvolutions[static_cast<size_t>(stream)] + " is missing";
    if (config_.states_shift && found.count != stated + 1) {
      throw_bad_input(files_.directory(), ": config.json states ", stated, " previous tokens for the ", name,
                      ", but layer ", layer, " holds ",
                      found.taps.empty() ? missing : "taps for " + std::to_string(found.count - 1));
    }
    if (found.taps.empty() != layers.front().taps.empty()) {
      throw_bad_input(files_.directory(), ": only some layers hold taps for the ", name, ": layer ", layer, " holds ",
                      found.taps.empty() ? missing : "some, but layer 0 holds none");
    }
  }
  for (Found& found : layers) {
    if (found.taps.empty()) found.taps.assign(static_cast<size_t>(heads_of(config_.model, stream)), 1.0);
  }
  return layers;
}

// Every layer gets as many taps as the stream has in any layer; those that it lacks in front are zero.
void HuggingFaceSource::read_taps(const HuggingFaceImport& how) {
  const bool is_canon = config_.form == HuggingFaceForm::canon;
  for (int stream = 0; stream < 3; ++stream) {
    const int64_t heads = heads_of(config_.model, stream);
    ShiftConfig& shift = config_.model.shift;
    int& previous = stream == 0 ? shift.query : stream == 1 ? shift.key : shift.value;
    const std::vector<Found> layers = stored_taps(stream);
    int64_t stored = 1;  // taps that are needed
    for (const Found& found : layers) stored = std::max(stored, found.needed(heads, is_canon));
    const int asked = how.previous[static_cast<size_t>(stream)].value_or(static_cast<int>(stored) - 1);
    if (asked + 1 < stored) {
      throw_bad_input(files_.directory(), ": shift.", kStreams[stream], " ", asked, " is less than the ", stored - 1,
                      " previous tokens that the files hold");
    }
    if (asked > kMostTaps - 1)
      throw_bad_input("shift.", kStreams[stream], " ", asked, ": must be at most ", kMostTaps - 1);
    previous = asked;
    for (int64_t layer = 0; layer < config_.model.layers && asked > 0; ++layer) {
      const Found& found = layers[static_cast<size_t>(layer)];
      std::vector<double> taps(static_cast<size_t>(heads * (asked + 1)), 0.0);
      for (int64_t head = 0; head < heads; ++head) {
        const int64_t kept = std::min<int64_t>(found.count, asked + 1);
        std::copy_n(found.taps.begin() + (head + 1) * found.count - kept, kept,
                    taps.begin() + (head + 1) * (asked + 1) - kept);
      }
      taps_[{layer, stream}] = std::move(taps);
    }
  }
}

HuggingFaceSource::Place HuggingFaceSource::weight_place(const HuggingFaceName& name) {
  const ModelConfig& model = config_.model;
  const bool is_head = name.ours == "head.weight";
  if (name.layer >= 0) {
    const std::string packed = attention_prefix(name.layer) + kPacked;
    const std::array<const char*, 3> endings = {"attention.query.weight", "attention.key.weight",
                                                "attention.value.weight"};
    const auto part = std::ranges::find_if(endings, [&](const char* ending) { return name.ours.ends_with(ending); });
    if (part != endings.end() && files_.find(packed) != nullptr) {
      const int64_t heads[] = {0, model.heads, model.heads + model.kv_heads};
      const auto row = static_cast<uint64_t>(heads[part - endings.begin()] * model.head_dim);
      const auto rows = static_cast<uint64_t>((model.heads + 2 * model.kv_heads) * model.head_dim);
      const auto hidden = static_cast<uint64_t>(model.hidden);
      return {.entry = &take(packed, {rows, hidden}), .first = row * hidden};
    }
  }
  std::string theirs = name.theirs;
  if (is_head && files_.find(theirs) == nullptr && norm_head_) theirs = "model.embed_tokens.weight";  // was tied
  return {.entry = &take(theirs, name.foreign_shape), .norm_rows = is_head && norm_head_};
}

// Files may hold a tied head too; it must then equal the embedding.
void HuggingFaceSource::check_tied_head() {
  const Entry* head = take_if_present("lm_head.weight");
  if (head == nullptr) return;
  const Entry& table = *files_.find("model.embed_tokens.weight");
  const uint64_t count = table.tensor->count(), piece = uint64_t{1} << 20;
  bool equal = head->tensor->shape == table.tensor->shape;
  std::vector<double> a, b;
  for (uint64_t at = 0; equal && at < count; at += piece) {
    const uint64_t now = std::min(piece, count - at);
    a.resize(now);
    b.resize(now);
    head->file->read(*head->tensor, at, now, a.data());
    table.file->read(*table.tensor, at, now, b.data());
    equal = std::memcmp(a.data(), b.data(), now * sizeof(double)) == 0;
  }
  if (!equal) {
    throw_bad_input(head->file->path(),
                    ": tie_word_embeddings is true, but lm_head.weight is not model.embed_tokens.weight; "
                    "set it to false in config.json to use both");
  }
}

}  // namespace shiftron

// Keys and names as llama.cpp's architecture "llama" expects them.
#include "interchange/gguf_export.h"

#include <cstring>
#include <filesystem>

#include "core/check.h"
#include "core/file.h"
#include "interchange/hugging_face_names.h"
#include "interchange/stored_rows.h"
#include "interchange/unfinished_export.h"

namespace shiftron {
namespace {

namespace fs = std::filesystem;

struct GgufName {
  const char *ours, *theirs;
};
constexpr GgufName kGgufNames[] = {
    {"attention_norm.weight", "attn_norm.weight"},  {"attention.query.weight", "attn_q.weight"},
    {"attention.key.weight", "attn_k.weight"},      {"attention.value.weight", "attn_v.weight"},
    {"attention.out.weight", "attn_output.weight"}, {"mlp_norm.weight", "ffn_norm.weight"},
    {"mlp.gate.weight", "ffn_gate.weight"},         {"mlp.up.weight", "ffn_up.weight"},
    {"mlp.down.weight", "ffn_down.weight"},         {"embedding.weight", "token_embd.weight"},
    {"final_norm.weight", "output_norm.weight"},    {"head.weight", "output.weight"}};

std::string gguf_name(const HuggingFaceName& name) {
  const std::string ours = name.layer < 0 ? "" : "layers." + std::to_string(name.layer) + ".";
  const std::string theirs = name.layer < 0 ? "" : "blk." + std::to_string(name.layer) + ".";
  for (const GgufName& known : kGgufNames) {
    if (name.ours == ours + known.ours) return theirs + known.theirs;
  }
  CHECK(false, "no GGUF name for ", name.ours);
}

std::vector<GgufEntry> entries_of(const GgufExport& how) {
  const ModelConfig& model = how.model;
  const auto whole = [](int64_t value) { return static_cast<uint32_t>(value); };
  const uint32_t file_type = how.type == SafetensorsType::F32 ? 0 : how.type == SafetensorsType::F16 ? 1 : 32;
  std::vector<GgufEntry> entries = {{"general.architecture", std::string("llama")},
                                    {"general.type", std::string("model")},
                                    {"general.file_type", file_type},
                                    {"llama.vocab_size", whole(model.vocab)},
                                    {"llama.context_length", whole(how.positions)},
                                    {"llama.embedding_length", whole(model.hidden)},
                                    {"llama.block_count", whole(model.layers)},
                                    {"llama.feed_forward_length", whole(model.ffn)},
                                    {"llama.attention.head_count", whole(model.heads)},
                                    {"llama.attention.head_count_kv", whole(model.kv_heads)},
                                    {"llama.attention.key_length", whole(model.head_dim)},
                                    {"llama.attention.value_length", whole(model.head_dim)},
                                    {"llama.attention.layer_norm_rms_epsilon", static_cast<float>(model.norm_epsilon)},
                                    {"llama.rope.dimension_count", whole(model.head_dim)},
                                    {"llama.rope.freq_base", static_cast<float>(model.rope_base)}};
  entries.insert(entries.end(), how.entries.begin(), how.entries.end());
  return entries;
}

// Row i of the first half of each head's `head_dim` rows becomes row 2i, row i of the second half row 2i + 1.
void interleave_halves(std::vector<std::byte>& bytes, uint64_t head_dim, uint64_t row_bytes,
                       std::vector<std::byte>& head) {
  const uint64_t head_bytes = head_dim * row_bytes;
  for (uint64_t begin = 0; begin < bytes.size(); begin += head_bytes) {
    const std::byte* const from = bytes.data() + begin;
    head.assign(from, from + head_bytes);
    for (uint64_t row = 0; row < head_dim; ++row) {
      const uint64_t to = 2 * (row % (head_dim / 2)) + row / (head_dim / 2);
      std::memcpy(bytes.data() + begin + to * row_bytes, head.data() + row * row_bytes, row_bytes);
    }
  }
}

bool is_rotated(const std::string& name) {
  return name.ends_with("attention.query.weight") || name.ends_with("attention.key.weight");
}

void write_elements(TensorSource& source, const GgufExport& how, const std::string& path) {
  std::vector<SafetensorsTensor> tensors;
  uint64_t total = 0, done = 0;
  const std::vector<HuggingFaceName> names = hugging_face_names(how.model);
  for (const HuggingFaceName& name : names) {
    const bool is_norm = name.foreign_shape.size() == 1;
    tensors.push_back(
        {.name = gguf_name(name), .type = is_norm ? SafetensorsType::F32 : how.type, .shape = name.foreign_shape});
    total += tensors.back().bytes();
  }
  require_space_for_export(parent_directory(path), total);
  GgufWriter writer(path, entries_of(how), tensors);
  StoredRows rows(source, how.model);
  std::vector<std::byte> head;
  for (size_t i = 0; i < names.size(); ++i) {
    const SafetensorsTensor& tensor = tensors[i];
    rows.for_each_piece(names[i].ours, tensor.type, [&](std::vector<std::byte>& bytes) {
      if (is_rotated(names[i].ours)) {
        interleave_halves(bytes, static_cast<uint64_t>(how.model.head_dim), tensor.shape[1] * size_of(tensor.type),
                          head);
      }
      writer.append(bytes.data(), bytes.size());
      done += bytes.size();
      if (how.progress) how.progress(done, total);
    });
  }
  writer.finish();
}

}  // namespace

FirstTokens::FirstTokens(TensorSource& source, int64_t tokens) : source_(source), tensors_(source.tensors()) {
  // A box of the first rows is also a box of all rows, so reads pass through unchanged.
  for (const char* name : {"embedding.weight", "head.weight"}) {
    const int index = source.find(TensorGroup::parameters, name);
    if (index < 0) continue;  // a tied head
    Shape& shape = tensors_[static_cast<size_t>(index)].shape;
    CHECK(tokens <= shape[0], name, " has ", shape[0], " rows, but ", tokens, " are needed");
    shape = {tokens, shape[1]};
  }
}

void refuse_gguf_of(const ModelConfig& model) {
  const ShiftConfig& shift = model.shift;
  if (most_previous_tokens(shift) > 0) {
    throw_bad_input("this model mixes previous tokens into its queries, keys or values (query ", shift.query, ", key ",
                    shift.key, ", value ", shift.value,
                    "), which llama.cpp cannot compute: it would run a different model. Use --format hf, which "
                    "transformers runs with KV shift, or train with shift.query, shift.key and shift.value 0");
  }
}

ModelConfig gguf_rounded(ModelConfig model) {
  // GCC 12 drops two such adjacent pairs of conversions (-ftree-slp-vectorize), hence volatile.
  for (double* number : {&model.norm_epsilon, &model.rope_base}) {
    const volatile auto single = static_cast<float>(*number);
    *number = single;
  }
  return model;
}

uint64_t write_gguf(TensorSource& source, const GgufExport& how, const std::string& named) {
  refuse_gguf_of(how.model);
  UnfinishedExport place(named);
  const std::string file = fs::path(place.name()).filename(), path = place.directory() + "/" + file;
  write_elements(source, how, path);
  if (how.check) how.check(path);
  const uint64_t bytes = fs::file_size(path);
  place.finish_file(file, [&] {
    if (how.notify) how.notify(bytes);
  });
  return bytes;
}

}  // namespace shiftron

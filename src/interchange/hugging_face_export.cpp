// Parameters are streamed by rows; taps are written as the model mixes them.
#include "interchange/hugging_face_export.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "checkpoint/boxes.h"
#include "core/check.h"
#include "core/file.h"
#include "interchange/embedded_files.h"
#include "interchange/hugging_face_names.h"
#include "interchange/mixed_taps.h"
#include "interchange/stored_rows.h"
#include "interchange/unfinished_export.h"

namespace shiftron {
namespace {

namespace fs = std::filesystem;

// A tensor of the export: one parameter in its stored layout, or taps.
struct Item {
  SafetensorsTensor tensor;
  std::string ours;    // empty for taps
  int64_t layer = -1;  // of taps
  int stream = -1;     // of taps; −1: canonB, for all three streams
};

std::vector<Item> items_of(const HuggingFaceConfig& config) {
  const ModelConfig& model = config.model;
  const SafetensorsType taps_type = config.type == SafetensorsType::F64 ? SafetensorsType::F64 : SafetensorsType::F32;
  const auto window = static_cast<uint64_t>(1 + most_previous_tokens(model.shift));
  std::vector<Item> items;
  for (const HuggingFaceName& name : hugging_face_names(model)) {
    if (name.stream < 0) {
      items.push_back(
          {.tensor = {.name = name.theirs, .type = config.type, .shape = name.foreign_shape}, .ours = name.ours});
    } else if (config.form == HuggingFaceForm::kv_shift) {
      const auto count = static_cast<uint64_t>(1 + previous_tokens(model.shift, name.stream));
      const auto heads = static_cast<uint64_t>(heads_of(model, name.stream));
      items.push_back(
          {.tensor = {.name = attention_prefix(name.layer) + kConvolutions[static_cast<size_t>(name.stream)],
                      .type = taps_type,
                      .shape = {1, 1, heads, 1, count}},
           .ours = {},
           .layer = name.layer,
           .stream = name.stream});
    }
  }
  for (int64_t layer = 0; config.form == HuggingFaceForm::canon && layer < model.layers; ++layer) {
    const auto channels = static_cast<uint64_t>((model.heads + 2 * model.kv_heads) * model.head_dim);
    items.push_back({.tensor = {.name = attention_prefix(layer) + "canonB.weight",
                                .type = taps_type,
                                .shape = {channels, 1, window}},
                     .ours = {},
                     .layer = layer});
  }
  return items;
}

class Exporter {
 public:
  Exporter(TensorSource& source, const HuggingFaceExport& how)
      : how_(how), model_(how.config.model), rows_(source, how.config.model) {}

  void write(const std::string& directory) {
    std::vector<SafetensorsTensor> tensors;
    const std::vector<Item> items = items_of(how_.config);
    for (const Item& item : items) {
      tensors.push_back(item.tensor);
      total_ += item.tensor.bytes();
    }
    uint64_t other_files = 0;
    for (const auto& [name, bytes] : how_.files) other_files += bytes.size();
    require_space_for_export(directory, total_ + other_files);
    const auto shards = safetensors_shards(tensors, how_.shard_bytes);
    size_t next = 0;
    for (size_t i = 0; i < shards.size(); ++i) {
      SafetensorsWriter writer(directory + "/" + safetensors_shard_name(i, shards.size()), shards[i],
                               {{"format", "pt"}});
      for (size_t j = 0; j < shards[i].size(); ++j) write_item(items[next++], writer);
      writer.finish();
    }
    if (shards.size() > 1) write_file_durably(directory + "/model.safetensors.index.json", safetensors_index(shards));
  }

 private:
  void append(SafetensorsWriter& writer, const std::vector<std::byte>& bytes) {
    writer.append(bytes.data(), bytes.size());
    done_ += bytes.size();
    if (how_.progress) how_.progress(done_, total_);
  }

  void write_item(const Item& item, SafetensorsWriter& writer) {
    if (item.ours.empty()) return write_taps(item, writer);
    rows_.for_each_piece(item.ours, item.tensor.type,
                         [&](const std::vector<std::byte>& bytes) { append(writer, bytes); });
  }

  void write_taps(const Item& item, SafetensorsWriter& writer) {
    std::vector<double> taps;
    if (item.stream >= 0) {
      taps = mixed_taps(rows_, model_, item.layer, item.stream);
    } else {  // a kernel for each channel, the same for all channels of a head
      const auto window = static_cast<int64_t>(item.tensor.shape.back());
      for (int stream = 0; stream < 3; ++stream) {
        const std::vector<double> mixed = mixed_taps(rows_, model_, item.layer, stream);
        const int64_t count = 1 + previous_tokens(model_.shift, stream);
        for (size_t head = 0; head < mixed.size(); head += static_cast<size_t>(count)) {
          for (int64_t channel = 0; channel < model_.head_dim; ++channel) {
            taps.insert(taps.end(), static_cast<size_t>(window - count), 0.0);
            taps.insert(taps.end(), mixed.begin() + static_cast<int64_t>(head),
                        mixed.begin() + static_cast<int64_t>(head) + count);
          }
        }
      }
    }
    std::vector<std::byte> bytes;
    store_values(taps.data(), 0, static_cast<int64_t>(taps.size()), item.tensor.type, item.tensor.name, bytes);
    append(writer, bytes);
  }

  const HuggingFaceExport& how_;
  const ModelConfig& model_;
  StoredRows rows_;
  uint64_t done_ = 0, total_ = 0;
};

bool heads_divide_width(const ModelConfig& model) {
  return model.hidden % model.heads == 0;
}

void refuse_form(const HuggingFaceConfig& config) {
  const ModelConfig& model = config.model;
  const bool shifts = most_previous_tokens(model.shift) > 0;
  if (config.form == HuggingFaceForm::baichuan_m1)
    throw_bad_input("Baichuan-M1 can be imported, but not exported; use --as llama, kv-shift or canon");
  if (config.form == HuggingFaceForm::llama && shifts) {
    throw_bad_input("a plain Llama has no KV shift and would compute something different; use --as kv-shift or canon");
  }
  if (config.form == HuggingFaceForm::llama && !heads_divide_width(model)) {
    throw_bad_input("transformers cannot load a plain Llama whose hidden size is not a multiple of its heads: hidden ",
                    model.hidden, ", heads ", model.heads,
                    "; use --as kv-shift, which computes the same with shifts of 0");
  }
  if (config.form == HuggingFaceForm::canon && !shifts) throw_bad_input("this model has no KV shift; use --as llama");
}

}  // namespace

HuggingFaceForm usual_form(const ModelConfig& model) {
  const bool plain = most_previous_tokens(model.shift) == 0 && heads_divide_width(model);
  return plain ? HuggingFaceForm::llama : HuggingFaceForm::kv_shift;
}

WrittenExport write_hugging_face(TensorSource& source, const HuggingFaceExport& how, const std::string& named) {
  refuse_form(how.config);
  UnfinishedExport place(named);
  const std::string& directory = place.directory();
  const auto add = [&](const std::string& name, std::string_view bytes) {
    write_file_durably(directory + "/" + name, bytes);
  };
  Exporter(source, how).write(directory);
  add("config.json", to_hugging_face_text(how.config));
  add("generation_config.json", generation_config_text(how.config));
  if (how.config.form == HuggingFaceForm::kv_shift) add(kModelModule + std::string(".py"), modeling_kv_shift_llama());
  for (const auto& [name, bytes] : how.files) add(name, bytes);
  if (how.check) {
    for (const auto& [name, bytes] : how.check(directory)) add(name, bytes);
  }
  WrittenExport written{.directory = place.name(), .files = {}};
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (place.is_mark(entry.path().filename())) continue;
    written.files.push_back(entry.path().filename());
    written.bytes += entry.file_size();
  }
  std::ranges::sort(written.files);
  place.finish([&] {
    if (how.notify) how.notify(written);
  });
  return written;
}

}  // namespace shiftron

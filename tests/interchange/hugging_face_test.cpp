// Exports and imports: what is written is read back bit for bit; what this model does not support is refused by name.
#include <cmath>
#include <fstream>
#include <random>
#include <sstream>

#include "checkpoint/digest.h"
#include "interchange/hugging_face_imports.h"
#include "kernels/kernels.h"
#include "model/kv_shift.h"

namespace shiftron::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The taps that a form makes of raw parameters, by its formula.
std::vector<float> mixed(const std::vector<float>& raw, ShiftForm form) {
  std::vector<float> taps;
  for (const float value : raw) {
    if (form == ShiftForm::gate) {
      taps.push_back(1 / (1 + std::exp(value)));
      taps.push_back(1 / (1 + std::exp(-value)));
    } else {
      taps.push_back(form == ShiftForm::clamp ? std::min(std::max(value, 0.0f), 1.0f) : value);
    }
  }
  return taps;
}

std::vector<ShiftCase> cases() {
  return {{"vanilla", {.query = 0, .key = 0, .value = 0}, 2, false, 12},
          {"vanilla_tied", {.query = 0, .key = 0, .value = 0}, 4, true, 12},
          {"vanilla_odd_width", {.query = 0, .key = 0, .value = 0}},
          {"paper", {.query = 0, .key = 1, .value = 1}},
          {"one_kv_head", {.query = 0, .key = 1, .value = 1}, 1, true},
          {"every_head", {.query = 0, .key = 1, .value = 1}, 4},
          {"keys_alone", {.query = 0, .key = 2, .value = 0}},
          {"values_alone", {.query = 0, .key = 0, .value = 3}},
          {"windows", {.query = 1, .key = 3, .value = 2}},
          {"queries", {.query = 3, .key = 0, .value = 0}},
          {"gate", {.query = 1, .key = 1, .value = 1, .form = ShiftForm::gate}},
          {"clamp", {.query = 0, .key = 2, .value = 1, .form = ShiftForm::clamp}},
          {"project", {.query = 0, .key = 1, .value = 1, .form = ShiftForm::project}}};
}

class HuggingFaceRoundTrip : public ::testing::TestWithParam<ShiftCase> {
 protected:
  ModelConfig model() const { return model_of(GetParam()); }
  void expect_same(MemorySource& source, HuggingFaceSource& read) const {
    const ShiftForm form = GetParam().shift.form;
    ModelConfig expected = model();
    expected.shift.form = ShiftForm::free;
    EXPECT_EQ(read.model(), expected);
    ASSERT_EQ(read.tensors().size(), source.tensors().size());
    for (const ManifestTensor& tensor : source.tensors()) {
      const bool taps = tensor.name.find("shift_") != std::string::npos;
      const std::vector<float> want = taps ? mixed(source.values(tensor.name), form) : source.values(tensor.name);
      const std::vector<float> got = whole(read, tensor.name);
      ASSERT_EQ(got.size(), want.size()) << tensor.name;
      for (size_t i = 0; i < got.size(); ++i) {
        if (taps && form == ShiftForm::gate) {
          EXPECT_NEAR(got[i], want[i], 1e-7) << tensor.name << " " << i;  // another exponential function
        } else {
          EXPECT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(want[i])) << tensor.name << " " << i;
        }
      }
    }
  }
  TemporaryDirectory directory_;
  const std::string out_ = directory_.path() + "/out";
};

TEST_P(HuggingFaceRoundTrip, EveryBitComesBack) {
  MemorySource source(model());
  const WrittenExport written = write_hugging_face(source, export_of(model(), usual_form(model())), out_);
  EXPECT_FALSE(fs::exists(out_ + ".tmp"));
  EXPECT_EQ(written.files, names_in(out_));
  EXPECT_EQ(fs::exists(out_ + "/modeling_kv_shift_llama.py"), usual_form(model()) == HuggingFaceForm::kv_shift);
  HuggingFaceSource read(out_);
  expect_same(source, read);
  EXPECT_EQ(fs::exists(out_ + "/model.safetensors.index.json"), false);
}

TEST_P(HuggingFaceRoundTrip, AlsoInManyFiles) {
  MemorySource source(model());
  HuggingFaceExport how = export_of(model(), usual_form(model()));
  how.shard_bytes = 2000;
  write_hugging_face(source, how, out_ + "//");
  EXPECT_TRUE(fs::exists(out_ + "/model.safetensors.index.json"));
  EXPECT_FALSE(fs::exists(out_ + "/model.safetensors"));
  HuggingFaceSource read(out_);
  expect_same(source, read);
}

TEST_P(HuggingFaceRoundTrip, CanonHoldsTheSameTaps) {
  if (most_previous_tokens(GetParam().shift) == 0) return;
  MemorySource source(model());
  write_hugging_face(source, export_of(model(), HuggingFaceForm::canon), out_);
  EXPECT_EQ(config_in(out_)["model_type"], "LlamaCanon");
  EXPECT_FALSE(fs::exists(out_ + "/modeling_kv_shift_llama.py"));
  HuggingFaceSource read(out_);
  expect_same(source, read);
}

// Parts of tensors are those of the whole.
TEST_P(HuggingFaceRoundTrip, BoxesAreCutOutOfTheWhole) {
  MemorySource source(model());
  write_hugging_face(source, export_of(model(), usual_form(model())), out_);
  HuggingFaceSource read(out_);
  for (size_t i = 0; i < read.tensors().size(); ++i) {
    const Shape& shape = read.tensors()[i].shape;
    const std::vector<float> all = whole(read, read.tensors()[i].name);
    for (int dim = 0; dim < shape.dims(); ++dim) {
      Box box = whole_box(shape);
      box.offset[dim] = shape[dim] / 2;
      box.extent[dim] = shape[dim] - box.offset[dim];
      std::vector<float> part(static_cast<size_t>(box.extent.count())), expected(part.size());
      read.read(static_cast<int>(i), box, part.data());
      for_each_run(whole_box(shape), box, box, [&](int64_t from, int64_t to, int64_t count) {
        std::copy_n(all.begin() + from, count, expected.begin() + to);
      });
      EXPECT_EQ(part, expected) << read.tensors()[i].name << " dim " << dim;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, HuggingFaceRoundTrip, ::testing::ValuesIn(cases()),
                         [](const auto& item) { return std::string(item.param.name); });

TEST(HuggingFaceExport, ConfigStatesEveryKey) {
  TemporaryDirectory directory;
  const std::string out = directory.path() + "/out";
  const ModelConfig model = small_model({.query = 1, .key = 3, .value = 2});
  MemorySource source(model);
  write_hugging_face(source, export_of(model, HuggingFaceForm::kv_shift, SafetensorsType::BF16), out);
  const json expected = {{"architectures", {"KVShiftLlamaForCausalLM"}},
                         {"auto_map",
                          {{"AutoConfig", "modeling_kv_shift_llama.KVShiftLlamaConfig"},
                           {"AutoModelForCausalLM", "modeling_kv_shift_llama.KVShiftLlamaForCausalLM"}}},
                         {"model_type", "kv_shift_llama"},
                         {"vocab_size", 19},
                         {"hidden_size", 10},
                         {"intermediate_size", 14},
                         {"num_hidden_layers", 2},
                         {"num_attention_heads", 4},
                         {"num_key_value_heads", 2},
                         {"head_dim", 6},
                         {"hidden_act", "silu"},
                         {"max_position_embeddings", 64},
                         {"initializer_range", 0.3},
                         {"rms_norm_eps", 1e-3},
                         {"rope_theta", 12345.0},
                         {"tie_word_embeddings", false},
                         {"attention_bias", false},
                         {"mlp_bias", false},
                         {"bos_token_id", nullptr},
                         {"eos_token_id", 2},
                         {"pad_token_id", nullptr},
                         {"dtype", "bfloat16"},
                         {"conv_window", 4},
                         {"shift_q", 1},
                         {"shift_k", 3},
                         {"shift_v", 2},
                         {"shift_residual", false},
                         {"shift_activation", nullptr},
                         {"norm_head", false}};
  EXPECT_EQ(config_in(out), expected);
  EXPECT_EQ(json::parse(read_file(out + "/generation_config.json"))["eos_token_id"], 2);
  const SafetensorsDirectory files(out);
  for (const auto& [name, entry] : files.tensors()) {
    const bool taps = name.find("conv_") != std::string::npos;
    EXPECT_EQ(to_string(entry.tensor->type), taps ? "F32" : "BF16") << name;
    EXPECT_EQ(entry.file->metadata().at("format"), "pt");
  }
  EXPECT_EQ(files.find("model.layers.1.self_attn.conv_q")->tensor->shape_text(), "[1, 1, 4, 1, 2]");
  EXPECT_EQ(files.find("model.layers.1.self_attn.conv_k")->tensor->shape_text(), "[1, 1, 2, 1, 4]");
  EXPECT_EQ(files.find("model.layers.0.self_attn.o_proj.weight")->tensor->shape_text(), "[10, 24]");
}

// The bytes of one export, so that nothing changes them by accident; a change on purpose renews the hashes.
TEST(HuggingFaceExport, BytesAreThoseOfEveryVersion) {
  TemporaryDirectory directory;
  const ModelConfig model = small_model({.query = 0, .key = 1, .value = 2});
  MemorySource source(model);
  for (const ManifestTensor& tensor : source.tensors()) {  // values that no library computes
    std::vector<float>& values = source.values(tensor.name);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(static_cast<int>(i * 37 % 101) - 50) / 64;
  }
  const auto hash = [&](HuggingFaceForm form, SafetensorsType type, const std::string& file) {
    const std::string out = directory.path() + "/" + to_string(form) + to_string(type);
    if (!fs::exists(out)) write_hugging_face(source, export_of(model, form, type), out);
    return to_hex(xxh3_128(read_file(out + "/" + file)));
  };
  EXPECT_EQ(hash(HuggingFaceForm::kv_shift, SafetensorsType::F32, "model.safetensors"),
            "8794aab2f3379947c31135b6eb830586");
  EXPECT_EQ(hash(HuggingFaceForm::kv_shift, SafetensorsType::F32, "config.json"), "689c7f0820240ae9d04fd5e5ff9ee508");
  EXPECT_EQ(hash(HuggingFaceForm::kv_shift, SafetensorsType::BF16, "model.safetensors"),
            "245bb41b49c6575715c98fa41d3b52ba");
  EXPECT_EQ(hash(HuggingFaceForm::canon, SafetensorsType::F32, "model.safetensors"),
            "13855c950d743aea9c91e33bfbe6b37b");
}

TEST(HuggingFaceExport, BfloatIsWhatProductsRead) {
  TemporaryDirectory directory;
  const ModelConfig model = small_model(kPaper);
  MemorySource source(model);
  std::vector<float>& values = source.values("final_norm.weight");
  values[0] = std::bit_cast<float>(0x3F808000u);  // a tie, away from zero
  values[1] = std::bit_cast<float>(0xBF818000u);
  write_hugging_face(source, export_of(model, HuggingFaceForm::kv_shift, SafetensorsType::BF16),
                     directory.path() + "/out");
  HuggingFaceSource read(directory.path() + "/out");
  const std::vector<float> got = whole(read, "final_norm.weight");
  EXPECT_EQ(std::bit_cast<uint32_t>(got[0]), 0x3F810000u);
  EXPECT_EQ(std::bit_cast<uint32_t>(got[1]), 0xBF820000u);
}

TEST(HuggingFaceExport, ReadsNoMoreThanPieces) {
  TemporaryDirectory directory;
  ModelConfig model = small_model(kPaper);
  model.vocab = 300'000;  // 3,000,000 elements in a table
  MemorySource source(model);
  uint64_t last = 0, total = 0;
  HuggingFaceExport how = export_of(model, HuggingFaceForm::kv_shift);
  how.progress = [&](uint64_t done, uint64_t of) {
    EXPECT_GT(done, last);
    last = done;
    total = of;
  };
  write_hugging_face(source, how, directory.path() + "/out");
  how.progress = {};
  EXPECT_LE(source.largest_read, 1 << 20);
  EXPECT_EQ(last, total);
  EXPECT_GT(total, 24'000'000u);
  source.values("head.weight")[2'000'001] = NAN;
  const Error error = error_of([&] { write_hugging_face(source, how, directory.path() + "/other"); });
  EXPECT_THAT(error.what(), HasSubstr("head.weight holds a value that is not finite at element 2000001:"));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which hold memory back
// Tensors of zeros that lie nowhere.
class EmptySource : public MemorySource {
 public:
  explicit EmptySource(const ModelConfig& model) : MemorySource(small_model({}), 0) {
    for (const HuggingFaceName& name : hugging_face_names(model)) {
      list_.push_back({TensorGroup::parameters, name.ours, name.shape, DType::float32});
    }
  }
  const std::vector<ManifestTensor>& tensors() const override { return list_; }
  int find(TensorGroup, const std::string& name) const override {
    const auto found = std::ranges::find_if(list_, [&](const ManifestTensor& tensor) { return tensor.name == name; });
    return found == list_.end() ? -1 : static_cast<int>(found - list_.begin());
  }
  void read(int, const Box& box, void* to) override {
    std::memset(to, 0, static_cast<size_t>(box.extent.count()) * sizeof(float));
  }

 private:
  std::vector<ManifestTensor> list_;
};

// Bytes that this process has held at most since the last call.
int64_t peak_memory() {
  int64_t kilobytes = 0;
  std::istringstream lines(read_file("/proc/self/status"));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("VmHWM:")) kilobytes = std::stoll(line.substr(6));
  }
  std::ofstream("/proc/self/clear_refs") << "5";
  return kilobytes << 10;
}

TEST(HuggingFaceExport, MemoryDoesNotFollowTheModel) {
  TemporaryDirectory directory;
  ModelConfig model = small_model(kPaper, 2, true);
  model.hidden = 128;
  model.vocab = 300'000;  // 154 MB
  EmptySource source(model);
  peak_memory();
  const int64_t before = peak_memory();
  write_hugging_face(source, export_of(model, HuggingFaceForm::kv_shift), directory.path() + "/out");
  EXPECT_LT(peak_memory() - before, 48'000'000);
  EXPECT_GT(fs::file_size(directory.path() + "/out/model.safetensors"), 150'000'000u);
}
#endif

class FailingExports : public ::testing::Test {
 protected:
  Error fault(const ModelConfig& model, HuggingFaceExport how) {
    MemorySource source(model);
    return error_of([&] { write_hugging_face(source, how, out_); });
  }
  TemporaryDirectory directory_;
  const std::string out_ = directory_.path() + "/out";
};

TEST_F(FailingExports, WhatTheFormCannotHold) {
  const ModelConfig shifted = small_model(kPaper), vanilla = small_model({.query = 0, .key = 0, .value = 0});
  EXPECT_THAT(fault(shifted, export_of(shifted, HuggingFaceForm::llama)).what(),
              HasSubstr("a plain Llama has no KV shift"));
  EXPECT_THAT(fault(vanilla, export_of(vanilla, HuggingFaceForm::canon)).what(),
              HasSubstr("has no KV shift; use --as llama"));
  EXPECT_THAT(fault(vanilla, export_of(vanilla, HuggingFaceForm::llama)).what(),
              HasSubstr("hidden 10, heads 4; use --as kv-shift"));
  EXPECT_THAT(fault(vanilla, export_of(vanilla, HuggingFaceForm::baichuan_m1)).what(),
              HasSubstr("imported, but not exported"));
  EXPECT_TRUE(names_in(directory_.path()).empty());
}

TEST_F(FailingExports, NothingHalfMadeStays) {
  const ModelConfig model = small_model(kPaper);
  MemorySource source(model);
  source.values("layers.1.mlp.up.weight")[3] = NAN;
  const Error error = error_of([&] { write_hugging_face(source, export_of(model, HuggingFaceForm::kv_shift), out_); });
  EXPECT_EQ(error.code(), ExitCode::bad_input);
  EXPECT_THAT(error.what(), HasSubstr("parameters/layers.1.mlp.up.weight holds a value that is not finite"));
  HuggingFaceExport how = export_of(model, HuggingFaceForm::kv_shift);
  how.check = [&](const std::string& directory) -> std::map<std::string, std::string> {
    EXPECT_TRUE(fs::exists(directory + "/config.json"));
    EXPECT_FALSE(fs::exists(out_));
    throw_crash("the check");
  };
  EXPECT_THAT(fault(model, how).what(), HasSubstr("the check"));
  ModelConfig other = model;
  other.ffn = 15;
  EXPECT_THAT(fault(model, export_of(other, HuggingFaceForm::kv_shift)).what(),
              HasSubstr("mlp.gate.weight is [14, 10] in the checkpoint"));
  other = model;
  other.layers = 3;
  EXPECT_THAT(fault(model, export_of(other, HuggingFaceForm::kv_shift)).what(),
              HasSubstr("layers.2.attention_norm.weight is missing"));
  EXPECT_TRUE(names_in(directory_.path()).empty());
}

TEST_F(FailingExports, NothingIsWrittenIntoAStep) {
  const ModelConfig model = small_model(kPaper);
  const std::string step = directory_.path() + "/run/checkpoints/step-00000007";
  fs::create_directories(step);
  write_text(step + "/manifest.json", "{}");
  fs::create_directory_symlink(step, directory_.path() + "/link");
  MemorySource source(model);
  for (const std::string& place : {step + "/out", step + "/a/b", directory_.path() + "/link/out",
                                   directory_.path() + "/run/../run/checkpoints/step-00000007/./c"}) {
    const Error error =
        error_of([&] { write_hugging_face(source, export_of(model, HuggingFaceForm::kv_shift), place); });
    EXPECT_EQ(error.code(), ExitCode::bad_input) << place;
    EXPECT_THAT(error.what(), HasSubstr("which must not change")) << place;
  }
  EXPECT_EQ(names_in(step), std::vector<std::string>{"manifest.json"});
  fs::remove_all(directory_.path() + "/run");
  fs::remove(directory_.path() + "/link");
}

TEST_F(HuggingFaceImports, WhatThisModelCannotCompute) {
  const std::vector<std::pair<json, const char*>> refused = {
      {{{"model_type", "gemma"}}, "model_type is \"gemma\""},
      {{{"attention_bias", true}}, "attention_bias is true"},
      {{{"mlp_bias", true}}, "mlp_bias is true"},
      {{{"hidden_act", "gelu"}}, "hidden_act is \"gelu\""},
      {{{"sliding_window", 4096}}, "sliding_window is 4096"},
      {{{"rope_scaling", {{"type", "linear"}, {"factor", 2}}}}, "rope_scaling is"},
      {{{"rope_scaling", {{"rope_type", "llama3"}}}}, "rope_scaling is"},
      {{{"rope_scaling", {{"factor", 2}}}}, "rope_scaling is"},
      {{{"rope_parameters", {{"rope_type", "yarn"}, {"rope_theta", 1}}}}, "rope_parameters is"},
      {{{"partial_rotary_factor", 0.5}}, "partial_rotary_factor is 0.5"},
      {{{"rope_dim", 4}}, "rope_dim is 4"},
      {{{"rope_version", "lingua"}}, "rope_version is"},
      {{{"qk_norm", true}}, "qk_norm is true"},
      {{{"model_type", "granite"}}, "may hold the same tensors but compute something different"},
      {{{"rope_scaling", true}}, "rope_scaling is true: scaling of RoPE is not supported"},
      {{{"rope_parameters", {{"full_attention", {{"rope_theta", 1e6}}}}}}, "RoPE must be the same in every layer"},
      {{{"rope_scaling", {{"rope_type", "default"}, {"sliding_attention", {{"factor", 8}}}}}}, "rope_scaling is"},
      {{{"hidden_activation", "gelu"}}, "hidden_activation is \"gelu\""},
      {{{"rope_interleaved", true}}, "rope_interleaved is true"},
      {{{"rope_interleave", true}}, "rope_interleave is true"},
      {{{"no_rope_layers", {1, 0}}}, "no_rope_layers is [1,0]"},
      {{{"no_rope_layers", json::array()}}, "no_rope_layers is []"},
      {{{"no_rope_layer_interval", 4}}, "no_rope_layer_interval is 4"},
      {{{"position_embedding_type", "alibi"}}, "position_embedding_type is \"alibi\""},
      {{{"alibi", true}}, "alibi is true"},
      {{{"embedding_multiplier", 12.0}}, "embedding_multiplier is 12.0"},
      {{{"attention_multiplier", 0.0078125}}, "attention_multiplier is 0.0078125"},
      {{{"residual_multiplier", 0.22}}, "residual_multiplier is 0.22"},
      {{{"logits_scaling", 8.0}}, "logits_scaling is 8.0"},
      {{{"logit_scale", 0.0625}}, "logit_scale is 0.0625"},
      {{{"scale_emb", 12}}, "scale_emb is 12"},
      {{{"scale_depth", 1.4}}, "scale_depth is 1.4"},
      {{{"dim_model_base", 256}}, "dim_model_base is 256"},
      {{{"attn_logit_softcapping", 50.0}}, "attn_logit_softcapping is 50.0"},
      {{{"final_logit_softcapping", 30.0}}, "final_logit_softcapping is 30.0"},
      {{{"clip_qkv", 8.0}}, "clip_qkv is 8.0"},
      {{{"is_causal", false}}, "is_causal is false"},
      {{{"use_bidirectional_attention", true}}, "use_bidirectional_attention is true"},
      {{{"layer_types", {"full_attention", "sliding_attention"}}}, "layer_types is"},
      {{{"attention_chunk_size", 8}}, "attention_chunk_size is 8"},
      {{{"use_parallel_residual", true}}, "use_parallel_residual is true"},
      {{{"quantization_config", {{"bits", 4}}}}, "quantization_config is"},
      {{{"shift_residual", true}}, "shift_residual is true"},
      {{{"shift_activation", "silu"}}, "shift_activation is"},
      {{{"shift_k", 4}}, "shift_k is 4: must be a whole number from 0 to 3"},
      {{{"shift_k", 2}}, "conv_window is 2"},
      {{{"shift_k", 2}, {"conv_window", 3}}, "states 2 previous tokens for the key, but layer 0 holds taps for 1"},
      {{{"shift_v", 0}}, "states 0 previous tokens for the value, but layer 0 holds taps for 1"},
      {{{"shift_q", 1}}, "states 1 previous tokens for the query, but layer 0 holds no taps"},
      {{{"norm_head", true}}, "--norm-head"},
      {{{"num_key_value_heads", 3}}, "num_key_value_heads is 3: must divide 4 heads"},
      {{{"head_dim", nullptr}}, "num_attention_heads is 4: must divide hidden_size 10"},
      {{{"head_dim", 5}}, "head_dim is 5"},
      {{{"hidden_size", 0}}, "hidden_size is 0"},
      {{{"hidden_size", "10"}}, "hidden_size is \"10\""},
      {{{"hidden_size", 11}}, "config.json requires"},
      {{{"num_hidden_layers", 2000000000}}, "config.json says 2000000000 layers"},
      {{{"num_hidden_layers", 3}},
       "model.layers.2.self_attn.q_proj.weight [24, 10] (num_attention_heads 4, "
       "head_dim 6, hidden_size 10) is missing"},
      {{{"num_hidden_layers", 1}}, "these tensors are not supported"},
      {{{"vocab_size", 20}}, "model.embed_tokens.weight is [19, 10], but config.json requires [20, 10]"},
      {{{"rms_norm_eps", -1}}, "rms_norm_eps is -1"},
      {{{"initializer_range", -0.1}}, "initializer_range is -0.1"},
      {{{"tie_word_embeddings", true}}, "lm_head.weight is not model.embed_tokens.weight"},
      {{{"tie_word_embeddings", 1}}, "must be true or false"}};
  for (const auto& [changes, message] : refused) {
    SCOPED_TRACE(changes.dump());
    write(small_model(kPaper));
    set(changes);
    EXPECT_THAT(fault(), HasSubstr(message));
  }
  write_text(out_ + "/config.json", "{");
  EXPECT_THAT(fault(), HasSubstr("config.json: not valid JSON"));
  const size_t deep = 400'000;  // showing such a value takes more than a stack
  write_text(out_ + "/config.json", "{\"model_type\":" + std::string(deep, '[') + std::string(deep, ']') + "}");
  EXPECT_THAT(fault(), HasSubstr("config.json: nested deeper than 32"));
  fs::remove(out_ + "/config.json");
  EXPECT_THAT(fault(), HasSubstr("config.json"));
}

TEST_F(HuggingFaceImports, KeysThatChangeNothingAreTaken) {
  set({{"rope_scaling", false},
       {"hidden_activation", "silu"},
       {"rope_interleaved", false},
       {"no_rope_layers", {1, 1}},
       {"no_rope_layer_interval", 4},
       {"position_embedding_type", "rope"},
       {"embedding_multiplier", 1},
       {"residual_multiplier", 1.0},
       {"logits_scaling", 1.0},
       {"attention_multiplier", nullptr},
       {"attn_logit_softcapping", nullptr},
       {"is_causal", true},
       {"layer_types", {"full_attention", "full_attention"}},
       {"initializer_range", 0.0}});
  EXPECT_EQ(HuggingFaceSource(out_).model().init_std, 0.02);  // a standard deviation of 0 says nothing of weights
}

// generation_config.json, of what it says, goes before config.json.
TEST_F(HuggingFaceImports, TokensThatEndATextAreReadAndWritten) {
  const auto ends = [&] { return HuggingFaceSource(out_).config().end_tokens; };
  const std::string other = out_ + "/generation_config.json";
  EXPECT_EQ(ends(), std::vector<int64_t>{2});
  set({{"eos_token_id", 5}, {"bos_token_id", 1}});
  EXPECT_EQ(ends(), std::vector<int64_t>{2});
  EXPECT_EQ(HuggingFaceSource(out_).config().begin_token, 1);
  write_text(other, R"({"eos_token_id": [7, 18]})");
  EXPECT_EQ(ends(), (std::vector<int64_t>{7, 18}));
  const HuggingFaceConfig read = HuggingFaceSource(out_).config();
  for (const std::string& text : {to_hugging_face_text(read), generation_config_text(read)}) {
    EXPECT_EQ(json::parse(text)["eos_token_id"], json::parse("[7, 18]"));
    EXPECT_EQ(json::parse(text)["bos_token_id"], 1);
  }
  fs::remove(other);
  EXPECT_EQ(ends(), std::vector<int64_t>{5});
  for (const json& odd : {json("2"), json(2.5), json({7, nullptr})}) {
    set({{"eos_token_id", odd}});
    EXPECT_THAT(fault(), HasSubstr("config.json: eos_token_id is " + odd.dump() + ": must be a token number"));
  }
  set({{"eos_token_id", nullptr}, {"bos_token_id", true}});
  EXPECT_THAT(fault(), HasSubstr("config.json: bos_token_id is true"));
  set({{"bos_token_id", nullptr}});
  EXPECT_EQ(ends(), std::vector<int64_t>{});
}

// As older releases of transformers wrote them where there is none: the model is the same.
TEST_F(HuggingFaceImports, NumbersThatAreNoTokensAreLeftOutWithANote) {
  fs::remove(out_ + "/generation_config.json");
  set({{"eos_token_id", {7, 19}}, {"bos_token_id", -1}});
  const auto read = [&] { return HuggingFaceSource(out_).config(); };
  EXPECT_EQ(read().end_tokens, std::vector<int64_t>{7});
  EXPECT_FALSE(read().begin_token);
  const std::string config = out_ + "/config.json";
  EXPECT_EQ(read().notes, (std::vector<std::string>{config + ": bos_token_id -1 is ignored: tokens are 0 to 18",
                                                    config + ": eos_token_id 19 is ignored: tokens are 0 to 18"}));
  write_text(out_ + "/generation_config.json", R"({"eos_token_id": -1})");
  EXPECT_EQ(read().end_tokens, std::vector<int64_t>{});
  EXPECT_THAT(read().notes.back(), HasSubstr("generation_config.json: eos_token_id -1 is ignored"));
}

// Of a padded vocabulary; an export of ours is one.
TEST_F(HuggingFaceImports, GenerationConfigsMayNameManyTokens) {
  HuggingFaceConfig large = HuggingFaceSource(out_).config();
  large.model.vocab = 200'000;
  large.tokenizer_vocab = 100'000;
  large.end_tokens = {3};
  write_text(out_ + "/generation_config.json", generation_config_text(large));
  EXPECT_GT(fs::file_size(out_ + "/generation_config.json"), 1'000'000);
  EXPECT_EQ(HuggingFaceSource(out_).config().end_tokens, std::vector<int64_t>{3});
}

TEST_F(HuggingFaceImports, TensorsThatAreMissingUnknownOrOdd) {
  const auto change_one = [&](const std::string& name, const std::function<void(SafetensorsTensor&)>& change) {
    write(small_model(kPaper));
    rewrite([&](SafetensorsTensor& tensor, std::vector<float>&) {
      if (tensor.name == name) change(tensor);
    });
    return fault();
  };
  EXPECT_THAT(change_one("model.norm.weight", [](auto& tensor) { tensor.name.clear(); }),
              HasSubstr("tensor model.norm.weight [10] is missing"));
  EXPECT_THAT(change_one("model.layers.1.mlp.up_proj.weight",
                         [](auto& tensor) {
                           tensor.shape = {10, 14};
                         }),
              HasSubstr("model.layers.1.mlp.up_proj.weight is [10, 14], but config.json requires [14, 10]"));
  EXPECT_THAT(change_one("model.layers.1.self_attn.conv_v", [](auto& tensor) { tensor.name.clear(); }),
              HasSubstr("layer 1 holds no taps"));
  EXPECT_THAT(change_one("model.layers.1.self_attn.conv_v",
                         [](auto& tensor) {
                           tensor.shape = {2, 1, 2};
                         }),
              HasSubstr("taps must be [2, n] or"));
  write(small_model(kPaper));
  rewrite([](auto&, auto&) {},
          {{{.name = "model.layers.0.self_attn.q_proj.bias", .shape = {24}}, std::vector<float>(24)}});
  EXPECT_THAT(fault(), HasSubstr("these tensors are not supported:\n  model.layers.0.self_attn.q_proj.bias [24]"));
  write(small_model(kPaper));
  rewrite([](auto&, auto&) {},
          {{{.name = "model.layers.0.self_attn.rotary_emb.inv_freq", .shape = {3}}, std::vector<float>(3)}});
  EXPECT_EQ(HuggingFaceSource(out_).tensors().size(), source_->tensors().size());
}

// Sizes of config.json alone make nothing: these would take more memory than there is, and products that overflow.
TEST_F(HuggingFaceImports, SizesBeyondTheFilesAreRefusedFirst) {
  constexpr int64_t kMost = int64_t{1} << 31;
  const auto refusal = [&](const json& changes) {
    write(small_model(kPaper));
    set(changes);
    return fault();
  };
  const std::string file = out_ + "/model.safetensors: tensor model.";
  EXPECT_THAT(
      refusal({{"num_attention_heads", kMost}}),
      HasSubstr(file + "layers.0.self_attn.q_proj.weight is [24, 10], but config.json requires [12884901888, 10] "
                       "(num_attention_heads 2147483648, head_dim 6, hidden_size 10)"));
  EXPECT_THAT(refusal({{"num_attention_heads", kMost}, {"num_key_value_heads", kMost}, {"head_dim", kMost}}),
              HasSubstr("requires [4611686018427387904, 10]"));
  EXPECT_THAT(refusal({{"num_key_value_heads", 4}}),
              HasSubstr("k_proj.weight is [12, 10], but config.json requires [24, 10] (num_key_value_heads 4, "));
  EXPECT_THAT(refusal({{"hidden_size", kMost}, {"vocab_size", kMost}}),
              HasSubstr("requires [2147483648, 2147483648] (vocab_size 2147483648, hidden_size 2147483648)"));
  EXPECT_THAT(refusal({{"intermediate_size", kMost}}), HasSubstr("(intermediate_size 2147483648, hidden_size 10)"));
}

// Before anything is read: an import that began would end as one of a damaged file.
TEST_F(HuggingFaceImports, TypesThatNoWeightsHave) {
  for (const char* name : {"model.layers.1.mlp.up_proj.weight", "model.layers.0.self_attn.conv_k"}) {
    write(small_model(kPaper));
    rewrite([&](SafetensorsTensor& tensor, std::vector<float>& values) {
      if (tensor.name != name) return;
      tensor.type = SafetensorsType::I8;
      values.resize((tensor.count() + 3) / 4);
    });
    EXPECT_THAT(fault(), HasSubstr(out_ + "/model.safetensors: tensor " + name + " has type I8, but weights must be"));
  }
}

// Two hundred damages of an export. Nothing in it holds a hash of the elements: what hits these is seen by comparison
// alone.
TEST_F(HuggingFaceImports, DamagesOfHeadersAndSizesAreFound) {
  const ModelConfig model = small_model(kPaper);
  HuggingFaceExport how = export_of(model, HuggingFaceForm::kv_shift);
  how.shard_bytes = 2000;
  fs::remove_all(out_);
  write_hugging_face(*source_, how, out_);
  const std::string whole_export = directory_.path() + "/whole", index = "/model.safetensors.index.json";
  fs::copy(out_, whole_export, fs::copy_options::recursive);
  std::vector<std::string> shards;
  for (const std::string& name : names_in(out_)) {
    if (name.ends_with(".safetensors")) shards.push_back("/" + name);
  }
  ASSERT_GE(shards.size(), 3u);
  std::mt19937_64 random(5);
  int refused = 0, compared = 0;
  for (int trial = 0; trial < 200; ++trial) {
    fs::remove_all(out_);
    fs::copy(whole_export, out_, fs::copy_options::recursive);
    const std::string name = trial % 10 == 0 ? index : shards[random() % shards.size()];
    std::string bytes = read_file(out_ + name);
    uint64_t header = 0;
    std::memcpy(&header, bytes.data(), sizeof(header));
    const uint64_t elements = name == index ? bytes.size() : sizeof(header) + header;  // where they begin
    bool in_elements = false;
    switch (name == index ? 0 : trial % 5) {
      case 0:
      case 1: {
        // Neither metadata, which nobody reads, nor spaces, which may become others.
        const size_t first = name == index ? bytes.find("weight_map") : bytes.find("\"model.");
        size_t at = 0;
        do {
          at = name != index && random() % 8 == 0 ? random() % sizeof(header) : first + random() % (elements - first);
        } while (bytes[at] == ' ' || bytes[at] == '\n');
        bytes[at] = static_cast<char>(bytes[at] ^ 1 << random() % 8);
        break;
      }
      case 2:
        bytes.resize(random() % bytes.size());
        break;
      case 3:
        bytes += std::string(1 + random() % 16, '\0');
        break;
      default:
        in_elements = true;
        const size_t at = elements + random() % (bytes.size() - elements);
        bytes[at] = static_cast<char>(bytes[at] ^ 1 << random() % 8);
    }
    SCOPED_TRACE("trial " + std::to_string(trial) + ": " + name);
    write_text(out_ + name, bytes);
    if (in_elements) {
      HuggingFaceSource read(out_), sound(whole_export);
      const auto differences = diff_sources(read, sound);
      EXPECT_EQ(std::ranges::count_if(differences, [](const auto& one) { return one.unequal == 1; }), 1);
      ++compared;
    } else {
      EXPECT_THAT(fault(), HasSubstr(".safetensors"));
      ++refused;
    }
  }
  EXPECT_GE(refused, 150);
  EXPECT_GE(compared, 30);
}

// The names and shapes of the paper's listing, in a directory that states no shift.
TEST_F(HuggingFaceImports, NamesOfThePaper) {
  set({{"model_type", "llama"}});
  rewrite([](SafetensorsTensor& tensor, std::vector<float>&) {
    const auto rename = [&](const std::string& from, const std::string& to) {
      if (!tensor.name.ends_with(from)) return;
      tensor.name.replace(tensor.name.size() - from.size(), from.size(), to);
      tensor.shape = {2, 2};
    };
    rename("conv_k", "K");
    rename("conv_v", "V");
  });
  HuggingFaceSource read(out_);
  EXPECT_EQ(read.model().shift.key, 1);
  EXPECT_EQ(whole(read, "layers.1.attention.shift_key"), source_->values("layers.1.attention.shift_key"));
  EXPECT_EQ(whole(read, "layers.0.attention.shift_value"), source_->values("layers.0.attention.shift_value"));
}

TEST_F(HuggingFaceImports, PackedProjectionsOfBaichuan) {
  set({{"model_type", "baichuan_m1"}, {"sliding_window_layers", json::array()}});
  std::vector<std::pair<SafetensorsTensor, std::vector<float>>> packed;
  for (int layer = 0; layer < 2; ++layer) {
    std::vector<float> rows;
    for (const char* stream : {"query", "key", "value"}) {
      const auto& values = source_->values("layers." + std::to_string(layer) + ".attention." + stream + ".weight");
      rows.insert(rows.end(), values.begin(), values.end());
    }
    packed.push_back(
        {{.name = "model.layers." + std::to_string(layer) + ".self_attn.W_pack.weight", .shape = {48, 10}}, rows});
  }
  rewrite(
      [](SafetensorsTensor& tensor, std::vector<float>&) {
        for (const char* part : {"q_proj", "k_proj", "v_proj"}) {
          if (tensor.name.find(part) != std::string::npos) tensor.name.clear();
        }
      },
      packed);
  EXPECT_THAT(fault(), HasSubstr("--norm-head"));
  HuggingFaceSource read(out_, {.norm_head = true});
  for (const char* stream : {"query", "key", "value"}) {
    const std::string name = std::string("layers.1.attention.") + stream + ".weight";
    EXPECT_EQ(whole(read, name), source_->values(name));
  }
  const std::vector<float> head = whole(read, "head.weight"), raw = source_->values("head.weight");
  for (size_t row = 0; row < 19; ++row) {
    double squares = 0;
    for (size_t i = 0; i < 10; ++i) squares += static_cast<double>(raw[row * 10 + i]) * raw[row * 10 + i];
    for (size_t i = 0; i < 10; ++i)
      EXPECT_EQ(head[row * 10 + i], static_cast<float>(raw[row * 10 + i] / std::sqrt(squares)));
  }
  set({{"sliding_window_layers", {1}}});
  EXPECT_THAT(fault({.norm_head = true}), HasSubstr("sliding_window_layers is [1]"));
}

TEST_F(HuggingFaceImports, ANormedTiedHeadIsUntied) {
  write(small_model(kPaper, 2, true));
  HuggingFaceSource read(out_, {.norm_head = true});
  EXPECT_FALSE(read.model().tie_embeddings);
  EXPECT_EQ(whole(read, "embedding.weight"), source_->values("embedding.weight"));
  const std::vector<float> head = whole(read, "head.weight");
  double squares = 0;
  for (size_t i = 0; i < 10; ++i) squares += static_cast<double>(head[i]) * head[i];
  EXPECT_NEAR(squares, 1, 1e-6);
}

TEST_F(HuggingFaceImports, ATiedHeadMayBeStoredToo) {
  write(small_model(kPaper, 2, true));
  const std::vector<float> table = source_->values("embedding.weight");
  rewrite([](auto&, auto&) {}, {{{.name = "lm_head.weight", .shape = {19, 10}}, table}});
  EXPECT_EQ(HuggingFaceSource(out_).find(TensorGroup::parameters, "head.weight"), -1);
}

// Normed or not, a head that is said to be tied and differs is refused.
TEST_F(HuggingFaceImports, ATiedHeadThatDiffersIsRefusedWithNormHeadToo) {
  write(small_model(kPaper));
  set({{"tie_word_embeddings", true}});
  for (const bool norm : {false, true}) {
    EXPECT_THAT(fault({.norm_head = norm}), HasSubstr("lm_head.weight is not model.embed_tokens.weight"));
  }
  write(small_model(kPaper, 2, true));
  const std::vector<float> table = source_->values("embedding.weight");
  rewrite([](auto&, auto&) {}, {{{.name = "lm_head.weight", .shape = {19, 10}}, table}});
  HuggingFaceSource read(out_, {.norm_head = true});
  EXPECT_FALSE(read.model().tie_embeddings);
  EXPECT_EQ(whole(read, "head.weight").size(), table.size());
}

// A shift that the files lack begins as the identity: the model computes the same.
TEST_F(HuggingFaceImports, ShiftsThatAreAskedFor) {
  HuggingFaceSource wider(out_, {.previous = {1, 3, std::nullopt}});
  EXPECT_EQ(wider.model().shift, (ShiftConfig{.query = 1, .key = 3, .value = 1}));
  const std::vector<float> query = whole(wider, "layers.0.attention.shift_query"),
                           key = whole(wider, "layers.0.attention.shift_key");
  EXPECT_EQ(query, (std::vector<float>{0, 1, 0, 1, 0, 1, 0, 1}));
  const std::vector<float>& raw = source_->values("layers.0.attention.shift_key");
  EXPECT_EQ(key, (std::vector<float>{0, 0, raw[0], raw[1], 0, 0, raw[2], raw[3]}));
  EXPECT_THAT(fault({.previous = {std::nullopt, 0, std::nullopt}}),
              HasSubstr("shift.key 0 is less than the 1 previous tokens"));
  EXPECT_THAT(fault({.previous = {4, std::nullopt, std::nullopt}}), HasSubstr("at most 3"));
  write(small_model({.query = 0, .key = 0, .value = 0}));
  EXPECT_EQ(HuggingFaceSource(out_).model().shift, (ShiftConfig{.query = 0, .key = 0, .value = 0}));
  HuggingFaceSource shifted(out_, {.previous = {std::nullopt, 1, 1}});
  EXPECT_EQ(whole(shifted, "layers.1.attention.shift_value"), (std::vector<float>{0, 1, 0, 1}));
}

TEST_F(HuggingFaceImports, CanonKernelsAreThoseOfHeads) {
  const ModelConfig model = small_model(kPaper);
  fs::remove_all(out_);
  write_hugging_face(*source_, export_of(model, HuggingFaceForm::canon), out_);
  const auto shift_by = [&](size_t element, float by) {
    rewrite([&](SafetensorsTensor& tensor, std::vector<float>& values) {
      if (tensor.name == "model.layers.1.self_attn.canonB.weight") values[element] += by;
    });
  };
  shift_by((24 + 6 + 2) * 2 + 1, 1);  // key head 1, channel 2
  EXPECT_THAT(
      fault(),
      HasSubstr("layer 1, key head 1: the kernel of channel 2 in model.layers.1.self_attn.canonB.weight differs"));
  shift_by((24 + 6 + 2) * 2 + 1, -1);
  rewrite([](SafetensorsTensor& tensor, std::vector<float>& values) {  // y = x + taps(x)
    for (size_t i = 1; tensor.name.ends_with("canonB.weight") && i < values.size(); i += 2) values[i] = 0.25f;
  });
  set({{"canon_residual", true}});
  HuggingFaceSource read(out_);
  EXPECT_EQ(whole(read, "layers.0.attention.shift_value")[1], 1.25f);
  EXPECT_EQ(read.model().shift.query, 1);  // 1.25 is no identity
  for (const auto& [changes, message] :
       std::vector<std::pair<json, const char*>>{{{{"canon_set", "ABCD"}}, "canon_set is"},
                                                 {{{"canon_bias", true}}, "canon_bias is"},
                                                 {{{"canon_activation", true}}, "canon_activation is"}}) {
    set(changes);
    EXPECT_THAT(fault(), HasSubstr(message));
    set({{"canon_set", "B"}, {"canon_bias", false}, {"canon_activation", false}});
  }
}

TEST_F(HuggingFaceImports, OtherTypesAreWidened) {
  const ModelConfig model = small_model(kPaper);
  fs::remove_all(out_);
  write_hugging_face(*source_, export_of(model, HuggingFaceForm::kv_shift, SafetensorsType::F64), out_);
  HuggingFaceSource read(out_);
  for (const ManifestTensor& tensor : read.tensors()) EXPECT_EQ(tensor.dtype, DType::float64) << tensor.name;
  EXPECT_EQ(whole(read, "layers.1.mlp.down.weight"), source_->values("layers.1.mlp.down.weight"));
  EXPECT_EQ(whole(read, "layers.1.attention.shift_key"), source_->values("layers.1.attention.shift_key"));
}

// It is no checkpoint of ours that is damaged.
TEST_F(HuggingFaceImports, AFileThatShrinksWhileItIsRead) {
  HuggingFaceSource read(out_);
  fs::resize_file(out_ + "/model.safetensors", fs::file_size(out_ + "/model.safetensors") / 2);
  const Error error = error_of([&] { whole(read, "final_norm.weight"); });
  EXPECT_EQ(error.code(), ExitCode::crash);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("parameters/final_norm.weight"), HasSubstr("model.safetensors: it ends")));
}

TEST_F(HuggingFaceImports, ThetaOfTransformersFive) {
  json config = config_in(out_);
  config.erase("rope_theta");
  config["rope_parameters"] = {{"rope_theta", 777.0}, {"rope_type", "default"}};
  write_text(out_ + "/config.json", config.dump());
  EXPECT_EQ(HuggingFaceSource(out_).model().rope_base, 777);
  config["rope_scaling"] = config["rope_parameters"];
  write_text(out_ + "/config.json", config.dump());
  EXPECT_EQ(HuggingFaceSource(out_).model().rope_base, 777);
  config["rope_scaling"] = {{"rope_type", "default"}};  // transformers takes this one, and its default theta
  write_text(out_ + "/config.json", config.dump());
  EXPECT_THAT(fault(), HasSubstr("it differs from rope_parameters, which is also set"));
  config.erase("rope_scaling");
  config.erase("rope_parameters");
  write_text(out_ + "/config.json", config.dump());
  EXPECT_EQ(HuggingFaceSource(out_).model().rope_base, 10000);  // Llama's default
}

}  // namespace
}  // namespace shiftron::testing

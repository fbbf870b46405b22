// Exports compute what the model computes, and the check finds where they do not.
#include "interchange/export_check.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "evaluate/generate.h"
#include "interchange/gguf_export.h"
#include "interchange/hugging_face_source.h"
#include "interchange/hugging_face_testing.h"
#include "interchange/plain_forward.h"

namespace shiftron::testing {
namespace {

using LogitRows = std::vector<std::vector<double>>;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

double largest_difference(const LogitRows& a, const LogitRows& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (size_t t = 0; t < a.size(); ++t) {
    for (size_t i = 0; i < a[t].size(); ++i) largest = std::max(largest, std::abs(a[t].at(i) - b[t].at(i)));
  }
  return largest;
}

std::vector<int32_t> sixteen_ids() {
  std::vector<int32_t> ids;
  for (int32_t t = 0; t < 16; ++t) ids.push_back(t * 7 % 19);
  return ids;
}

class ExportCheckTest : public ::testing::TestWithParam<ShiftCase> {
 protected:
  ModelConfig model() const { return model_of(GetParam()); }
  TemporaryDirectory directory_;
};

// One layer after the other is the whole model: the decoder that `generate` uses.
TEST_P(ExportCheckTest, StagesAreTheModel) {
  MemorySource source(model());
  RunConfig config;
  config.model = model();
  config.train.precision = Precision::fp64;
  const auto world = make_single_world();
  const auto fill = [&](ParameterSet& set) {
    for (const auto& parameter : set.parameters()) {
      const std::vector<float>& values = source.values(parameter->spec.name);
      const std::vector<double> wide(values.begin(), values.end());
      set.write(*parameter, ParameterState::master, 0, static_cast<int64_t>(wide.size()), wide.data());
    }
  };
  Decoder decoder(config, fill, *world, {}, 16, 16);
  EXPECT_LE(largest_difference(staged_logits(source, model(), SafetensorsType::F32, sixteen_ids()),
                               decoder.feed(sixteen_ids())),
            1e-12);
}

TEST_P(ExportCheckTest, EveryFormAndPrecisionPasses) {
  MemorySource source(model());
  int exports = 0;
  for (const HuggingFaceForm form : {usual_form(model()), HuggingFaceForm::canon}) {
    if (form == HuggingFaceForm::canon && usual_form(model()) == HuggingFaceForm::llama) continue;
    for (const SafetensorsType type : {SafetensorsType::F32, SafetensorsType::BF16, SafetensorsType::F64}) {
      SCOPED_TRACE(to_string(form) + " " + to_string(type));
      const HuggingFaceExport how = export_of(model(), form, type);
      const std::string out = directory_.path() + "/" + std::to_string(exports++);
      write_hugging_face(source, how, out);
      const ExportCheck check = check_export(source, how.config.model, how.config.type, out);
      EXPECT_TRUE(check.passed) << check.largest_difference << " of " << check.largest_logit;
      EXPECT_GT(check.largest_logit, 0.1);
      if (type == SafetensorsType::BF16) {  // it is the rounded weights that are compared
        EXPECT_GT(largest_difference(shiftron::plain_logits(out, sixteen_ids()),
                                     staged_logits(source, model(), SafetensorsType::F32, sixteen_ids())),
                  1e-5);
      }
    }
  }
}

// The model that is imported again computes the same, with taps of the identity too.
TEST_P(ExportCheckTest, ImportsComputeTheSame) {
  MemorySource source(model());
  const std::string out = directory_.path() + "/out";
  write_hugging_face(source, export_of(model(), usual_form(model()), SafetensorsType::F64), out);
  const LogitRows before = staged_logits(source, model(), SafetensorsType::F64, sixteen_ids());
  for (const int previous : {0, 3}) {
    HuggingFaceImport how;
    if (previous > 0) how.previous = {previous, previous, previous};
    HuggingFaceSource read(out, how);
    const double gated = GetParam().shift.form == ShiftForm::gate ? 1e-6 : 1e-12;
    EXPECT_LE(largest_difference(staged_logits(read, read.model(), SafetensorsType::F64, sixteen_ids()), before), gated)
        << previous;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, ExportCheckTest,
    ::testing::Values(ShiftCase{"vanilla", {.query = 0, .key = 0, .value = 0}, 2, false, 12},
                      ShiftCase{"vanilla_tied", {.query = 0, .key = 0, .value = 0}, 4, true, 12},
                      ShiftCase{"paper", {.query = 0, .key = 1, .value = 1}},
                      ShiftCase{"paper_tied", {.query = 0, .key = 1, .value = 1}, 1, true},
                      ShiftCase{"windows", {.query = 1, .key = 3, .value = 2}, 4},
                      ShiftCase{"gate", {.query = 1, .key = 1, .value = 1, .form = ShiftForm::gate}},
                      ShiftCase{"clamp", {.query = 0, .key = 2, .value = 1, .form = ShiftForm::clamp}},
                      ShiftCase{"project", {.query = 0, .key = 1, .value = 0, .form = ShiftForm::project}}),
    [](const auto& item) { return std::string(item.param.name); });

// Before anything is written, and without advice about training: there is no run.
TEST(ExportCheck, MemoryThatIsMissingIsSaidFirst) {
  ModelConfig model = small_model({.query = 0, .key = 1, .value = 1});
  require_memory_of_check(model);
  model.hidden = int64_t{1} << 20;
  model.vocab = int64_t{1} << 31;  // a head of 2^54 bytes
  const Error error = error_of([&] { require_memory_of_check(model); });
  EXPECT_EQ(error.code(), ExitCode::bad_input);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("bytes are needed to check an export"), HasSubstr("ulimit -v"),
                                  Not(HasSubstr("parallel."))));
}

// Whatever is changed in an export changes its logits by more than is allowed.
// Differences are compared with it, so a model of small logits must not count as one of larger ones.
TEST(ExportCheck, TheLargestLogitIsThatOfTheModel) {
  const ModelConfig model = small_model({});
  MemorySource source(model, 0.01);
  const TemporaryDirectory directory;
  const std::string out = directory.path() + "/out";
  const HuggingFaceExport how = export_of(model, usual_form(model), SafetensorsType::F32);
  write_hugging_face(source, how, out);
  const ExportCheck check = check_export(source, how.config.model, how.config.type, out);
  EXPECT_GT(check.largest_logit, 0);
  EXPECT_LT(check.largest_logit, 0.5);
}

TEST(ExportCheck, SeesWhatIsWrong) {
  TemporaryDirectory directory;
  const ModelConfig model = small_model({.query = 0, .key = 1, .value = 1});
  MemorySource source(model);
  const HuggingFaceExport how = export_of(model, HuggingFaceForm::kv_shift);
  const std::string out = directory.path() + "/out";
  write_hugging_face(source, how, out);
  ASSERT_TRUE(check_export(source, how.config.model, how.config.type, out).passed);
  const std::string config = read_file(out + "/config.json");
  for (const auto& [key, value] :
       std::vector<std::pair<const char*, double>>{{"rms_norm_eps", 1.00001e-3}, {"rope_theta", 12346}}) {
    nlohmann::json changed = nlohmann::json::parse(config);
    changed[key] = value;
    write_text(out + "/config.json", changed.dump());
    EXPECT_FALSE(check_export(source, how.config.model, how.config.type, out).passed) << key;
  }
  write_text(out + "/config.json", config);
  for (const std::string name :
       {"layers.0.attention.shift_key", "layers.1.attention.shift_value", "layers.1.attention.out.weight",
        "layers.0.attention_norm.weight", "layers.1.mlp.up.weight", "final_norm.weight", "head.weight"}) {
    MemorySource other(model);
    other.values(name)[1] += 1e-6f;
    EXPECT_FALSE(check_export(other, how.config.model, how.config.type, out).passed) << name;
  }
  EXPECT_TRUE(check_export(source, how.config.model, how.config.type, out).passed);
}

// The reader of GGUF finds every parameter, and what is wrong in one.
TEST(ExportCheck, GgufComputesTheSame) {
  TemporaryDirectory directory;
  for (const bool tied : {false, true}) {
    const ModelConfig model = small_model({.query = 0, .key = 0, .value = 0}, tied ? 4 : 2, tied);
    MemorySource source(model);
    for (const SafetensorsType type : {SafetensorsType::F32, SafetensorsType::F16, SafetensorsType::BF16}) {
      SCOPED_TRACE(to_string(type));
      const std::string out = directory.path() + "/" + to_string(type) + std::to_string(tied);
      write_gguf(source, {.model = model, .type = type, .positions = 64, .entries = {}}, out);
      const StoredTypes types(type, SafetensorsType::F32);
      const ExportCheck check = check_export(source, gguf_rounded(model), types, out);
      EXPECT_TRUE(check.passed) << check.largest_difference << " of " << check.largest_logit;
      EXPECT_GT(check.largest_logit, 0.1);
      if (type != SafetensorsType::F32) {  // it is the rounded weights that are compared, and the norms are not rounded
        EXPECT_FALSE(check_export(source, gguf_rounded(model), SafetensorsType::F32, out).passed);
        EXPECT_FALSE(check_export(source, gguf_rounded(model), type, out).passed);
      }
      for (const std::string name :
           {"layers.0.attention.query.weight", "layers.1.attention.key.weight", "layers.1.attention.out.weight",
            "layers.0.attention_norm.weight", "layers.1.mlp.up.weight", "final_norm.weight", "embedding.weight"}) {
        MemorySource other(model);
        other.values(name)[1] += type == SafetensorsType::F32 ? 1e-6f : 0.05f;
        if (name == "embedding.weight") {
          for (float& value : other.values(name)) value += 0.05f;
        }
        EXPECT_FALSE(check_export(other, gguf_rounded(model), types, out).passed) << name;
      }
    }
  }
}

}  // namespace
}  // namespace shiftron::testing

// Manually changed exports, for tests of imports.
#pragma once

#include <nlohmann/json.hpp>

#include "checkpoint/elements.h"
#include "expect_error.h"
#include "interchange/hugging_face_source.h"
#include "interchange/hugging_face_testing.h"

namespace shiftron::testing {

using nlohmann::json;

inline const ShiftConfig kPaper{.query = 0, .key = 1, .value = 1};

inline std::vector<float> whole(TensorSource& source, const std::string& name) {
  const int index = source.find(TensorGroup::parameters, name);
  EXPECT_GE(index, 0) << name;
  const Shape shape = source.tensors()[static_cast<size_t>(index)].shape;
  std::vector<std::byte> bytes, room;
  read_elements(source, index, whole_box(shape), DType::float32, bytes, room);
  std::vector<float> values(static_cast<size_t>(shape.count()));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

inline json config_in(const std::string& directory) {
  return json::parse(read_file(directory + "/config.json"));
}

// An export that is changed by hand.
class HuggingFaceImports : public ::testing::Test {
 protected:
  void SetUp() override { write(small_model(kPaper)); }
  void write(const ModelConfig& model) {
    fs::remove_all(out_);
    source_.emplace(model);
    write_hugging_face(*source_, export_of(model, usual_form(model)), out_);
  }
  void set(const json& changes) {
    json config = config_in(out_);
    config.update(changes);
    write_text(out_ + "/config.json", config.dump());
  }
  // Rewrites all tensors; `change` may rename, reshape or drop (empty name) one, or change its values.
  void rewrite(const std::function<void(SafetensorsTensor&, std::vector<float>&)>& change,
               const std::vector<std::pair<SafetensorsTensor, std::vector<float>>>& more = {}) {
    auto all = more;
    {
      const SafetensorsFile file(out_ + "/model.safetensors");
      for (SafetensorsTensor tensor : file.tensors()) {
        std::vector<float> values(tensor.count());
        file.read(tensor, 0, values.size(), values.data());
        change(tensor, values);
        if (!tensor.name.empty()) all.emplace_back(tensor, values);
      }
    }
    fs::remove(out_ + "/model.safetensors");
    std::vector<SafetensorsTensor> tensors;
    for (const auto& [tensor, values] : all) tensors.push_back(tensor);
    SafetensorsWriter writer(out_ + "/model.safetensors", tensors, {});
    for (const auto& [tensor, values] : all) writer.append(values.data(), values.size() * sizeof(float));
    writer.finish();
  }
  std::string fault(const HuggingFaceImport& how = {}) {
    const Error error = error_of([&] { const HuggingFaceSource read(out_, how); });
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    return error.what();
  }
  TemporaryDirectory directory_;
  const std::string out_ = directory_.path() + "/out";
  std::optional<MemorySource> source_;
};

}  // namespace shiftron::testing

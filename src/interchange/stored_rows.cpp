// Rows are read in the source's type and rounded once.
#include "interchange/stored_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "checkpoint/boxes.h"
#include "core/check.h"
#include "interchange/half.h"
#include "interchange/hugging_face_names.h"
#include "kernels/element.h"

namespace shiftron {
namespace {

constexpr int64_t kPiece = int64_t{1} << 20;  // elements in memory at once, or one entry of dim 0

template <typename To>
void put(std::vector<std::byte>& bytes, int64_t index, To value) {
  std::memcpy(bytes.data() + static_cast<size_t>(index) * sizeof(To), &value, sizeof(To));
}

}  // namespace

template <typename From>
void store_values(const From* from, int64_t first, int64_t count, SafetensorsType type, const std::string& path,
                  std::vector<std::byte>& bytes) {
  bytes.resize(static_cast<size_t>(count) * size_of(type));
  for (int64_t i = 0; i < count; ++i) {
    const auto value = to_accumulate(from[i]);
    const auto single = static_cast<float>(value);
    if (!std::isfinite(value)) {
      throw_bad_input(path, " holds a value that is not finite at element ", first + i, ": this step cannot be used");
    }
    if (type != SafetensorsType::F64 && !std::isfinite(stored_value(single, type))) {
      throw_bad_input(path, " holds ", value, " at element ", first + i, ", which is too large for ", to_string(type),
                      "; choose another precision");
    }
    if (type == SafetensorsType::F64) {
      put(bytes, i, static_cast<double>(value));
    } else if (type == SafetensorsType::F32) {
      put(bytes, i, single);
    } else if (type == SafetensorsType::F16) {
      put(bytes, i, float_to_half(single));
    } else if constexpr (std::is_same_v<From, bfloat16>) {
      put(bytes, i, from[i]);
    } else {
      put(bytes, i, weight_half(single));
    }
  }
}
template void store_values(const double*, int64_t, int64_t, SafetensorsType, const std::string&,
                           std::vector<std::byte>&);
template void store_values(const float*, int64_t, int64_t, SafetensorsType, const std::string&,
                           std::vector<std::byte>&);
template void store_values(const bfloat16*, int64_t, int64_t, SafetensorsType, const std::string&,
                           std::vector<std::byte>&);

double stored_value(double value, SafetensorsType type) {
  if (type == SafetensorsType::F64) return value;
  const auto single = static_cast<float>(value);
  if (type == SafetensorsType::F32) return single;
  return type == SafetensorsType::F16 ? half_to_float(float_to_half(single)) : to_accumulate(weight_half(single));
}

StoredRows::StoredRows(TensorSource& source, const ModelConfig& model) : source_(source) {
  for (const HuggingFaceName& name : hugging_face_names(model)) shapes_[name.ours] = name.shape;
}

int StoredRows::find(const std::string& name) const {
  const Shape& shape = shapes_.at(name);
  const int index = source_.find(TensorGroup::parameters, name);
  if (index < 0) throw_bad_input("parameters/", name, " is missing in the checkpoint");
  const ManifestTensor& tensor = source_.tensors()[static_cast<size_t>(index)];
  if (!(tensor.shape == shape)) {
    throw_bad_input(tensor.path(), " is ", tensor.shape.text(), " in the checkpoint, but its configuration requires ",
                    shape.text());
  }
  return index;
}

DType StoredRows::read(int index, const Box& box, std::vector<std::byte>& values) {
  const DType type = source_.tensors()[static_cast<size_t>(index)].dtype;
  values.resize(static_cast<size_t>(box.extent.count() * size_of(type)));
  source_.read(index, box, values.data());
  return type;
}

void StoredRows::for_each_piece(const std::string& name, SafetensorsType type, const Visit& visit) {
  const int index = find(name);
  for_each_rows(whole_box(shapes_.at(name)), kPiece, [&](const Box& box, int64_t first) {
    for_type(read(index, box, values_), [&](auto element) {
      const auto* from = reinterpret_cast<const decltype(element)*>(values_.data());
      store_values(from, first, box.extent.count(), type, "parameters/" + name, bytes_);
    });
    visit(bytes_);
  });
}

}  // namespace shiftron

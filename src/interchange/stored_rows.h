// Parameters of a source as the bytes that a file of another program stores, piece by piece.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "interchange/safetensors.h"
#include "model/config.h"

namespace shiftron {

// `count` values of a tensor, from its element `first` on, as `type` (F64, F32, F16, BF16) stores them. bfloat16 is
// what a bf16 run's matrix products read (the nearest, ties away from zero), float16 the nearest, ties to even. Throws
// Error(bad_input) that names tensor and element if a value is not finite, or too large for the type.
template <typename From>
void store_values(const From* from, int64_t first, int64_t count, SafetensorsType type, const std::string& path,
                  std::vector<std::byte>& bytes);
// A value as store_values() would store it, as a number.
double stored_value(double value, SafetensorsType type);

class StoredRows {
 public:
  StoredRows(TensorSource& source, const ModelConfig& model);

  // Index of the model's parameter in the source. Throws Error(bad_input) if it is missing or has another shape.
  int find(const std::string& name) const;
  // Reads the elements of the box into `values`; returns their type, which is the source's.
  DType read(int index, const Box& box, std::vector<std::byte>& values);
  // Visits the parameter's elements in order, whole entries of dim 0 at a time; memory: a few megabytes, or one entry.
  using Visit = std::function<void(std::vector<std::byte>& bytes)>;
  void for_each_piece(const std::string& name, SafetensorsType type, const Visit& visit);

 private:
  TensorSource& source_;
  std::map<std::string, Shape> shapes_;  // of the model's parameters
  std::vector<std::byte> values_, bytes_;
};

}  // namespace shiftron

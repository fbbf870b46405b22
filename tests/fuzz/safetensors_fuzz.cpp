// Bytes as a safetensors file. An accepted file keeps the format's rules: tensors are next to each other within the
// file, can be read, and are the same after they are written again.
#include <bit>

#include "fuzz/memory_file.h"
#include "interchange/safetensors.h"

namespace shiftron::fuzz {
namespace {

bool is_floating(SafetensorsType type) {
  return type == SafetensorsType::F64 || type == SafetensorsType::F32 || type == SafetensorsType::F16 ||
         type == SafetensorsType::BF16;
}

}  // namespace

std::string read_input(std::string_view bytes) {
  const MemoryFile input(bytes);
  return refusal_of([&] {
    const SafetensorsFile file(input.path());
    uint64_t at = file.tensors().empty() ? bytes.size() : file.tensors().front().begin;
    for (const SafetensorsTensor& tensor : file.tensors()) {
      require(tensor.shape.size() <= kMostSafetensorsDims && tensor.name.size() <= kLongestSafetensorsName, "bounds");
      require(tensor.begin == at, "tensors lie side by side");
      at += tensor.bytes();
      if (!is_floating(tensor.type)) continue;
      std::vector<double> wide(tensor.count());
      std::vector<float> narrow(tensor.count());
      file.read(tensor, 0, tensor.count(), wide.data());
      file.read(tensor, 0, tensor.count(), narrow.data());
      for (size_t i = 0; i < wide.size() && tensor.type != SafetensorsType::F64; ++i) {
        require(std::bit_cast<uint64_t>(wide[i]) == std::bit_cast<uint64_t>(static_cast<double>(narrow[i])) ||
                    wide[i] != wide[i],
                "a float is a double");
      }
    }
    require(at == bytes.size(), "tensors end where the file does");
    shown_name(std::string(bytes));
  });
}

}  // namespace shiftron::fuzz

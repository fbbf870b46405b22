// Ranges of strided tensors.
#include "core/operands.h"

#include "core/sanitizer.h"

namespace shiftron {
namespace {

template <typename Visit>
void for_each_range(const ConstTensor& tensor, const Visit& visit) {
  if (!tensor.defined() || tensor.raw() == nullptr || tensor.count() == 0) return;
  auto* begin = static_cast<char*>(const_cast<void*>(tensor.raw()));
  if (tensor.contiguous()) return visit(begin, static_cast<size_t>(tensor.bytes()));
  const int last = tensor.dims() - 1;
  const auto row_bytes = static_cast<size_t>(tensor.extent(last) * size_of(tensor.dtype()));
  for (int64_t row = 0; row < tensor.count() / tensor.extent(last); ++row) {
    visit(begin + row_offset(tensor, row) * size_of(tensor.dtype()), row_bytes);
  }
}

}  // namespace

void state_read(const ConstTensor& tensor) {
  if constexpr (sanitizer::kThreads) for_each_range(tensor, sanitizer::state_read);
}

void state_write(const Tensor& tensor) {
  if constexpr (sanitizer::kThreads) for_each_range(tensor, sanitizer::state_write);
}

}  // namespace shiftron

// Reference implementation of masters in two halves.
#include "kernels/bodies.h"
#include "kernels/element.h"

namespace shiftron::specification {

void split_master(const CpuOptions&, ConstTensor master, Tensor weight, Tensor rest) {
  for (int64_t i = 0; i < master.count(); ++i) {
    weight.data<bfloat16>()[i] = weight_half(master.data<float>()[i]);
    rest.data<uint16_t>()[i] = rest_half(master.data<float>()[i]);
  }
}

void join_master(const CpuOptions&, ConstTensor weight, ConstTensor rest, Tensor master) {
  for (int64_t i = 0; i < master.count(); ++i) {
    master.data<float>()[i] = join_halves(weight.data<bfloat16>()[i], rest.data<uint16_t>()[i]);
  }
}

}  // namespace shiftron::specification

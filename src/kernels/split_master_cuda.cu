// Masters in two halves in CUDA.
#include "kernels/bodies.h"
#include "kernels/element.h"
#include "kernels/pieces_cuda.h"

namespace shiftron::cuda {
namespace {

struct Split {
  static constexpr int kPack = kPackOf<bfloat16>;
  const float* master;
  bfloat16* weight;
  uint16_t* rest;
  template <int kCount>
  __device__ void piece(const int64_t (&at)[3]) const {
    const auto masters = load_elements<kCount>(master + at[0]);
    Elements<bfloat16, kCount> weights;
    Elements<uint16_t, kCount> rests;
    for (int i = 0; i < kCount; ++i) {
      weights[i] = weight_half(masters[i]);
      rests[i] = rest_half(masters[i]);
    }
    store_elements(weight + at[1], weights);
    store_elements(rest + at[2], rests);
  }
};

struct Join {
  static constexpr int kPack = kPackOf<bfloat16>;
  const bfloat16* weight;
  const uint16_t* rest;
  float* master;
  template <int kCount>
  __device__ void piece(const int64_t (&at)[3]) const {
    const auto weights = load_elements<kCount>(weight + at[0]);
    const auto rests = load_elements<kCount>(rest + at[1]);
    Elements<float, kCount> masters;
    for (int i = 0; i < kCount; ++i) masters[i] = join_halves(weights[i], rests[i]);
    store_elements(master + at[2], masters);
  }
};

}  // namespace

void split_master(const CudaContext& context, ConstTensor master, Tensor weight, Tensor rest) {
  const Split split{device_data<float>(master), device_data<bfloat16>(weight), device_data<uint16_t>(rest)};
  for_each_piece("split_master", context.stream, split, master, weight, rest);
}

void join_master(const CudaContext& context, ConstTensor weight, ConstTensor rest, Tensor master) {
  const Join join{device_data<bfloat16>(weight), device_data<uint16_t>(rest), device_data<float>(master)};
  for_each_piece("join_master", context.stream, join, weight, rest, master);
}

}  // namespace shiftron::cuda

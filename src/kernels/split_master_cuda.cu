// Masters in two halves in CUDA.
#include "kernels/bodies.h"
#include "kernels/element.h"
#include "kernels/pieces_cuda.h"

namespace shiftron::cuda {
namespace {

struct Split {
  static constexpr int kPack = Pack<bfloat16>::kCount;
  const float* master;
  bfloat16* weight;
  uint16_t* rest;
  template <int kCount>
  __device__ void piece(const int64_t (&at)[3]) const {
    float masters[kCount];
    bfloat16 weights[kCount];
    uint16_t rests[kCount];
    load_piece(master + at[0], masters);
    for (int i = 0; i < kCount; ++i) {
      weights[i] = weight_half(masters[i]);
      rests[i] = rest_half(masters[i]);
    }
    store_piece(weight + at[1], weights);
    store_piece(rest + at[2], rests);
  }
};

struct Join {
  static constexpr int kPack = Pack<bfloat16>::kCount;
  const bfloat16* weight;
  const uint16_t* rest;
  float* master;
  template <int kCount>
  __device__ void piece(const int64_t (&at)[3]) const {
    bfloat16 weights[kCount];
    uint16_t rests[kCount];
    float masters[kCount];
    load_piece(weight + at[0], weights);
    load_piece(rest + at[1], rests);
    for (int i = 0; i < kCount; ++i) masters[i] = join_halves(weights[i], rests[i]);
    store_piece(master + at[2], masters);
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

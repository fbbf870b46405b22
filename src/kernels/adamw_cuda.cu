// AdamW in CUDA in one pass over memory (Loshchilov and Hutter 2019): clip factor, moments, decay, update.
#include <cmath>

#include "kernels/bodies.h"
#include "kernels/element.h"
#include "kernels/pieces_cuda.h"

namespace shiftron::cuda {
namespace {

struct Factors {
  bool skip;
  float gradient, beta1, keep1, beta2, keep2, decay, step, root, epsilon;
};

// From the scalars of the update, in float64 and rounded once.
__device__ Factors factors_of(const AdamW& parameters, const double* scalars) {
  const double learning_rate = scalars[kLearningRate] * parameters.learning_rate_scale;
  return {.skip = scalars[kSkip] != 0,
          .gradient = static_cast<float>(scalars[kGradientFactor]),
          .beta1 = static_cast<float>(parameters.beta1),
          .keep1 = static_cast<float>(1 - parameters.beta1),
          .beta2 = static_cast<float>(parameters.beta2),
          .keep2 = static_cast<float>(1 - parameters.beta2),
          .decay = static_cast<float>(1 - learning_rate * parameters.weight_decay),
          .step = static_cast<float>(learning_rate / scalars[kBiasCorrection1]),
          .root = static_cast<float>(std::sqrt(scalars[kBiasCorrection2])),
          .epsilon = static_cast<float>(parameters.epsilon)};
}

// Where masters lie: whole, or in two halves.
struct Whole {
  static constexpr int kPack = kPackOf<float>;
  float* masters;
  template <int kCount>
  __device__ Elements<float, kCount> load(int64_t begin) const {
    return load_elements<kCount>(masters + begin);
  }
  template <int kCount>
  __device__ void store(int64_t begin, const Elements<float, kCount>& p) const {
    store_elements(masters + begin, p);
  }
};
struct Halves {
  static constexpr int kPack = kPackOf<bfloat16>;
  bfloat16* weight;
  uint16_t* rest;
  template <int kCount>
  __device__ Elements<float, kCount> load(int64_t begin) const {
    const auto weights = load_elements<kCount>(weight + begin);
    const auto rests = load_elements<kCount>(rest + begin);
    Elements<float, kCount> p;
    for (int i = 0; i < kCount; ++i) p[i] = join_halves(weights[i], rests[i]);
    return p;
  }
  template <int kCount>
  __device__ void store(int64_t begin, const Elements<float, kCount>& p) const {
    Elements<bfloat16, kCount> weights;
    Elements<uint16_t, kCount> rests;
    for (int i = 0; i < kCount; ++i) {
      weights[i] = weight_half(p[i]);
      rests[i] = rest_half(p[i]);
    }
    store_elements(weight + begin, weights);
    store_elements(rest + begin, rests);
  }
};

template <int kCount, typename Masters>
__global__ void __launch_bounds__(kBlockThreads)
    adamw_kernel(AdamW parameters, const double* scalars, int64_t count, const float* gradient, Masters masters,
                 float* first_moment, float* second_moment) {
  await_earlier_kernels();
  SHARED_ARRAY(Factors, factors, [1]);
  if (threadIdx.x == 0) factors[0] = factors_of(parameters, scalars);
  __syncthreads();
  const Factors by = factors[0];
  const int64_t begin = piece_begin<kCount>();
  if (by.skip || begin >= count) return;
  const auto gradients = load_elements<kCount>(gradient + begin);
  auto m = load_elements<kCount>(first_moment + begin);
  auto v = load_elements<kCount>(second_moment + begin);
  auto p = masters.template load<kCount>(begin);
  // Which products a compiler would join with sums is its choice, in packs another one than without: so they are named,
  // and an element's bits do not depend on where its rank's part begins.
  for (int i = 0; i < kCount; ++i) {
    const float g = gradients[i] * by.gradient;
    m[i] = fmaf(by.beta1, m[i], by.keep1 * g);
    v[i] = fmaf(by.beta2, v[i], by.keep2 * g * g);
    p[i] = fmaf(p[i], by.decay, -(by.step * m[i] / (sqrtf(v[i]) / by.root + by.epsilon)));
  }
  store_elements(first_moment + begin, m);
  store_elements(second_moment + begin, v);
  masters.store(begin, p);
}

}  // namespace

void adamw(const CudaContext& context, const AdamW& parameters, ConstTensor scalars, ConstTensor gradient,
           Tensor weight, Tensor rest, Tensor first_moment, Tensor second_moment) {
  constexpr const char* kName = "adamw";
  check_float32(kName, gradient.dtype());
  const int64_t count = gradient.count();
  const bool packs = in_packs({flat(gradient), flat(weight), flat(rest), flat(first_moment), flat(second_moment)});
  const auto go = [&](auto masters) {
    using Masters = decltype(masters);
    const auto launch_pieces = [&](auto kernel, int piece) {
      launch_kernel(kName, kernel, piece_grid(count, piece), kBlockThreads, context.stream, parameters,
                    device_data<double>(scalars), count, device_data<float>(gradient), masters,
                    device_data<float>(first_moment), device_data<float>(second_moment));
    };
    if (packs) {
      launch_pieces(adamw_kernel<Masters::kPack, Masters>, Masters::kPack);
    } else {
      launch_pieces(adamw_kernel<1, Masters>, 1);
    }
  };
  if (rest.defined()) {
    go(Halves{device_data<bfloat16>(weight), device_data<uint16_t>(rest)});
  } else {
    go(Whole{device_data<float>(weight)});
  }
}

}  // namespace shiftron::cuda

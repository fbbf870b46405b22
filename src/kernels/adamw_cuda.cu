// AdamW in CUDA in one pass over memory (Loshchilov and Hutter 2019): clip factor, moments, decay, update, bounds.
#include <cmath>

#include "kernels/bodies.h"
#include "kernels/element.h"
#include "kernels/part_list_cuda.h"
#include "kernels/pieces_cuda.h"

namespace shiftron::cuda {
namespace {

struct Factors {
  bool skip;
  float gradient, beta1, keep1, beta2, keep2, decay, step, root, epsilon;
};

// Computed from the scalars of the update in float64, and rounded once.
__device__ Factors factors_of(const AdamW& how, double weight_decay, double learning_rate_scale,
                              const double* scalars) {
  const double learning_rate = scalars[kLearningRate] * learning_rate_scale;
  return {.skip = scalars[kSkip] != 0,
          .gradient = static_cast<float>(scalars[kGradientFactor]),
          .beta1 = static_cast<float>(how.beta1),
          .keep1 = static_cast<float>(1 - how.beta1),
          .beta2 = static_cast<float>(how.beta2),
          .keep2 = static_cast<float>(1 - how.beta2),
          .decay = static_cast<float>(1 - learning_rate * weight_decay),
          .step = static_cast<float>(learning_rate / scalars[kBiasCorrection1]),
          .root = static_cast<float>(std::sqrt(scalars[kBiasCorrection2])),
          .epsilon = static_cast<float>(how.epsilon)};
}

// How masters are stored: whole, or in two halves.
struct Whole {
  static constexpr int kPack = kPackOf<float>;
  static constexpr bool kSplit = false;
  float* masters;
  static Whole of(const AdamWParameter& parameter) { return {device_data<float>(parameter.weight)}; }
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
  static constexpr bool kSplit = true;
  bfloat16* weight;
  uint16_t* rest;
  static Halves of(const AdamWParameter& parameter) {
    return {device_data<bfloat16>(parameter.weight), device_data<uint16_t>(parameter.rest)};
  }
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

// One parameter of a launch.
template <typename Masters>
struct Part {
  Masters masters;
  const float* gradient;
  float *first_moment, *second_moment;
  int64_t count;
  double weight_decay, learning_rate_scale;
  bool to_unit_interval;
  bool packs;  // whether all tensors can be read in packs
};

template <int kCount, typename Masters>
__device__ void update_piece(const Factors& by, const Part<Masters>& part, int64_t piece) {
  const int64_t begin = piece * kCount;
  if (begin >= part.count) return;
  const auto gradients = load_elements<kCount>(part.gradient + begin);
  auto m = load_elements<kCount>(part.first_moment + begin);
  auto v = load_elements<kCount>(part.second_moment + begin);
  auto p = part.masters.template load<kCount>(begin);
  // A compiler may choose which products to fuse with additions, and chooses differently with packs and without. So
  // fused operations are explicit, and the bits of an element do not depend on where its rank's part begins.
  for (int i = 0; i < kCount; ++i) {
    const float g = gradients[i] * by.gradient;
    m[i] = fmaf(by.beta1, m[i], by.keep1 * g);
    v[i] = fmaf(by.beta2, v[i], by.keep2 * g * g);
    p[i] = fmaf(p[i], by.decay, -(by.step * m[i] / (sqrtf(v[i]) / by.root + by.epsilon)));
    if (part.to_unit_interval) p[i] = p[i] < 0.0f ? 0.0f : p[i] > 1.0f ? 1.0f : p[i];
  }
  store_elements(part.first_moment + begin, m);
  store_elements(part.second_moment + begin, v);
  part.masters.store(begin, p);
}

template <typename Masters>
__global__ void __launch_bounds__(kBlockThreads)
    adamw_kernel(AdamW how, const double* scalars, PartList<Part<Masters>> list) {
  await_earlier_kernels();
  SHARED_ARRAY(Factors, factors, [1]);
  const PlaceInList at = place_in(list);
  const Part<Masters>& part = list.parts[at.part];
  if (threadIdx.x == 0) factors[0] = factors_of(how, part.weight_decay, part.learning_rate_scale, scalars);
  __syncthreads();
  const Factors by = factors[0];
  if (by.skip) return;
  const int64_t piece = int64_t{at.block} * kBlockThreads + threadIdx.x;
  if (part.packs) {
    update_piece<Masters::kPack>(by, part, piece);
  } else {
    update_piece<1>(by, part, piece);
  }
}

constexpr const char* kName = "adamw";

// Updates the parameters whose masters are stored in this way.
template <typename Masters>
void update_all(const CudaContext& context, const AdamW& how, const ConstTensor& scalars,
                const std::vector<AdamWParameter>& parameters) {
  auto parts = launcher_of<Part<Masters>>([&](const PartList<Part<Masters>>& list, int64_t) {
    launch_kernel(kName, adamw_kernel<Masters>, Grid{.x = list.blocks}, kBlockThreads, context.stream, how,
                  device_data<double>(scalars), list);
  });
  for (const AdamWParameter& parameter : parameters) {
    const auto& [weight_decay, learning_rate_scale, to_unit_interval, gradient, weight, rest, first_moment,
                 second_moment] = parameter;
    const int64_t count = gradient.count();
    if (rest.defined() != Masters::kSplit || count == 0) continue;
    const bool packs = in_packs({flat(gradient), flat(weight), flat(rest), flat(first_moment), flat(second_moment)});
    parts.add({.masters = Masters::of(parameter),
               .gradient = device_data<float>(gradient),
               .first_moment = device_data<float>(first_moment),
               .second_moment = device_data<float>(second_moment),
               .count = count,
               .weight_decay = weight_decay,
               .learning_rate_scale = learning_rate_scale,
               .to_unit_interval = to_unit_interval,
               .packs = packs},
              piece_grid(count, packs ? Masters::kPack : 1).x);
  }
  parts.launch_rest();
}

}  // namespace

void adamw(const CudaContext& context, const AdamW& how, ConstTensor scalars,
           const std::vector<AdamWParameter>& parameters) {
  check_float32(kName, parameters.front().gradient.dtype());
  update_all<Whole>(context, how, scalars, parameters);
  update_all<Halves>(context, how, scalars, parameters);
}

}  // namespace shiftron::cuda

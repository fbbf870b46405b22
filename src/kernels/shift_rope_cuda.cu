// KV shift (paper, equations 8 and 9) fused with rotary positions in CUDA. A thread has the neighbouring elements of a
// row that one access reads and, if rows are rotated, their partners in the other half, for a few heads, which share
// their angles. With the paper's taps it goes through consecutive rows and keeps what it read of the previous one. One
// launch handles all streams of a call, because one alone is too short to fill a GPU.
#include <algorithm>

#include "kernels/bodies.h"
#include "kernels/part_list_cuda.h"
#include "kernels/scratch.h"
#include "kernels/shift_rows_cuda.h"

namespace shiftron::cuda {
namespace {

constexpr int kTaps = 2;  // taps whose rows are loaded, and whose gradients are summed, at a time
// Heads per thread, limited by registers. With more taps, their sums are computed in several rounds.
template <int kParts, bool kFewTaps>
constexpr int kForwardHeads = kFewTaps ? 4 / kParts : 1;
template <int kParts, bool kFewTaps>
constexpr int kBackwardHeads = kFewTaps&& kParts == 1 ? 2 : 1;

// What the blocks of one stream need: x and carried in forward, d_y and x in backward.
template <typename T>
struct StreamRows {
  ShiftCall call;
  ShiftShares shares;
  HeadRows<const T> x, carried, d_y;
  HeadRows<T> result;
  float* partial = nullptr;  // [heads, count, runs]
};

// The streams of a launch; the blocks of one stream follow those of another.
template <typename OneStream>
using Streams = PartList<OneStream, kShiftStreams>;

// Without taps kRows is 1, and direction −1 is the whole backward.
template <typename T, int kWidth, int kParts, bool kFewTaps, int kRows = kTaps>
__device__ void mix_rows(const ShiftCall& call, const ShiftShares& shares, unsigned block, const HeadRows<const T>& x,
                         const HeadRows<const T>& carried, float direction, const HeadRows<T>& y) {
  constexpr int kMost = kForwardHeads<kParts, kFewTaps>;
  shares.each<kWidth>(block, [&](int64_t t, int64_t first_head, int64_t element) {
    const OwnHeads<kMost> heads(call, shares, first_head);
    const Angles<kWidth, kParts> angles(call, t, element, true);
    HeadValues<kWidth, kParts> z[kMost] = {};
    for (int64_t first = 0; first < (kRows == 1 ? 1 : call.count); first += kRows) {
      HeadPiece<T, kWidth, kParts> of_x[kRows][kMost];
      for (int i = 0; i < kRows; ++i) {
        const int64_t row = t - first - i;
        const bool there = first + i < call.count && row >= -call.carried_rows;
        const auto from = x.either(carried, row < 0);
        heads.load(of_x[i], from, row < 0 ? call.carried_rows + row : row, element, call.partner, there);
      }
      for (int i = 0; i < kRows; ++i) {
        if (first + i >= call.count) break;
        const bool mixes = call.mixes(t, t - first - i);
        for (int k = 0; k < kMost; ++k) {
          of_x[i][k].keep(mixes);
          add_product(z[k], heads.factor(call, k, first + i, mixes), values_of(of_x[i][k]));
        }
      }
    }
    for (int k = 0; k < kMost; ++k) z[k] = angles.rotated(z[k], direction);
    heads.store(y, t, element, call.partner, z);
  });
}

// For at most two taps: a thread goes forward through its rows and loads each one while it mixes the previous one.
template <typename T, int kWidth, int kParts>
__device__ void walk_rows(const StreamRows<T>& stream, unsigned block) {
  const ShiftCall& call = stream.call;
  constexpr int kMost = kForwardHeads<kParts, true>;
  stream.shares.template each_run<kWidth>(block, [&](int64_t begin, int64_t end, int64_t first_head, int64_t element) {
    const OwnHeads<kMost> heads(call, stream.shares, first_head);
    const TwoTaps taps(call, heads);
    HeadPiece<T, kWidth, kParts> before[kMost], now[kMost], next[kMost];
    const int64_t first = begin - 1;
    heads.load(before, stream.x.either(stream.carried, first < 0), first < 0 ? call.carried_rows + first : first,
               element, call.partner, call.count > 1 && first >= -call.carried_rows);
    heads.load(now, stream.x, begin, element, call.partner, true);
    RowPlace place = call.place(begin, true);
    for (int64_t t = begin; t < end; ++t) {
      const RowPlace next_place = call.place(t + 1, t + 1 < end);
      heads.load(next, stream.x, t + 1, element, call.partner, t + 1 < end);
      const bool mixes = call.count > 1 && call.mixes(place, t - 1);
      const Angles<kWidth, kParts> angles(call, place, element);
      HeadValues<kWidth, kParts> z[kMost] = {};
      for (int k = 0; k < kMost; ++k) {
        before[k].keep(mixes);
        add_product(z[k], taps.own[k], values_of(now[k]));
        add_product(z[k], mixes ? taps.earlier[k] : 0.0f, values_of(before[k]));
        z[k] = angles.rotated(z[k], 1.0f);
        before[k] = now[k];
        now[k] = next[k];
      }
      heads.store(stream.result, t, element, call.partner, z);
      place = next_place;
    }
  });
}

// Products of gradients and rows, for each tap and head of each thread.
template <int kMost>
using TapProducts = float[kTaps][kMost][kBlockThreads];

template <int kMost>
__device__ void clear(TapProducts<kMost>& of_threads) {
  for (int i = 0; i < kTaps; ++i) {
    for (int k = 0; k < kMost; ++k) of_threads[i][k][threadIdx.x] = 0.0f;
  }
}

// Sums the products into `partial`, for kTaps taps starting with that of the row `first` rows earlier. A warp sums one
// tap of one head.
template <typename T, int kMost>
__device__ void add_up(const TapProducts<kMost>& of_threads, const StreamRows<T>& stream, unsigned block,
                       int64_t first) {
  const ShiftShares& shares = stream.shares;
  const unsigned lane = threadIdx.x % kWarp, threads = shares.group_threads;
  for (unsigned each = threadIdx.x / kWarp; each < kTaps * kMost * shares.groups; each += kBlockThreads / kWarp) {
    const unsigned i = each % kTaps, k = each / kTaps % kMost, group = each / (kTaps * kMost);
    float sum = 0.0f;
    for (unsigned j = lane; j < threads; j += kWarp) sum += of_threads[i][k][group * threads + j];
    sum = warp_sum(sum);
    const int64_t count = stream.call.count, tap = count - 1 - first - i;
    const int64_t head = shares.first_head(block, group) + k * shares.all_groups;
    if (lane == 0 && shares.has_heads(block, group) && head < stream.call.heads && tap >= 0) {
      stream.partial[(head * count + tap) * shares.runs + block / shares.columns] = sum;
    }
  }
}

// d_x of the block's rows s, and for each tap Σ g_{s+b} x_s over them, into `partial`.
template <typename T, int kWidth, int kParts>
__device__ void mix_rows_backward(const StreamRows<T>& stream, unsigned block) {
  const ShiftCall& call = stream.call;
  constexpr int kMost = kBackwardHeads<kParts, false>;
  SHARED_ARRAY(float, of_threads, [kTaps][kMost][kBlockThreads]);
  // The taps from `summed` on get their sums in this round; the first round also computes d_x.
  for (int64_t summed = 0; summed < call.count; summed += kTaps) {
    __syncthreads();  // the previous sums have been read
    clear<kMost>(of_threads);
    stream.shares.template each<kWidth>(block, [&](int64_t s, int64_t first_head, int64_t element) {
      const OwnHeads<kMost> heads(call, stream.shares, first_head);
      HeadValues<kWidth, kParts> z[kMost] = {};
      const int64_t end = summed == 0 ? call.count : summed + kTaps;
      for (int64_t first = summed; first < end; first += kTaps) {
        HeadPiece<T, kWidth, kParts> of_d_y[kTaps][kMost];
        Angles<kWidth, kParts> angles[kTaps];
        bool mixes[kTaps];
        for (int i = 0; i < kTaps; ++i) {
          const int64_t t = s + first + i;
          const bool there = first + i < call.count && t < call.rows;
          heads.load(of_d_y[i], stream.d_y, t, element, call.partner, there);
          angles[i] = {call, t, element, there};
          mixes[i] = there && call.mixes(t, s);
        }
        HeadPiece<T, kWidth, kParts> of_x[kMost];
        heads.load(of_x, stream.x, s, element, call.partner, first == summed);
        for (int k = 0; k < kMost; ++k) {
          for (int i = 0; i < kTaps; ++i) {
            of_d_y[i][k].keep(mixes[i]);
            const auto g = angles[i].rotated(values_of(of_d_y[i][k]), -1.0f);
            add_product(z[k], heads.factor(call, k, first + i, mixes[i]), g);
            if (first == summed) of_threads[i][k][threadIdx.x] += mixes[i] ? dot(g, values_of(of_x[k])) : 0.0f;
          }
        }
      }
      if (summed == 0) heads.store(stream.result, s, element, call.partner, z);
    });
    __syncthreads();
    add_up<T, kMost>(of_threads, stream, block, summed);
  }
}

// The same for at most two taps: a thread goes backward through its rows and loads each one while it mixes the row
// after it.
template <typename T, int kWidth, int kParts>
__device__ void walk_rows_backward(const StreamRows<T>& stream, unsigned block) {
  const ShiftCall& call = stream.call;
  constexpr int kMost = kBackwardHeads<kParts, true>;
  SHARED_ARRAY(float, of_threads, [kTaps][kMost][kBlockThreads]);
  clear<kMost>(of_threads);
  stream.shares.template each_run<kWidth>(block, [&](int64_t begin, int64_t end, int64_t first_head, int64_t element) {
    const OwnHeads<kMost> heads(call, stream.shares, first_head);
    const TwoTaps taps(call, heads);
    HeadPiece<T, kWidth, kParts> d_y[kMost], x[kMost];
    const bool has_next = call.count > 1 && end < call.rows;
    heads.load(d_y, stream.d_y, end, element, call.partner, has_next);
    RowPlace place_after = call.place(end, has_next), place = call.place(end - 1, true);
    Angles<kWidth, kParts> angles(call, place_after, element);
    HeadValues<kWidth, kParts> g_after[kMost];
    for (int k = 0; k < kMost; ++k) g_after[k] = angles.rotated(values_of(d_y[k]), -1.0f);
    heads.load(d_y, stream.d_y, end - 1, element, call.partner, true);
    heads.load(x, stream.x, end - 1, element, call.partner, true);
    for (int64_t s = end - 1; s >= begin; --s) {
      const RowPlace next_place = call.place(s - 1, s > begin);
      HeadPiece<T, kWidth, kParts> next_d_y[kMost], next_x[kMost];
      heads.load(next_d_y, stream.d_y, s - 1, element, call.partner, s > begin);
      heads.load(next_x, stream.x, s - 1, element, call.partner, s > begin);
      angles = {call, place, element};
      const bool mixes = call.count > 1 && s + 1 < call.rows && call.mixes(place_after, s);
      HeadValues<kWidth, kParts> z[kMost] = {};
      for (int k = 0; k < kMost; ++k) {
        const auto g = angles.rotated(values_of(d_y[k]), -1.0f);
        add_product(z[k], taps.own[k], g);
        of_threads[0][k][threadIdx.x] += dot(g, values_of(x[k]));
        if (mixes) {
          add_product(z[k], taps.earlier[k], g_after[k]);
          of_threads[1][k][threadIdx.x] += dot(g_after[k], values_of(x[k]));
        }
        g_after[k] = g;
        d_y[k] = next_d_y[k];
        x[k] = next_x[k];
      }
      heads.store(stream.result, s, element, call.partner, z);
      place_after = place;
      place = next_place;
    }
  });
  __syncthreads();
  add_up<T, kMost>(of_threads, stream, block, 0);
}

// body(Constant<parts>{}).
template <typename Body>
__device__ void for_parts(const ShiftCall& call, const Body& body) {
  if (call.rotates()) {
    body(Constant<2>{});
  } else {
    body(Constant<1>{});
  }
}

template <typename T, int kWidth, bool kFewTaps>
__global__ void __launch_bounds__(kBlockThreads, 2)
    shift_rope_kernel(const __grid_constant__ Streams<StreamRows<T>> streams) {
  await_earlier_kernels();
  const PlaceInList at = place_in(streams);
  const StreamRows<T>& stream = streams.parts[at.part];
  for_parts(stream.call, [&](auto parts) {
    if constexpr (kFewTaps) {
      if (stream.call.taps != nullptr) return walk_rows<T, kWidth, parts.value>(stream, at.block);
    }
    constexpr int kRows = kFewTaps ? 1 : kTaps;
    mix_rows<T, kWidth, parts.value, kFewTaps, kRows>(stream.call, stream.shares, at.block, stream.x, stream.carried,
                                                      1.0f, stream.result);
  });
}

template <typename T, int kWidth, bool kFewTaps>
__global__ void __launch_bounds__(kBlockThreads, 2)
    shift_rope_backward_kernel(const __grid_constant__ Streams<StreamRows<T>> streams) {
  await_earlier_kernels();
  const PlaceInList at = place_in(streams);
  const StreamRows<T>& stream = streams.parts[at.part];
  for_parts(stream.call, [&](auto parts) {
    if (stream.call.taps == nullptr) {
      mix_rows<T, kWidth, parts.value, kFewTaps, 1>(stream.call, stream.shares, at.block, stream.d_y, {}, -1.0f,
                                                    stream.result);
    } else if constexpr (kFewTaps) {
      walk_rows_backward<T, kWidth, parts.value>(stream, at.block);
    } else {
      mix_rows_backward<T, kWidth, parts.value>(stream, at.block);
    }
  });
}

// A stream's partial sums, and where they are added.
struct TapSums {
  const float* partial = nullptr;
  int64_t runs = 0, count = 1;
  float* d_taps = nullptr;
  int64_t stride = 0;
};

// d_taps += partial [heads, count, runs]; one block sums each tap.
__global__ void __launch_bounds__(kBlockThreads) sum_taps_kernel(const __grid_constant__ Streams<TapSums> streams) {
  await_earlier_kernels();
  const PlaceInList at = place_in(streams);
  const TapSums& sums = streams.parts[at.part];
  const int64_t tap = at.block;
  float sum = 0.0f;
  for (int64_t run = threadIdx.x; run < sums.runs; run += kBlockThreads) sum += sums.partial[tap * sums.runs + run];
  sum = block_sum(sum);
  if (threadIdx.x == 0) sums.d_taps[tap / sums.count * sums.stride + tap % sums.count] += sum;
}

// Whether rows can be read in packs, also in halves if they are rotated.
bool rows_in_packs(const ShiftRope& how, std::initializer_list<ConstTensor> rows) {
  if (!in_packs(rows)) return false;
  if (!how.rope.defined()) return true;
  const ConstTensor& first = *rows.begin();
  return in_packs({how.rope}) && first.extent(2) / 2 % (16 / size_of(first.dtype())) == 0;
}
bool rows_in_packs(const ShiftForward& stream) {
  return rows_in_packs(stream.how, {stream.x, stream.how.carried, stream.y});
}
bool rows_in_packs(const ShiftBackward& stream) {
  return rows_in_packs(stream.how, {stream.d_y, stream.x, stream.d_x});
}

// Calls body(T{}, Constant<width>{}, std::bool_constant<few taps>{}) with constants that work for all streams.
template <typename OneStream, typename Body>
void for_shift_kernel(const char* name, const std::vector<OneStream>& streams, const Body& body) {
  const auto packed = [](const OneStream& stream) { return rows_in_packs(stream); };
  const auto few_taps = [](const OneStream& stream) {
    return !stream.how.taps.defined() || stream.how.taps.extent(1) <= kTaps;
  };
  for_device_type(name, streams[0].x.dtype(), std::ranges::all_of(streams, packed), [&](auto element, auto width) {
    if constexpr (width.value > 1) {
      if (std::ranges::all_of(streams, few_taps)) return body(element, width, std::true_type{});
    }
    body(element, width, std::false_type{});
  });
}

// Streams with taps take longer, so they come first: shorter blocks then fill what is left of the GPU.
template <typename OneStream>
std::vector<OneStream> with_taps_first(std::vector<OneStream> streams) {
  std::ranges::stable_partition(streams, [](const OneStream& stream) { return stream.how.taps.defined(); });
  return streams;
}

template <int kWidth, bool kFewTaps>
ShiftShares shares_of(const ConstTensor& x, const ShiftRope& how, bool summing_taps) {
  const auto of_parts = [&](auto parts) {
    return ShiftShares(x, how, kWidth, parts.value,
                       summing_taps ? kBackwardHeads<parts.value, kFewTaps> : kForwardHeads<parts.value, kFewTaps>);
  };
  return how.rope.defined() ? of_parts(Constant<2>{}) : of_parts(Constant<1>{});
}

}  // namespace

void shift_rope_forward(const CudaContext& context, const std::vector<ShiftForward>& streams) {
  constexpr const char* kName = "shift_rope_forward";
  for_shift_kernel(kName, streams, [&](auto element, auto width, auto few) {
    using T = decltype(element);
    Streams<StreamRows<T>> all;
    for (const auto& [x, how, y] : with_taps_first(streams)) {
      const ShiftShares shares = shares_of<width.value, few.value>(x, how, false);
      all.add({.call = ShiftCall(x, how),
               .shares = shares,
               .x = head_rows<T>(x, shares),
               .carried = head_rows<T>(how.carried, shares),
               .d_y = {},
               .result = head_rows<T>(y, shares)},
              shares.blocks());
    }
    launch_kernel(kName, shift_rope_kernel<T, width.value, few.value>, {.x = all.blocks}, kBlockThreads, context.stream,
                  all);
  });
}

void shift_rope_backward(const CudaContext& context, const std::vector<ShiftBackward>& streams, Tensor scratch) {
  constexpr const char* kName = "shift_rope_backward";
  float* partial = device_data<float>(scratch);
  Streams<TapSums> sums;
  for_shift_kernel(kName, streams, [&](auto element, auto width, auto few) {
    using T = decltype(element);
    Streams<StreamRows<T>> all;
    for (const auto& [d_y, x, how, d_x, d_taps] : with_taps_first(streams)) {
      const bool has_taps = how.taps.defined();
      const ShiftShares shares = shares_of<width.value, few.value>(x, how, has_taps);
      all.add({.call = ShiftCall(x, how),
               .shares = shares,
               .x = head_rows<T>(x, shares),
               .carried = {},
               .d_y = head_rows<T>(d_y, shares),
               .result = head_rows<T>(d_x, shares),
               .partial = partial},
              shares.blocks());
      if (!has_taps) continue;
      const int64_t taps = how.taps.count(), count = how.taps.extent(1);
      sums.add({.partial = partial,
                .runs = shares.runs,
                .count = count,
                .d_taps = device_data<float>(d_taps),
                .stride = d_taps.stride(0)},
               taps);
      partial += taps * shares.runs;
    }
    launch_kernel(kName, shift_rope_backward_kernel<T, width.value, few.value>, {.x = all.blocks}, kBlockThreads,
                  context.stream, all);
  });
  launch_kernel("shift_rope_backward: taps", sum_taps_kernel, {.x = sums.blocks}, kBlockThreads, context.stream, sums);
}

}  // namespace shiftron::cuda

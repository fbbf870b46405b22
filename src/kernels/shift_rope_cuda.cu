// KV shift (paper, equations 8 and 9) fused with rotary positions in CUDA. A thread has the neighbours of one row that
// one access reads and, where rows are rotated, their partners in the other half, of a few heads, whose angles are one.
// A launch has all streams of a call: one alone is too short to fill a GPU.
#include <algorithm>

#include "kernels/bodies.h"
#include "kernels/device_cuda.h"
#include "kernels/scratch.h"

namespace shiftron::cuda {
namespace {

constexpr int kTaps = 2;  // whose rows are loaded, and whose gradients are summed, at once
// Heads of a thread, as registers allow. Where there are more taps, sums wait for the next.
template <int kParts, bool kFewTaps>
constexpr int kForwardHeads = kFewTaps ? 4 / kParts : 1;
template <int kParts, bool kFewTaps>
constexpr int kBackwardHeads = kFewTaps && kParts == 1 ? 4 : 1;

// A tensor [rows, heads, head_dim].
template <typename T>
struct HeadRows {
  T* data = nullptr;
  int64_t row_stride = 0, head_stride = 0, head_step = 0;  // head_step: between heads of a thread
  __device__ T* at(int64_t row, int64_t head) const { return data + row * row_stride + head * head_stride; }
  __device__ HeadRows either(const HeadRows& other, bool others) const {
    return {others ? other.data : data, others ? other.row_stride : row_stride,
            others ? other.head_stride : head_stride, others ? other.head_step : head_step};
  }
};

// What all directions know of x and of the ShiftRope.
struct Call {
  Call() = default;
  Call(const ConstTensor& x, const ShiftRope& how) : rows(x.extent(0)), heads(x.extent(1)), partner(x.extent(2) / 2) {
    if (how.taps.defined()) {
      taps = how.taps.data<float>();
      tap_stride = how.taps.stride(0);
      count = how.taps.extent(1);
      shift_start = how.shift_start.data<int32_t>();
    }
    if (how.carried.defined()) carried_rows = how.carried.extent(0);
    if (how.rope.defined()) {
      cosine = how.rope.data<float>();
      sine = cosine + how.rope.stride(0);
      rope_stride = how.rope.stride(1);
      positions = how.positions.data<int32_t>();
    }
  }
  __device__ bool mixes(int64_t t, int64_t row) const {
    return taps == nullptr || (row >= -carried_rows && row >= shift_start[t]);
  }
  __device__ bool rotates() const { return cosine != nullptr; }

  int64_t rows = 0, heads = 0;
  int64_t partner = 0;  // elements between halves
  const float* taps = nullptr;
  int64_t tap_stride = 0, count = 1;
  const int32_t* shift_start = nullptr;
  int64_t carried_rows = 0;
  const float *cosine = nullptr, *sine = nullptr;
  int64_t rope_stride = 0;
  const int32_t* positions = nullptr;
};

// What a block and a thread have. A block goes through `run` rows of `groups` groups of heads, each with group_threads
// neighbouring threads; a group's heads are all_groups apart. Where a row needs `columns` blocks they are neighbours.
struct Shares {
  Shares() = default;
  Shares(const ConstTensor& x, const ShiftRope& how, int width, int parts, int heads_of_thread)
      : rows(x.extent(0)), pieces(static_cast<unsigned>(x.extent(2) / (width * parts))) {
    all_groups = (x.extent(1) + heads_of_thread - 1) / heads_of_thread;
    const unsigned of_row = std::clamp<unsigned>(pieces, 1, kBlockThreads);
    groups = static_cast<unsigned>(std::clamp<int64_t>(all_groups, 1, kBlockThreads / of_row));
    const unsigned at_once = kBlockThreads / (of_row * groups);
    group_threads = at_once * of_row;
    // With taps, rows beside the block's are read too.
    run = how.taps.defined() ? (kShiftRun + at_once - 1) / at_once * at_once : at_once;
    runs = (rows + run - 1) / run;
    columns = static_cast<unsigned>((all_groups + groups - 1) / groups);
  }
  int64_t blocks() const { return runs * columns; }

  __device__ int64_t first_head(unsigned block, unsigned group) const {
    return int64_t{block % columns} * groups + group;
  }

  // body(row, first head, first element) of each piece of the calling thread.
  template <int kWidth, typename Body>
  __device__ void each(unsigned block, const Body& body) const {
    const unsigned group = threadIdx.x / group_threads;
    if (group >= groups) return;
    const int64_t begin = int64_t{block / columns} * run;
    const unsigned own = static_cast<unsigned>(rows - begin < run ? rows - begin : run) * pieces;
    for (unsigned piece = threadIdx.x % group_threads; piece < own; piece += group_threads) {
      body(begin + piece / pieces, first_head(block, group), int64_t{piece % pieces} * kWidth);
    }
  }

  int64_t rows, all_groups, runs;
  unsigned pieces, groups, group_threads, run, columns;  // pieces of a row of one head
};

template <typename T>
HeadRows<const T> head_rows(const ConstTensor& tensor, const Shares& shares) {
  if (!tensor.defined()) return {};
  return {device_data<T>(tensor), tensor.stride(0), tensor.stride(1), shares.all_groups * tensor.stride(1)};
}
template <typename T>
HeadRows<T> head_rows(const Tensor& tensor, const Shares& shares) {
  return {device_data<T>(tensor), tensor.stride(0), tensor.stride(1), shares.all_groups * tensor.stride(1)};
}

// Of a head and row what one thread has: kWidth neighbours of each of kParts halves.
template <typename T, int kWidth, int kParts>
struct Piece {
  Words<T, kWidth> part[kParts];

  Piece() = default;
  __device__ Piece(const T* from, int64_t partner, bool there) {
    for (int i = 0; i < kParts; ++i) part[i] = Words<T, kWidth>(from + i * partner, there);
  }
  __device__ void keep(bool kept) {
    for (int i = 0; i < kParts; ++i) part[i].keep(kept);
  }
};
template <int kWidth, int kParts>
struct Values {
  float part[kParts][kWidth] = {};
};
template <typename T, int kWidth, int kParts>
__device__ Values<kWidth, kParts> values_of(const Piece<T, kWidth, kParts>& piece) {
  Values<kWidth, kParts> values;
  for (int part = 0; part < kParts; ++part) {
    const auto elements = piece.part[part].elements();
    for (int i = 0; i < kWidth; ++i) values.part[part][i] = to_float(elements[i]);
  }
  return values;
}

template <typename T, int kWidth, int kParts>
__device__ void store_values(T* to, int64_t partner, const Values<kWidth, kParts>& values) {
  for (int part = 0; part < kParts; ++part) {
    Elements<T, kWidth> stored;
    for (int i = 0; i < kWidth; ++i) stored[i] = from_float<T>(values.part[part][i]);
    store_elements<kWidth>(to + part * partner, stored);
  }
}

template <int kWidth, int kParts>
__device__ void add_product(Values<kWidth, kParts>& sum, float factor, const Values<kWidth, kParts>& values) {
  for (int part = 0; part < kParts; ++part) {
    for (int i = 0; i < kWidth; ++i) sum.part[part][i] += factor * values.part[part][i];
  }
}

template <int kWidth, int kParts>
__device__ float dot(const Values<kWidth, kParts>& a, const Values<kWidth, kParts>& b) {
  float sum = 0.0f;
  for (int part = 0; part < kParts; ++part) {
    for (int i = 0; i < kWidth; ++i) sum += a.part[part][i] * b.part[part][i];
  }
  return sum;
}

// Of a piece, by the position of row t.
template <int kWidth, int kParts>
struct Angles {
  Words<float, kWidth> cosines, sines;

  Angles() = default;
  __device__ Angles(const Call& call, int64_t t, int64_t element, bool there) {
    if constexpr (kParts > 1) {
      const int64_t entry = there ? call.positions[t] * call.rope_stride + element : 0;
      cosines = Words<float, kWidth>(call.cosine + entry, there);
      sines = Words<float, kWidth>(call.sine + entry, there);
    }
  }
  // Direction −1 rotates back; z itself where there are no halves.
  __device__ Values<kWidth, kParts> rotated(const Values<kWidth, kParts>& z, float direction) const {
    if constexpr (kParts == 1) {
      return z;
    } else {
      const auto cosine = cosines.elements(), sine = sines.elements();
      Values<kWidth, kParts> y;
      for (int i = 0; i < kWidth; ++i) {
        const float c = cosine[i], s = direction * sine[i];
        y.part[0][i] = z.part[0][i] * c - z.part[1][i] * s;
        y.part[1][i] = z.part[1][i] * c + z.part[0][i] * s;
      }
      return y;
    }
  }
};

// The heads of one thread: `count` of them, from `first` on `step` apart.
template <int kMost>
struct OwnHeads {
  int64_t first, step;
  int count = 0;
  __device__ OwnHeads(const Call& call, const Shares& shares, int64_t first_head)
      : first(first_head), step(shares.all_groups) {
    for (int k = 0; k < kMost; ++k) count += first + k * step < call.heads ? 1 : 0;
  }
  template <typename T, int kWidth, int kParts>
  __device__ void load(Piece<T, kWidth, kParts> (&pieces)[kMost], const HeadRows<const T>& rows, int64_t row,
                       int64_t element, int64_t partner, bool there) const {
    const T* const from = rows.at(row, first) + element;
    for (int k = 0; k < kMost; ++k) pieces[k] = {from + k * rows.head_step, partner, there && k < count};
  }
  template <typename T, int kWidth, int kParts>
  __device__ void store(const HeadRows<T>& rows, int64_t row, int64_t element, int64_t partner,
                        const Values<kWidth, kParts> (&values)[kMost]) const {
    T* const to = rows.at(row, first) + element;
    for (int k = 0; k < kMost; ++k) {
      if (k < count) store_values(to + k * rows.head_step, partner, values[k]);
    }
  }
  // Of head k for the row b rows before; 0 where that is not mixed in.
  __device__ float factor(const Call& call, int k, int64_t b, bool mixes) const {
    if (call.taps == nullptr) return 1.0f;
    const float tap =
        k < count && b < call.count ? call.taps[(first + k * step) * call.tap_stride + call.count - 1 - b] : 0.0f;
    return mixes ? tap : 0.0f;
  }
};

// What the blocks of one stream need; of x and carried or of d_y and x, as the direction has it.
template <typename T>
struct StreamRows {
  Call call;
  Shares shares;
  HeadRows<const T> x, carried, d_y;
  HeadRows<T> result;
  float* partial = nullptr;  // [heads, count, runs]
};

// The streams of a launch, each with blocks of its own, one stream's behind the other's.
template <typename OneStream>
struct Streams {
  OneStream each[kShiftStreams];
  unsigned first[kShiftStreams] = {};  // block of a stream
  int64_t blocks = 0;
  int count = 0;

  void add(const OneStream& stream, int64_t its_blocks) {
    each[count] = stream;
    first[count++] = static_cast<unsigned>(blocks);
    blocks += its_blocks;
  }
  // body(stream, which of its blocks) for the calling block.
  template <typename Body>
  __device__ void own(const Body& body) const {
    int stream = 0;
    for (int i = 1; i < static_cast<int>(kShiftStreams); ++i) stream += i < count && blockIdx.x >= first[i] ? 1 : 0;
    body(each[stream], blockIdx.x - first[stream]);
  }
};

// Of rows without taps, kRows = 1, direction −1 is the whole backward.
template <typename T, int kWidth, int kParts, bool kFewTaps, int kRows = kTaps>
__device__ void mix_rows(const Call& call, const Shares& shares, unsigned block, const HeadRows<const T>& x,
                         const HeadRows<const T>& carried, float direction, const HeadRows<T>& y) {
  constexpr int kMost = kForwardHeads<kParts, kFewTaps>;
  shares.each<kWidth>(block, [&](int64_t t, int64_t first_head, int64_t element) {
    const OwnHeads<kMost> heads(call, shares, first_head);
    const Angles<kWidth, kParts> angles(call, t, element, true);
    Values<kWidth, kParts> z[kMost] = {};
    for (int64_t first = 0; first < (kFewTaps || kRows == 1 ? kRows : call.count); first += kRows) {
      Piece<T, kWidth, kParts> of_x[kRows][kMost];
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

// d_x of the block's rows s, and Σ g_{s+b} x_s over them for each tap into partial.
template <typename T, int kWidth, int kParts, bool kFewTaps>
__device__ void mix_rows_backward(const StreamRows<T>& stream, unsigned block) {
  const Call& call = stream.call;
  const Shares& shares = stream.shares;
  constexpr int kMost = kBackwardHeads<kParts, kFewTaps>;
  SHARED_ARRAY(float, of_threads, [kTaps][kMost][kBlockThreads]);
  // Taps whose sums are next; with the first, d_x.
  for (int64_t summed = 0; summed < (kFewTaps ? kTaps : call.count); summed += kTaps) {
    __syncthreads();  // the last sums are read
    for (int i = 0; i < kTaps; ++i) {
      for (int k = 0; k < kMost; ++k) of_threads[i][k][threadIdx.x] = 0.0f;
    }
    shares.each<kWidth>(block, [&](int64_t s, int64_t first_head, int64_t element) {
      const OwnHeads<kMost> heads(call, shares, first_head);
      Values<kWidth, kParts> z[kMost] = {};
      const int64_t end = summed == 0 && !kFewTaps ? call.count : summed + kTaps;
      for (int64_t first = summed; first < end; first += kTaps) {
        Piece<T, kWidth, kParts> of_d_y[kTaps][kMost];
        Angles<kWidth, kParts> angles[kTaps];
        bool mixes[kTaps];
        for (int i = 0; i < kTaps; ++i) {
          const int64_t t = s + first + i;
          const bool there = first + i < call.count && t < call.rows;
          heads.load(of_d_y[i], stream.d_y, t, element, call.partner, there);
          angles[i] = {call, t, element, there};
          mixes[i] = there && call.mixes(t, s);
        }
        Piece<T, kWidth, kParts> of_x[kMost];
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
    // A warp adds up a tap of a head.
    const unsigned lane = threadIdx.x % kWarp, threads = shares.group_threads;
    for (unsigned each = threadIdx.x / kWarp; each < kTaps * kMost * shares.groups; each += kBlockThreads / kWarp) {
      const unsigned i = each % kTaps, k = each / kTaps % kMost, group = each / (kTaps * kMost);
      float sum = 0.0f;
      for (unsigned j = lane; j < threads; j += kWarp) sum += of_threads[i][k][group * threads + j];
      sum = warp_sum(sum);
      const int64_t head = shares.first_head(block, group) + k * shares.all_groups, tap = call.count - 1 - summed - i;
      if (lane == 0 && head < call.heads && tap >= 0) {
        stream.partial[(head * call.count + tap) * shares.runs + block / shares.columns] = sum;
      }
    }
  }
}

// body(Constant<parts>{}).
template <typename Body>
__device__ void for_parts(const Call& call, const Body& body) {
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
  streams.own([](const StreamRows<T>& stream, unsigned block) {
    for_parts(stream.call, [&](auto parts) {
      mix_rows<T, kWidth, parts.value, kFewTaps>(stream.call, stream.shares, block, stream.x, stream.carried, 1.0f,
                                                 stream.result);
    });
  });
}

template <typename T, int kWidth, bool kFewTaps>
__global__ void __launch_bounds__(kBlockThreads, 2)
    shift_rope_backward_kernel(const __grid_constant__ Streams<StreamRows<T>> streams) {
  await_earlier_kernels();
  streams.own([](const StreamRows<T>& stream, unsigned block) {
    for_parts(stream.call, [&](auto parts) {
      if (stream.call.taps == nullptr) {
        mix_rows<T, kWidth, parts.value, kFewTaps, 1>(stream.call, stream.shares, block, stream.d_y, {}, -1.0f,
                                                      stream.result);
      } else {
        mix_rows_backward<T, kWidth, parts.value, kFewTaps>(stream, block);
      }
    });
  });
}

// A stream's partial sums, and where they are added.
struct TapSums {
  const float* partial = nullptr;
  int64_t runs = 0, count = 1;
  float* d_taps = nullptr;
  int64_t stride = 0;
};

// d_taps += partial [heads, count, runs], summed by a block for each tap.
__global__ void __launch_bounds__(kBlockThreads) sum_taps_kernel(const __grid_constant__ Streams<TapSums> streams) {
  await_earlier_kernels();
  streams.own([](const TapSums& sums, int64_t tap) {
    float sum = 0.0f;
    for (int64_t run = threadIdx.x; run < sums.runs; run += kBlockThreads) sum += sums.partial[tap * sums.runs + run];
    sum = block_sum(sum);
    if (threadIdx.x == 0) sums.d_taps[tap / sums.count * sums.stride + tap % sums.count] += sum;
  });
}

// Whether packs fit, in halves too where these are rotated.
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

// body(T{}, Constant<width>{}, std::bool_constant<few taps>{}), which serve all streams.
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

// Their blocks take longer: behind them short ones fill what is left of the GPU.
template <typename OneStream>
std::vector<OneStream> with_taps_first(std::vector<OneStream> streams) {
  std::ranges::stable_partition(streams, [](const OneStream& stream) { return stream.how.taps.defined(); });
  return streams;
}

template <int kWidth, bool kFewTaps>
Shares shares_of(const ConstTensor& x, const ShiftRope& how, bool summing_taps) {
  const auto of_parts = [&](auto parts) {
    return Shares(x, how, kWidth, parts.value,
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
      const Shares shares = shares_of<width.value, few.value>(x, how, false);
      all.add({.call = Call(x, how),
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
      const Shares shares = shares_of<width.value, few.value>(x, how, has_taps);
      all.add({.call = Call(x, how),
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

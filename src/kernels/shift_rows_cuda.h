// Which rows, heads and elements each thread of the KV shift processes, and how it loads and stores them
// (shift_rope_cuda.cu).
#pragma once

#include <algorithm>

#include "kernels/device_cuda.h"
#include "kernels/kernels.h"
#include "kernels/scratch.h"

namespace shiftron::cuda {

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

// Per-row values that are loaded before its elements; −1 each if there is no such row.
struct RowPlace {
  int32_t position = -1, shift_start = -1;
};

// The parts of x and of the ShiftRope that both forward and backward need.
struct ShiftCall {
  ShiftCall() = default;
  ShiftCall(const ConstTensor& x, const ShiftRope& how)
      : rows(x.extent(0)), heads(x.extent(1)), partner(x.extent(2) / 2) {
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
    return taps == nullptr || mixes(RowPlace{.shift_start = shift_start[t]}, row);
  }
  __device__ bool mixes(const RowPlace& place, int64_t row) const {
    return row >= -carried_rows && row >= place.shift_start;
  }
  __device__ bool rotates() const { return cosine != nullptr; }
  __device__ RowPlace place(int64_t t, bool there) const {
    RowPlace place;
    if (there && positions != nullptr) place.position = positions[t];
    if (there && shift_start != nullptr) place.shift_start = shift_start[t];
    return place;
  }

  int64_t rows = 0, heads = 0;
  int64_t partner = 0;  // elements between the halves of a head
  const float* taps = nullptr;
  int64_t tap_stride = 0, count = 1;
  const int32_t* shift_start = nullptr;
  int64_t carried_rows = 0;
  const float *cosine = nullptr, *sine = nullptr;
  int64_t rope_stride = 0;
  const int32_t* positions = nullptr;
};

// The work of a block and of a thread. A block processes `run` rows of `groups` groups of heads, with group_threads
// neighbouring threads for each group; the heads of a group are all_groups apart. If a row needs several blocks
// (`columns`), they are neighbours.
struct ShiftShares {
  ShiftShares() = default;
  ShiftShares(const ConstTensor& x, const ShiftRope& how, int width, int parts, int heads_of_thread)
      : rows(x.extent(0)), pieces(static_cast<unsigned>(x.extent(2) / (width * parts))) {
    all_groups = (x.extent(1) + heads_of_thread - 1) / heads_of_thread;
    of_row = std::clamp<unsigned>(pieces, 1, kBlockThreads);
    groups = static_cast<unsigned>(std::clamp<int64_t>(all_groups, 1, kBlockThreads / of_row));
    const unsigned at_once = kBlockThreads / (of_row * groups);
    group_threads = at_once * of_row;
    // With taps, rows next to the block's are read too, so a block takes more rows.
    run = how.taps.defined() ? (kShiftRun + at_once - 1) / at_once * at_once : at_once;
    runs = (rows + run - 1) / run;
    columns = static_cast<unsigned>((all_groups + groups - 1) / groups);
  }
  int64_t blocks() const { return runs * columns; }

  __device__ int64_t first_head(unsigned block, unsigned group) const {
    return int64_t{block % columns} * groups + group;
  }
  // Groups after the last one, in the last block of a row, would be heads that other threads process.
  __device__ bool has_heads(unsigned block, unsigned group) const {
    return group < groups && first_head(block, group) < all_groups;
  }

  // Calls body(first row, end, first head, first element) with consecutive rows, for each piece of the calling thread.
  template <int kWidth, typename Body>
  __device__ void each_run(unsigned block, const Body& body) const {
    const unsigned group = threadIdx.x / group_threads, own = threadIdx.x % group_threads;
    if (!has_heads(block, group)) return;
    const unsigned rows_of_thread = run / (group_threads / of_row);
    const int64_t begin = int64_t{block / columns} * run + int64_t{own / of_row} * rows_of_thread;
    const int64_t end = begin + rows_of_thread < rows ? begin + rows_of_thread : rows;
    if (begin >= end) return;
    for (unsigned piece = own % of_row; piece < pieces; piece += of_row) {
      body(begin, end, first_head(block, group), int64_t{piece} * kWidth);
    }
  }

  // Calls body(row, first head, first element) for each piece of the calling thread.
  template <int kWidth, typename Body>
  __device__ void each(unsigned block, const Body& body) const {
    const unsigned group = threadIdx.x / group_threads;
    if (!has_heads(block, group)) return;
    const int64_t begin = int64_t{block / columns} * run;
    const unsigned own = static_cast<unsigned>(rows - begin < run ? rows - begin : run) * pieces;
    for (unsigned piece = threadIdx.x % group_threads; piece < own; piece += group_threads) {
      body(begin + piece / pieces, first_head(block, group), int64_t{piece % pieces} * kWidth);
    }
  }

  int64_t rows, all_groups, runs;
  unsigned pieces, of_row;  // of one head's row: its pieces, and threads for them
  unsigned groups, group_threads, run, columns;
};

template <typename T>
HeadRows<const T> head_rows(const ConstTensor& tensor, const ShiftShares& shares) {
  if (!tensor.defined()) return {};
  return {device_data<T>(tensor), tensor.stride(0), tensor.stride(1), shares.all_groups * tensor.stride(1)};
}
template <typename T>
HeadRows<T> head_rows(const Tensor& tensor, const ShiftShares& shares) {
  return {device_data<T>(tensor), tensor.stride(0), tensor.stride(1), shares.all_groups * tensor.stride(1)};
}

// One thread's part of a head's row: kWidth neighbours from each of kParts halves.
template <typename T, int kWidth, int kParts>
struct HeadPiece {
  Words<T, kWidth> part[kParts];

  HeadPiece() = default;
  __device__ HeadPiece(const T* from, int64_t partner, bool there) {
    for (int i = 0; i < kParts; ++i) part[i] = Words<T, kWidth>(from + i * partner, there);
  }
  __device__ void keep(bool kept) {
    for (int i = 0; i < kParts; ++i) part[i].keep(kept);
  }
};
template <int kWidth, int kParts>
struct HeadValues {
  float part[kParts][kWidth] = {};
};
template <typename T, int kWidth, int kParts>
__device__ HeadValues<kWidth, kParts> values_of(const HeadPiece<T, kWidth, kParts>& piece) {
  HeadValues<kWidth, kParts> values;
  for (int part = 0; part < kParts; ++part) {
    const auto elements = piece.part[part].elements();
    for (int i = 0; i < kWidth; ++i) values.part[part][i] = to_float(elements[i]);
  }
  return values;
}

template <typename T, int kWidth, int kParts>
__device__ void store_values(T* to, int64_t partner, const HeadValues<kWidth, kParts>& values) {
  for (int part = 0; part < kParts; ++part) {
    Elements<T, kWidth> stored;
    for (int i = 0; i < kWidth; ++i) stored[i] = from_float<T>(values.part[part][i]);
    store_elements<kWidth>(to + part * partner, stored);
  }
}

template <int kWidth, int kParts>
__device__ void add_product(HeadValues<kWidth, kParts>& sum, float factor, const HeadValues<kWidth, kParts>& values) {
  for (int part = 0; part < kParts; ++part) {
    for (int i = 0; i < kWidth; ++i) sum.part[part][i] += factor * values.part[part][i];
  }
}

template <int kWidth, int kParts>
__device__ float dot(const HeadValues<kWidth, kParts>& a, const HeadValues<kWidth, kParts>& b) {
  float sum = 0.0f;
  for (int part = 0; part < kParts; ++part) {
    for (int i = 0; i < kWidth; ++i) sum += a.part[part][i] * b.part[part][i];
  }
  return sum;
}

// The angles of a piece for the position of row t.
template <int kWidth, int kParts>
struct Angles {
  Words<float, kWidth> cosines, sines;

  Angles() = default;
  __device__ Angles(const ShiftCall& call, int64_t t, int64_t element, bool there)
      : Angles(call, call.place(t, kParts > 1 && there), element) {}
  __device__ Angles(const ShiftCall& call, const RowPlace& place, int64_t element) {
    if constexpr (kParts > 1) {
      const bool there = place.position >= 0;
      const int64_t entry = there ? place.position * call.rope_stride + element : 0;
      cosines = Words<float, kWidth>(call.cosine + entry, there);
      sines = Words<float, kWidth>(call.sine + entry, there);
    }
  }
  // Direction −1 rotates back; returns z unchanged if there is no rotation.
  __device__ HeadValues<kWidth, kParts> rotated(const HeadValues<kWidth, kParts>& z, float direction) const {
    if constexpr (kParts == 1) {
      return z;
    } else {
      const auto cosine = cosines.elements(), sine = sines.elements();
      HeadValues<kWidth, kParts> y;
      for (int i = 0; i < kWidth; ++i) {
        const float c = cosine[i], s = direction * sine[i];
        y.part[0][i] = z.part[0][i] * c - z.part[1][i] * s;
        y.part[1][i] = z.part[1][i] * c + z.part[0][i] * s;
      }
      return y;
    }
  }
};

// The heads of one thread: `count` heads, `step` apart, starting at `first`.
template <int kMost>
struct OwnHeads {
  int64_t first, step;
  int count = 0;
  __device__ OwnHeads(const ShiftCall& call, const ShiftShares& shares, int64_t first_head)
      : first(first_head), step(shares.all_groups) {
    for (int k = 0; k < kMost; ++k) count += first + k * step < call.heads ? 1 : 0;
  }
  template <typename T, int kWidth, int kParts>
  __device__ void load(HeadPiece<T, kWidth, kParts> (&pieces)[kMost], const HeadRows<const T>& rows, int64_t row,
                       int64_t element, int64_t partner, bool there) const {
    const T* const from = rows.at(row, first) + element;
    for (int k = 0; k < kMost; ++k) pieces[k] = {from + k * rows.head_step, partner, there && k < count};
  }
  template <typename T, int kWidth, int kParts>
  __device__ void store(const HeadRows<T>& rows, int64_t row, int64_t element, int64_t partner,
                        const HeadValues<kWidth, kParts> (&values)[kMost]) const {
    T* const to = rows.at(row, first) + element;
    for (int k = 0; k < kMost; ++k) {
      if (k < count) store_values(to + k * rows.head_step, partner, values[k]);
    }
  }
  // The tap of head k for the row b rows earlier; 0 if that row is not mixed in.
  __device__ float factor(const ShiftCall& call, int k, int64_t b, bool mixes) const {
    if (call.taps == nullptr) return 1.0f;
    const float tap =
        k < count && b < call.count ? call.taps[(first + k * step) * call.tap_stride + call.count - 1 - b] : 0.0f;
    return mixes ? tap : 0.0f;
  }
};

// Factors of a thread's heads, for a row and for the one before it.
template <int kMost>
struct TwoTaps {
  float own[kMost], earlier[kMost];
  __device__ TwoTaps(const ShiftCall& call, const OwnHeads<kMost>& heads) {
    for (int k = 0; k < kMost; ++k) {
      own[k] = heads.factor(call, k, 0, true);
      earlier[k] = heads.factor(call, k, 1, true);
    }
  }
};

}  // namespace shiftron::cuda

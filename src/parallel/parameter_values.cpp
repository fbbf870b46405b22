// Values of parameters: copies between device and host, and initial values.
#include <algorithm>
#include <cstring>

#include "core/event.h"
#include "core/shared_tasks.h"
#include "kernels/element.h"
#include "kernels/kernels.h"
#include "parallel/parameter.h"

namespace shiftron {
namespace {

// Calls visit(local index, logical index) for the elements of the box from `begin` to `end`, in row-major order.
template <typename Visit>
void for_each_element(const Shape& whole, const Box& box, int64_t begin, int64_t end, Visit visit) {
  const int dims = whole.dims();
  Shape at = box.offset;
  for (int64_t dim = dims - 1, rest = begin; dim >= 0; rest /= box.extent[dim], --dim) {
    at[dim] += rest % box.extent[dim];
  }
  for (int64_t local = begin; local < end; ++local) {
    int64_t logical = 0;
    for (int dim = 0; dim < dims; ++dim) logical = logical * whole[dim] + at[dim];
    visit(local, logical);
    for (int dim = dims - 1; dim >= 0; --dim) {
      if (++at[dim] < box.offset[dim] + box.extent[dim]) break;
      at[dim] = box.offset[dim];
    }
  }
}

// Elements [first, first + count) of a contiguous tensor.
Tensor range_of(const Tensor& tensor, int64_t first, int64_t count) {
  return tensor.view({tensor.count()}).rows(first, count);
}

// Copies that are not counted. On a CPU they are done when the stream is; on a GPU, through pinned memory, at once.
class HostCopies {
 public:
  HostCopies(const Stream& stream, const ParameterSet& set, const Buffer& pinned) : stream_(stream), pinned_(pinned) {
    stream_.ledger = &uncounted_;
    set.await_weights(stream_);
  }
  void to_host(const ConstTensor& from, void* to) {
    if (from.device() == DeviceKind::cpu) {
      return download(stream_, from, Tensor(to, from.dtype(), from.shape(), DeviceKind::pinned));
    }
    in_pieces(from.count(), from.dtype(), [&](int64_t first, const Tensor& piece) {
      download(stream_, from.view({from.count()}).rows(first, piece.count()), piece);
      finish();
      std::memcpy(static_cast<std::byte*>(to) + first * size_of(from.dtype()), piece.raw(),
                  static_cast<size_t>(piece.bytes()));
    });
  }
  void from_host(const void* from, const Tensor& to) {
    if (to.device() == DeviceKind::cpu) {
      return upload(stream_, ConstTensor(from, to.dtype(), to.shape(), DeviceKind::pinned), to);
    }
    in_pieces(to.count(), to.dtype(), [&](int64_t first, const Tensor& piece) {
      std::memcpy(piece.raw(), static_cast<const std::byte*>(from) + first * size_of(to.dtype()),
                  static_cast<size_t>(piece.bytes()));
      upload(stream_, piece, to.view({to.count()}).rows(first, piece.count()));
      finish();
    });
  }
  void finish() { shiftron::finish(stream_); }

 private:
  template <typename Visit>
  void in_pieces(int64_t count, DType dtype, const Visit& visit) const {
    const int64_t most = pinned_.bytes() / size_of(dtype);
    for (int64_t first = 0; first < count; first += most) {
      visit(first, pinned_.tensor(0, dtype, {std::min(most, count - first)}));
    }
  }
  Ledger uncounted_;
  Stream stream_;
  const Buffer& pinned_;
};

const Tensor& tensor_of(const Parameter& parameter, ParameterState state) {
  return state == ParameterState::master         ? parameter.weight
         : state == ParameterState::first_moment ? parameter.first_moment
                                                 : parameter.second_moment;
}

// Which element is the first of tensor_of(): only the kept moments are here.
int64_t first_of(const Parameter& parameter, ParameterState state) {
  return state == ParameterState::master ? 0 : parameter.kept.begin;
}

bool in_halves(const Parameter& parameter, ParameterState state) {
  return state == ParameterState::master && parameter.rest.defined();
}

// Those of the `count` elements from `first` on whose lower halves are here; if there are none, the size is ≤ 0.
Range kept_of(const Parameter& parameter, int64_t first, int64_t count) {
  return {std::max(first, parameter.kept.begin), std::min(first + count, parameter.kept.end)};
}

void write_weights(const float* masters, size_t count, bfloat16* weight) {
  for (size_t i = 0; i < count; ++i) weight[i] = weight_half(masters[i]);
}
void write_rests(const float* masters, size_t count, uint16_t* rest) {
  for (size_t i = 0; i < count; ++i) rest[i] = rest_half(masters[i]);
}

}  // namespace

bool ParameterSet::await_host(const Parameter& parameter) const {
  if (parameter.weight.device() != DeviceKind::cpu) return false;
  HostCopies(stream_, *this, transfer_).finish();
  return true;
}

void* ParameterSet::on_host(const Parameter& parameter, ParameterState state, int64_t first) const {
  const Tensor& values = tensor_of(parameter, state);
  if (in_halves(parameter, state) || !await_host(parameter)) return nullptr;
  return static_cast<std::byte*>(values.raw()) + (first - first_of(parameter, state)) * size_of(types_.accumulation);
}

const void* ParameterSet::read(const Parameter& parameter, ParameterState state, int64_t first, int64_t count,
                               std::vector<std::byte>& room) const {
  const bool halves = in_halves(parameter, state);
  const Range kept = parameter.kept;
  const bool all_here = state == ParameterState::master && !halves;
  CHECK(all_here || (first >= kept.begin && first + count <= kept.end), parameter.spec.name, ": elements ", first,
        " to ", first + count, ", but this rank keeps ", kept.begin, " to ", kept.end);
  if (const void* all = on_host(parameter, state, first)) return all;
  HostCopies copies(stream_, *this, transfer_);
  room.resize(static_cast<size_t>(count * size_of(types_.accumulation)));
  if (!halves) {
    copies.to_host(range_of(tensor_of(parameter, state), first - first_of(parameter, state), count), room.data());
    copies.finish();
    return room.data();
  }
  std::vector<bfloat16> weight(static_cast<size_t>(count));
  std::vector<uint16_t> rest(static_cast<size_t>(count));
  copies.to_host(range_of(parameter.weight, first, count), weight.data());
  copies.to_host(range_of(parameter.rest, first - parameter.kept.begin, count), rest.data());
  copies.finish();
  auto* masters = reinterpret_cast<float*>(room.data());
  for (int64_t i = 0; i < count; ++i) {
    masters[i] = join_halves(weight[static_cast<size_t>(i)], rest[static_cast<size_t>(i)]);
  }
  return room.data();
}

void ParameterSet::write(const Parameter& parameter, ParameterState state, int64_t first, int64_t count,
                         const void* from) const {
  if (await_host(parameter)) return write_on_host(parameter, state, first, count, from);
  HostCopies copies(stream_, *this, transfer_);
  if (!in_halves(parameter, state)) {
    copies.from_host(from, range_of(tensor_of(parameter, state), first - first_of(parameter, state), count));
    copies.finish();
    return;
  }
  const auto* masters = static_cast<const float*>(from);
  std::vector<bfloat16> weight(static_cast<size_t>(count));
  write_weights(masters, weight.size(), weight.data());
  copies.from_host(weight.data(), range_of(parameter.weight, first, count));
  const Range kept = kept_of(parameter, first, count);
  if (kept.size() > 0) {
    std::vector<uint16_t> rest(static_cast<size_t>(kept.size()));
    write_rests(masters + (kept.begin - first), rest.size(), rest.data());
    copies.from_host(rest.data(), range_of(parameter.rest, kept.begin - parameter.kept.begin, kept.size()));
  }
  copies.finish();
}

void ParameterSet::write_on_host(const Parameter& parameter, ParameterState state, int64_t first, int64_t count,
                                 const void* from) const {
  if (count == 0) return;  // `from` may be null
  const auto* masters = static_cast<const float*>(from);
  if (!in_halves(parameter, state)) {
    const Tensor to = range_of(tensor_of(parameter, state), first - first_of(parameter, state), count);
    std::memcpy(to.raw(), from, static_cast<size_t>(to.bytes()));
    return;
  }
  write_weights(masters, static_cast<size_t>(count), range_of(parameter.weight, first, count).data<bfloat16>());
  const Range kept = kept_of(parameter, first, count);
  if (kept.size() <= 0) return;
  write_rests(masters + (kept.begin - first), static_cast<size_t>(kept.size()),
              range_of(parameter.rest, kept.begin - parameter.kept.begin, kept.size()).data<uint16_t>());
}

void ParameterSet::initialise(uint64_t seed, const std::function<void(int64_t, int64_t)>& done) {
  if (stream_.device == DeviceKind::meta) return;
  constexpr int64_t kBlock = 1 << 20, kPart = 1 << 13;  // elements that are written at once, and that a task computes
  const bool wide = types_.accumulation == DType::float64;
  std::vector<double> doubles(wide ? kBlock : 0);
  std::vector<float> floats(wide ? 0 : kBlock);
  const void* const values = wide ? static_cast<const void*>(doubles.data()) : floats.data();
  int64_t all = 0, ready = 0;
  for (const auto& parameter : parameters_) all += parameter->box.extent.count();
  for (const auto& parameter : parameters_) {
    const Philox random(seed, "initial " + parameter->spec.name);
    const int64_t count = parameter->box.extent.count();
    for (int64_t begin = 0; begin < count; begin += kBlock) {
      const int64_t end = std::min(begin + kBlock, count);
      share_tasks((end - begin + kPart - 1) / kPart, stream_.cpu.threads, [&](int64_t task) {
        const int64_t part = begin + task * kPart;
        for_each_element(parameter->spec.shape, parameter->box, part, std::min(part + kPart, end),
                         [&](int64_t local, int64_t logical) {
                           // Rounded to float32 in every precision, so that all start from the same model.
                           const auto value = static_cast<float>(parameter->spec.initial(random, logical));
                           const auto place = static_cast<size_t>(local - begin);
                           if (wide)
                             doubles[place] = value;
                           else
                             floats[place] = value;
                         });
      });
      write(*parameter, ParameterState::master, begin, end - begin, values);
      if (done) done(ready += end - begin, all);
    }
  }
}

}  // namespace shiftron

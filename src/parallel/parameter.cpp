// Boxes, owners, flat buffers and initial values of parameters.
#include "parallel/parameter.h"

#include "core/event.h"
#include "kernels/element.h"
#include "kernels/kernels.h"

namespace shiftron {
namespace {

constexpr int64_t kBlockElements = 64;  // adjacent groups start on multiples of this

int64_t round_up(int64_t value) {
  return (value + kBlockElements - 1) / kBlockElements * kBlockElements;
}

// Calls visit(local index, logical index) for every element of the box, in row-major order.
template <typename Visit>
void for_each_element(const Shape& whole, const Box& box, Visit visit) {
  const int dims = whole.dims();
  Shape at = box.offset;
  const int64_t count = box.extent.count();
  for (int64_t local = 0; local < count; ++local) {
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

}  // namespace

Initializer init_normal(double standard_deviation) {
  return [standard_deviation](const Philox& random, int64_t index) {
    return standard_deviation * random.normal(static_cast<uint64_t>(index));
  };
}

Initializer init_constant(double value) {
  return [value](const Philox&, int64_t) { return value; };
}

std::string Box::text() const {
  std::string text;
  for (int dim = 0; dim < offset.dims(); ++dim) text += (dim == 0 ? "" : ",") + std::to_string(offset[dim]);
  return text;
}

std::vector<Box> boxes_of(const ParameterSpec& spec, const ParallelLayout& layout, const Coordinates& at) {
  Box box{.offset = spec.shape, .extent = spec.shape};
  for (int dim = 0; dim < spec.shape.dims(); ++dim) box.offset[dim] = 0;
  if (spec.split_dim != kReplicated) {
    const Range range = split_range(spec.shape[spec.split_dim], layout.tp, at.tp);
    box.offset[spec.split_dim] = range.begin;
    box.extent[spec.split_dim] = range.size();
  }
  return {box};
}

int tensor_replicas(const ParameterSpec& spec, const ParallelLayout& layout) {
  return spec.split_dim == kReplicated ? layout.tp : split_replicas(spec.shape[spec.split_dim], layout.tp);
}

bool is_owner(const ParameterSpec& spec, const ParallelLayout& layout, const Coordinates& at) {
  return at.dp == 0 && at.cp == 0 && at.tp % tensor_replicas(spec, layout) == 0 && (!spec.tied || at.pp == 0);
}

Parameter* ParameterSet::declare(ParameterSpec spec, bool adjacent) {
  CHECK(!gradients_.defined() && !find(spec.name), spec.name, " is declared twice or too late");
  auto parameter = std::make_unique<Parameter>();
  parameter->box = boxes_of(spec, layout_, at_).front();
  parameter->owner = is_owner(spec, layout_, at_);
  parameter->spec = std::move(spec);
  by_name_[parameter->spec.name] = parameter.get();
  parameters_.push_back(std::move(parameter));
  adjacent_.push_back(adjacent);
  return parameters_.back().get();
}

void ParameterSet::allocate(const Stream& stream, bool training) {
  stream_ = stream;
  const DeviceKind device = stream.device;
  Ledger& ledger = *stream.ledger;
  // Split parameters first, those that are whole on every tp rank behind them: one sum over tp serves all of these.
  int64_t end = 0, whole_end = 0, halves_end = 0;
  int64_t replicated_begin = 0;
  const bool halves = types_.activation == DType::bfloat16;
  for (const bool replicated : {false, true}) {
    end = round_up(end);
    if (replicated) replicated_begin = end;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      Parameter& parameter = *parameters_[i];
      if ((parameter.spec.split_dim == kReplicated) != replicated) continue;
      const auto take = [&](int64_t& at) {
        const int64_t begin = adjacent_[i] ? at : round_up(at);
        at = begin + parameter.box.extent.count();
        return begin;
      };
      parameter.offset = take(end);
      parameter.weight_offset = take(halves && !parameter.spec.keep_precise ? halves_end : whole_end);
    }
  }
  const DType type = types_.accumulation;
  const int64_t bytes = end * size_of(type);
  whole_ = Buffer(device, whole_end * size_of(type), ledger, "parameters");
  weight_ = Buffer(device, halves_end * size_of(DType::bfloat16), ledger, "parameters");
  rest_ = Buffer(device, halves_end * size_of(DType::uint16), ledger, "parameters");
  if (training) {
    gradient_ = Buffer(device, bytes, ledger, "gradients");
    first_ = Buffer(device, bytes, ledger, "optimizer");
    second_ = Buffer(device, bytes, ledger, "optimizer");
    gradients_ = gradient_.tensor(0, type, {end});
    replicated_gradients_ = gradient_.tensor(replicated_begin * size_of(type), type, {end - replicated_begin});
  }
  for (const auto& parameter : parameters_) {
    const auto view = [&](const Buffer& buffer, int64_t at, DType dtype) {
      return buffer.tensor(at * size_of(dtype), dtype, parameter->box.extent);
    };
    if (halves && !parameter->spec.keep_precise) {
      parameter->weight = view(weight_, parameter->weight_offset, DType::bfloat16);
      parameter->rest = view(rest_, parameter->weight_offset, DType::uint16);
    } else {
      parameter->weight = view(whole_, parameter->weight_offset, type);
    }
    if (training) {
      parameter->gradient = view(gradient_, parameter->offset, type);
      parameter->first_moment = view(first_, parameter->offset, type);
      parameter->second_moment = view(second_, parameter->offset, type);
    }
  }
}

namespace {

// Copies that nobody counts, done when the constructor's stream is.
class HostCopies {
 public:
  explicit HostCopies(const Stream& stream) : stream_(stream) { stream_.ledger = &uncounted_; }
  void to_host(const ConstTensor& from, void* to) {
    download(stream_, from, Tensor(to, from.dtype(), from.shape(), DeviceKind::pinned));
  }
  void from_host(const void* from, const Tensor& to) {
    upload(stream_, ConstTensor(from, to.dtype(), to.shape(), DeviceKind::pinned), to);
  }
  void finish() { shiftron::finish(stream_); }

 private:
  Ledger uncounted_;
  Stream stream_;
};

const Tensor& tensor_of(const Parameter& parameter, ParameterState state) {
  return state == ParameterState::master         ? parameter.weight
         : state == ParameterState::first_moment ? parameter.first_moment
                                                 : parameter.second_moment;
}

}  // namespace

void* ParameterSet::on_host(const Parameter& parameter, ParameterState state) const {
  const Tensor& values = tensor_of(parameter, state);
  if (values.device() != DeviceKind::cpu || (state == ParameterState::master && parameter.rest.defined())) return nullptr;
  HostCopies(stream_).finish();
  return values.raw();
}

const void* ParameterSet::read(const Parameter& parameter, ParameterState state, int64_t first, int64_t count,
                               std::vector<std::byte>& room) const {
  if (const void* all = on_host(parameter, state)) {
    return static_cast<const std::byte*>(all) + first * size_of(types_.accumulation);
  }
  const Tensor values = range_of(tensor_of(parameter, state), first, count);
  HostCopies copies(stream_);
  const bool halves = state == ParameterState::master && parameter.rest.defined();
  room.resize(static_cast<size_t>(count * size_of(types_.accumulation)));
  if (!halves) {
    copies.to_host(values, room.data());
    copies.finish();
    return room.data();
  }
  std::vector<bfloat16> weight(static_cast<size_t>(count));
  std::vector<uint16_t> rest(static_cast<size_t>(count));
  copies.to_host(values, weight.data());
  copies.to_host(range_of(parameter.rest, first, count), rest.data());
  copies.finish();
  auto* masters = reinterpret_cast<float*>(room.data());
  for (int64_t i = 0; i < count; ++i) {
    masters[i] = join_halves(weight[static_cast<size_t>(i)], rest[static_cast<size_t>(i)]);
  }
  return room.data();
}

void ParameterSet::write(const Parameter& parameter, ParameterState state, int64_t first, int64_t count,
                         const void* from) const {
  const Tensor values = range_of(tensor_of(parameter, state), first, count);
  HostCopies copies(stream_);
  if (state != ParameterState::master || !parameter.rest.defined()) {
    copies.from_host(from, values);
    copies.finish();
    return;
  }
  const auto* masters = static_cast<const float*>(from);
  std::vector<bfloat16> weight(static_cast<size_t>(count));
  std::vector<uint16_t> rest(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    weight[static_cast<size_t>(i)] = weight_half(masters[i]);
    rest[static_cast<size_t>(i)] = rest_half(masters[i]);
  }
  copies.from_host(weight.data(), values);
  copies.from_host(rest.data(), range_of(parameter.rest, first, count));
  copies.finish();
}

void ParameterSet::initialise(uint64_t seed) {
  if (stream_.device == DeviceKind::meta) return;
  constexpr int64_t kBlock = 1 << 20;  // elements
  const bool wide = types_.accumulation == DType::float64;
  std::vector<double> doubles(wide ? kBlock : 0);
  std::vector<float> floats(wide ? 0 : kBlock);
  for (const auto& parameter : parameters_) {
    const Philox random(seed, "initial " + parameter->spec.name);
    int64_t begin = 0, end = 0;
    const auto flush = [&] {
      const void* values = wide ? static_cast<const void*>(doubles.data()) : floats.data();
      if (end > begin) write(*parameter, ParameterState::master, begin, end - begin, values);
      begin = end;
    };
    for_each_element(parameter->spec.shape, parameter->box, [&](int64_t local, int64_t logical) {
      // Rounded to float32 in every precision, so that all precisions start from one model.
      const auto value = static_cast<float>(parameter->spec.initial(random, logical));
      const auto place = static_cast<size_t>(local - begin);
      if (wide)
        doubles[place] = value;
      else
        floats[place] = value;
      end = local + 1;
      if (end - begin == kBlock) flush();
    });
    flush();
  }
}

Parameter* ParameterSet::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

Tensor ParameterSet::joined(const std::vector<Parameter*>& parameters, Tensor Parameter::*of, int64_t columns) const {
  const Tensor& first = parameters.front()->*of;
  const auto offset = of == &Parameter::weight ? &Parameter::weight_offset : &Parameter::offset;
  int64_t end = parameters.front()->*offset;
  for (const Parameter* parameter : parameters) {
    CHECK(parameter->*offset == end && (parameter->*of).dtype() == first.dtype(), parameter->spec.name,
          " does not lie behind the parameter before it");
    end += parameter->box.extent.count();
  }
  const int64_t count = end - parameters.front()->*offset;
  CHECK(count % columns == 0, "joined parameters are no matrix of ", columns, " columns");
  return Tensor(first.raw(), first.dtype(), {count / columns, columns}, first.device());
}

}  // namespace shiftron

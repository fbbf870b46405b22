// Boxes, owners, flat buffers and initial values of parameters.
#include "parallel/parameter.h"

#include <cstring>

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

void read_master(const Parameter& parameter, int64_t first, int64_t count, void* to) {
  const Tensor weight = range_of(parameter.weight, first, count);
  if (!parameter.rest.defined()) {
    if (count > 0) std::memcpy(to, weight.raw(), static_cast<size_t>(weight.bytes()));
    return;
  }
  Ledger uncounted;
  Stream stream{.device = weight.device(), .ledger = &uncounted};
  join_master(stream, weight, range_of(parameter.rest, first, count),
              Tensor(to, DType::float32, {count}, weight.device()));
}

void write_master(Parameter& parameter, int64_t first, int64_t count, const void* from) {
  const Tensor weight = range_of(parameter.weight, first, count);
  if (!parameter.rest.defined()) {
    if (count > 0) std::memcpy(weight.raw(), from, static_cast<size_t>(weight.bytes()));
    return;
  }
  Ledger uncounted;
  Stream stream{.device = weight.device(), .ledger = &uncounted};
  split_master(stream, ConstTensor(from, DType::float32, {count}, weight.device()), weight,
               range_of(parameter.rest, first, count));
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

void ParameterSet::allocate(DeviceKind device, Ledger& ledger, bool training) {
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

void ParameterSet::initialise(uint64_t seed) {
  for (const auto& parameter : parameters_) {
    if (parameter->weight.raw() == nullptr) continue;
    const Philox random(seed, "initial " + parameter->spec.name);
    const auto fill = [&](const auto& store) {
      for_each_element(parameter->spec.shape, parameter->box, [&](int64_t local, int64_t logical) {
        // Rounded to float32 in every precision, so that all precisions start from one model.
        store(local, static_cast<float>(parameter->spec.initial(random, logical)));
      });
    };
    if (parameter->rest.defined()) {
      fill([weight = parameter->weight.data<bfloat16>(), rest = parameter->rest.data<uint16_t>()](int64_t i, float p) {
        weight[i] = weight_half(p);
        rest[i] = rest_half(p);
      });
    } else if (types_.accumulation == DType::float64) {
      fill([values = parameter->weight.data<double>()](int64_t i, float p) { values[i] = p; });
    } else {
      fill([values = parameter->weight.data<float>()](int64_t i, float p) { values[i] = p; });
    }
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

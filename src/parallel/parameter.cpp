// Boxes, owners, flat buffers and initial values of parameters.
#include "parallel/parameter.h"

#include "kernels/kernels.h"

namespace shiftron {
namespace {

constexpr int64_t kBlockElements = 64;  // adjacent groups start on multiples of this

int64_t round_up(int64_t value) { return (value + kBlockElements - 1) / kBlockElements * kBlockElements; }

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
  parameters_.push_back(std::move(parameter));
  adjacent_.push_back(adjacent);
  return parameters_.back().get();
}

void ParameterSet::allocate(DeviceKind device, Ledger& ledger, bool training) {
  // Split parameters first, those that are whole on every tp rank behind them: one sum over tp serves all of these.
  int64_t end = 0;
  int64_t replicated_begin = 0;
  for (const bool replicated : {false, true}) {
    end = round_up(end);
    if (replicated) replicated_begin = end;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      Parameter& parameter = *parameters_[i];
      if ((parameter.spec.split_dim == kReplicated) != replicated) continue;
      if (!adjacent_[i]) end = round_up(end);
      parameter.offset = end;
      end += parameter.box.extent.count();
    }
  }
  const DType type = types_.accumulation;
  const int64_t bytes = end * size_of(type);
  master_ = Buffer(device, bytes, ledger, "parameters");
  const bool copies = types_.activation != type;
  if (copies) weight_ = Buffer(device, end * size_of(types_.activation), ledger, "parameters");
  if (training) {
    gradient_ = Buffer(device, bytes, ledger, "gradients");
    first_ = Buffer(device, bytes, ledger, "optimizer");
    second_ = Buffer(device, bytes, ledger, "optimizer");
    gradients_ = gradient_.tensor(0, type, {end});
    replicated_gradients_ = gradient_.tensor(replicated_begin * size_of(type), type, {end - replicated_begin});
  }
  for (const auto& parameter : parameters_) {
    const int64_t at = parameter->offset * size_of(type);
    const Shape& shape = parameter->box.extent;
    parameter->master = master_.tensor(at, type, shape);
    parameter->weight = parameter->master;
    if (copies && !parameter->spec.keep_precise) {
      parameter->weight = weight_.tensor(parameter->offset * size_of(types_.activation), types_.activation, shape);
      parameter->bfloat16_copy = parameter->weight;
    }
    if (training) {
      parameter->gradient = gradient_.tensor(at, type, shape);
      parameter->first_moment = first_.tensor(at, type, shape);
      parameter->second_moment = second_.tensor(at, type, shape);
    }
  }
}

void ParameterSet::initialise(uint64_t seed) {
  for (const auto& parameter : parameters_) {
    if (parameter->master.raw() == nullptr) continue;
    const Philox random(seed, "initial " + parameter->spec.name);
    const auto fill = [&](auto* values) {
      for_each_element(parameter->spec.shape, parameter->box, [&](int64_t local, int64_t logical) {
        // Rounded to float32 in every precision, so that all precisions start from one model.
        values[local] = static_cast<float>(parameter->spec.initial(random, logical));
      });
    };
    if (types_.accumulation == DType::float64) {
      fill(parameter->master.data<double>());
    } else {
      fill(parameter->master.data<float>());
    }
  }
}

void ParameterSet::refresh_weights(Stream& stream) {
  for (const auto& parameter : parameters_) {
    if (!parameter->bfloat16_copy.defined()) continue;
    const int64_t count = parameter->master.count();
    copy(stream, parameter->master.view({count}), parameter->bfloat16_copy.view({count}));
  }
}

Parameter* ParameterSet::find(const std::string& name) const {
  for (const auto& parameter : parameters_) {
    if (parameter->spec.name == name) return parameter.get();
  }
  return nullptr;
}

Tensor ParameterSet::joined(const std::vector<Parameter*>& parameters, Tensor Parameter::*of, int64_t columns) const {
  const Tensor& first = parameters.front()->*of;
  int64_t end = parameters.front()->offset;
  for (const Parameter* parameter : parameters) {
    CHECK(parameter->offset == end, parameter->spec.name, " does not lie behind the parameter before it");
    end += parameter->box.extent.count();
  }
  const int64_t count = end - parameters.front()->offset;
  CHECK(count % columns == 0, "joined parameters are no matrix of ", columns, " columns");
  return Tensor(first.raw(), first.dtype(), {count / columns, columns}, first.device());
}

}  // namespace shiftron

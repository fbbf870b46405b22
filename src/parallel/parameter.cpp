// Boxes, owners and flat buffers of parameters.
#include "parallel/parameter.h"

#include <algorithm>
#include <map>
#include <utility>

#include "kernels/element.h"
#include "kernels/kernels.h"

namespace shiftron {
namespace {

constexpr int64_t kBlockElements = 64;  // adjacent groups start on multiples of this

int64_t round_up(int64_t value) {
  return (value + kBlockElements - 1) / kBlockElements * kBlockElements;
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
  return at.cp == 0 && at.tp % tensor_replicas(spec, layout) == 0 && (!spec.tied || at.pp == 0);
}

Holders holders_of(const ParameterSpec& spec, const ParallelLayout& layout) {
  if (spec.tied) return Holders::tied;
  if (tensor_replicas(spec, layout) == 1) return Holders::none;
  return spec.split_dim == kReplicated ? Holders::tensor_parallel : Holders::kv_replica;
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

namespace {

// Backward completes gradients from the end of the model to its start.
std::pair<int, int> completion(const ParameterSpec& spec) {
  switch (spec.part) {
    case Part::head: return {0, 0};
    case Part::final_norm: return {1, 0};
    case Part::layer: return {2, -spec.layer};
    case Part::embedding: return {3, 0};
  }
  CHECK(false, "unknown part of the model");
}

}  // namespace

void ParameterSet::fill_buckets() {
  // Adjacent parameters stay together, in the bucket for the one with the most holders.
  struct Group {
    std::vector<Parameter*> parameters;
    std::pair<int, int> completed;
    std::pair<bool, Holders> kind;
  };
  std::vector<Group> groups;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    Parameter* parameter = parameters_[i].get();
    const ParameterSpec& spec = parameter->spec;
    if (!adjacent_[i]) groups.push_back({{}, completion(spec), {spec.keep_precise, Holders::none}});
    Group& group = groups.back();
    group.parameters.push_back(parameter);
    group.kind.second = std::max(group.kind.second, holders_of(spec, layout_));
  }
  std::ranges::stable_sort(groups, {}, &Group::completed);

  // In every precision a bucket has one type; the small parameters that are kept precise have buckets of their own.
  std::map<std::pair<bool, Holders>, Bucket> open;
  for (const Group& group : groups) {
    Bucket& bucket = open[group.kind];
    bucket.size = round_up(bucket.size);
    for (Parameter* parameter : group.parameters) {
      parameter->offset = bucket.size;  // in the bucket, until the bucket has its place
      bucket.size += parameter->box.extent.count();
      bucket.parameters.push_back(parameter);
    }
    if (division_.bucket_elements == 0 || bucket.size < division_.bucket_elements) continue;
    buckets_.push_back(std::move(bucket));
    open.erase(group.kind);
  }
  for (auto& [kind, bucket] : open) buckets_.push_back(std::move(bucket));
  std::ranges::stable_sort(buckets_, {}, [](const Bucket& bucket) { return completion(bucket.parameters.back()->spec); });
}

void ParameterSet::allocate(const Stream& stream, bool training, const Division& division) {
  stream_ = stream;
  training_ = training;
  division_ = division;
  fill_buckets();
  const DeviceKind device = stream.device;
  Ledger& ledger = *stream.ledger;
  const int64_t parts = training ? layout_.dp : 1, mine = training ? at_.dp : 0;
  // Elements of gradients, of masters that are whole and in halves, of moments, and of lower halves.
  int64_t end = 0, whole_end = 0, halves_end = 0, moments_end = 0, rest_end = 0;
  const auto take = [](int64_t& at, int64_t count) { return std::exchange(at, at + count); };
  struct Place {
    bool halves;
    int64_t weights, moments, rest;
  };
  std::vector<Place> places;
  for (Bucket& bucket : buckets_) {
    const int64_t part = round_up((bucket.size + parts - 1) / parts);
    bucket.size = part * parts;
    bucket.begin = take(end, bucket.size);
    bucket.part = {mine * part, (mine + 1) * part};
    const int64_t kept = division_.divided ? part : bucket.size;
    const bool halves = types_.activation == DType::bfloat16 && !bucket.parameters.front()->spec.keep_precise;
    places.push_back({.halves = halves,
                      .weights = take(halves ? halves_end : whole_end, bucket.size),
                      .moments = take(moments_end, kept),
                      .rest = halves ? take(rest_end, kept) : 0});
  }
  const DType type = types_.accumulation;
  whole_ = Buffer(device, whole_end * size_of(type), ledger, "parameters");
  weight_ = Buffer(device, halves_end * size_of(DType::bfloat16), ledger, "parameters");
  rest_ = Buffer(device, rest_end * size_of(DType::uint16), ledger, "parameters");
  if (training) {
    gradient_ = Buffer(device, end * size_of(type), ledger, "gradients");
    first_ = Buffer(device, moments_end * size_of(type), ledger, "optimizer");
    second_ = Buffer(device, moments_end * size_of(type), ledger, "optimizer");
    gradients_ = gradient_.tensor(0, type, {end});
  }
  constexpr int64_t kTransfer = int64_t{4} << 20;  // bytes
  if (device == DeviceKind::cuda) transfer_ = staging_buffer(stream_, kTransfer);
  const auto view = [](const Buffer& buffer, int64_t at, DType dtype, Shape shape) {
    return buffer.tensor(at * size_of(dtype), dtype, shape);
  };
  for (size_t i = 0; i < buckets_.size(); ++i) {
    Bucket& bucket = buckets_[i];
    const Place& place = places[i];
    const Buffer& weights = place.halves ? weight_ : whole_;
    const DType weight_type = place.halves ? DType::bfloat16 : type;
    bucket.weights = view(weights, place.weights, weight_type, {bucket.size});
    if (training) bucket.gradients = view(gradient_, bucket.begin, type, {bucket.size});
    for (Parameter* parameter : bucket.parameters) {
      const int64_t begin = parameter->offset, count = parameter->box.extent.count();
      const auto of_part = [&](int64_t at) { return std::clamp(at - begin, int64_t{0}, count); };
      parameter->part = {of_part(bucket.part.begin), of_part(bucket.part.end)};
      parameter->kept = division_.divided ? parameter->part : Range{0, count};
      const Range kept = parameter->kept;
      // Index of its first kept element among the kept elements of the bucket.
      const int64_t among = kept.size() == 0 ? 0 : begin + kept.begin - (division_.divided ? bucket.part.begin : 0);
      parameter->offset = bucket.begin + begin;
      parameter->weight_offset = place.weights + begin;
      parameter->weight = view(weights, parameter->weight_offset, weight_type, parameter->box.extent);
      if (place.halves) parameter->rest = view(rest_, place.rest + among, DType::uint16, {kept.size()});
      if (!training) continue;
      parameter->gradient = view(gradient_, parameter->offset, type, parameter->box.extent);
      parameter->first_moment = view(first_, place.moments + among, type, {kept.size()});
      parameter->second_moment = view(second_, place.moments + among, type, {kept.size()});
    }
  }
}

void ParameterSet::await_weights(Stream& stream) const {
  await_weights(stream, [](const ParameterSpec&) { return true; });
}

void ParameterSet::await_weights(Stream& stream, const std::function<bool(const ParameterSpec& spec)>& needed) const {
  std::erase_if(arriving_, [&](auto& arriving) {
    const bool awaited = std::ranges::any_of(arriving.first->parameters,
                                             [&](const Parameter* parameter) { return needed(parameter->spec); });
    if (awaited) arriving.second.wait(stream);
    return awaited;
  });
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
          " does not directly follow the previous parameter");
    end += parameter->box.extent.count();
  }
  const int64_t count = end - parameters.front()->*offset;
  CHECK(count % columns == 0, "joined parameters are not a matrix of ", columns, " columns");
  return Tensor(first.raw(), first.dtype(), {count / columns, columns}, first.device());
}

}  // namespace shiftron

// Elements are read in place, on demand.
#include "interchange/safetensors_source.h"

#include <algorithm>
#include <cmath>

#include "checkpoint/boxes.h"
#include "core/check.h"
#include "core/system_error.h"

namespace shiftron {
namespace {

constexpr size_t kMostNamed = 8;

}  // namespace

std::string shape_text(const std::vector<uint64_t>& shape) {
  return SafetensorsTensor{.name = {}, .shape = shape}.shape_text();
}

const SafetensorsSource::Entry* SafetensorsSource::take_if_present(const std::string& name) {
  const Entry* entry = files_.find(name);
  if (entry == nullptr) return nullptr;
  require_weight_type(entry->file->path(), *entry->tensor);
  used_.insert(name);
  return entry;
}

const SafetensorsSource::Entry& SafetensorsSource::take(const std::string& name, const std::vector<uint64_t>& shape,
                                                        const std::string& sizes) {
  const Entry* entry = take_if_present(name);
  const std::string wanted = shape_text(shape) + (sizes.empty() ? "" : " (" + sizes + ")");
  if (entry == nullptr) throw_bad_input(files_.directory(), ": tensor ", name, " ", wanted, " is missing");
  if (entry->tensor->shape != shape) {
    throw_bad_input(entry->file->path(), ": tensor ", name, " is ", entry->tensor->shape_text(),
                    ", but config.json requires ", wanted);
  }
  return *entry;
}

void SafetensorsSource::add(const HuggingFaceName& name, Place place) {
  by_name_[name.ours] = static_cast<int>(tensors_.size());
  tensors_.push_back(
      {.group = TensorGroup::parameters, .name = name.ours, .shape = name.shape, .dtype = DType::float32});
  places_.push_back(std::move(place));
}

void SafetensorsSource::finish(const std::vector<std::string>& ignored_endings) {
  refuse_unused(ignored_endings);
  const bool is_wide = std::ranges::any_of(
      used_, [&](const std::string& name) { return files_.find(name)->tensor->type == SafetensorsType::F64; });
  for (ManifestTensor& tensor : tensors_) tensor.dtype = is_wide ? DType::float64 : DType::float32;
}

void SafetensorsSource::refuse_unused(const std::vector<std::string>& ignored_endings) const {
  std::string names;
  size_t unused = 0;
  for (const auto& [name, entry] : files_.tensors()) {
    const bool ignored =
        std::ranges::any_of(ignored_endings, [&name = name](const auto& ending) { return name.ends_with(ending); });
    if (ignored || used_.contains(name)) continue;
    if (++unused <= kMostNamed) names += "\n  " + name + " " + entry.tensor->shape_text();
  }
  if (unused == 0) return;
  if (unused > kMostNamed) names += "\n  and " + std::to_string(unused - kMostNamed) + " more";
  throw_bad_input(files_.directory(), ": these tensors are not supported:", names);
}

int SafetensorsSource::find(TensorGroup group, const std::string& name) const {
  const auto found = by_name_.find(name);
  return group != TensorGroup::parameters || found == by_name_.end() ? -1 : found->second;
}

template <typename Real>
void SafetensorsSource::read_normed(const Place& place, const Shape& shape, const Box& box, Real* to) const {
  const int64_t columns = shape[1];
  std::vector<double> row(static_cast<size_t>(columns));
  for (int64_t i = 0; i < box.extent[0]; ++i) {
    place.entry->file->read(*place.entry->tensor, static_cast<uint64_t>((box.offset[0] + i) * columns), row.size(),
                            row.data());
    double squares = 0;
    for (const double value : row) squares += value * value;
    const double length = std::max(std::sqrt(squares), 1e-12);
    for (int64_t j = 0; j < box.extent[1]; ++j) {
      to[i * box.extent[1] + j] = static_cast<Real>(row[static_cast<size_t>(box.offset[1] + j)] / length);
    }
  }
}

// Elements [from, from + count) of the logical tensor, part by part.
template <typename Real>
void SafetensorsSource::read_parts(const Place& place, const Shape& shape, uint64_t from, uint64_t count,
                                   Real* to) const {
  const auto part = static_cast<uint64_t>(shape.count() / shape[0]);
  while (count > 0) {
    const uint64_t within = from % part, now = std::min(count, part - within);
    place.entry->file->read(*place.entry->tensor, place.parts[from / part] + within, now, to);
    from += now;
    to += now;
    count -= now;
  }
}

template <typename Real>
void SafetensorsSource::read_as(const Place& place, const Shape& shape, const Box& box, Real* to) const {
  if (place.norm_rows) return read_normed(place, shape, box, to);
  for_each_run(whole_box(shape), box, box, [&](int64_t from, int64_t at, int64_t count) {
    const auto first = static_cast<uint64_t>(from), elements = static_cast<uint64_t>(count);
    if (place.entry == nullptr) {
      for (int64_t i = 0; i < count; ++i) to[at + i] = static_cast<Real>(place.values[static_cast<size_t>(from + i)]);
    } else if (!place.parts.empty()) {
      read_parts(place, shape, first, elements, to + at);
    } else {
      place.entry->file->read(*place.entry->tensor, place.first + first, elements, to + at);
    }
  });
}

void SafetensorsSource::read(int index, const Box& box, void* to) {
  const Place& place = places_.at(static_cast<size_t>(index));
  const ManifestTensor& tensor = tensors_[static_cast<size_t>(index)];
  try {
    if (tensor.dtype == DType::float64) return read_as(place, tensor.shape, box, static_cast<double*>(to));
    read_as(place, tensor.shape, box, static_cast<float*>(to));
  } catch (const Error& error) {
    rethrow_system_error(error);
    throw Error(tensor.path() + ": " + error.what(), error.code());  // same code: no checkpoint of ours is damaged
  }
}

}  // namespace shiftron

// Streaming over logical tensors, slab by slab.
#include "checkpoint/digest.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "checkpoint/boxes.h"
#include "checkpoint/elements.h"
#include "checkpoint/reader.h"
#include "checkpoint/steps.h"
#include "core/check.h"
#include "kernels/element.h"

namespace shiftron {
namespace {

constexpr int64_t kSlabBytes = int64_t{4} << 20;

uint64_t bytes_of(const ManifestTensor& tensor) {
  return static_cast<uint64_t>(tensor.shape.count() * size_of(tensor.dtype));
}

// Visits slabs of about kSlabBytes, in order.
template <typename Visit>
void for_each_slab(const ManifestTensor& tensor, Visit visit) {
  for_each_rows(whole_box(tensor.shape), kSlabBytes / size_of(tensor.dtype), visit);
}

// Without the configuration, which names directories and the layout.
nlohmann::json trainer_state(const Manifest& manifest) {
  nlohmann::json state = nlohmann::json::parse(manifest.state_json);
  if (state.is_object()) state.erase("configuration");
  return state;
}

// Most significant byte first, as in the hash's hexadecimal text.
void append_bytes(std::array<std::byte, 32>& bytes, size_t at, const Hash128& hash) {
  for (size_t i = 0; i < 8; ++i) {
    bytes[at + i] = static_cast<std::byte>(hash.high >> (56 - 8 * i));
    bytes[at + 8 + i] = static_cast<std::byte>(hash.low >> (56 - 8 * i));
  }
}

Hash128 root_of(std::vector<std::string> lines) {
  std::ranges::sort(lines);
  HashStream hash;
  for (const std::string& line : lines) hash.update(line.data(), line.size());
  return hash.digest_128();
}

uint64_t bits_of(double value) {
  return std::bit_cast<uint64_t>(value);
}
uint64_t bits_of(float value) {
  return std::bit_cast<uint32_t>(value);
}
uint64_t bits_of(bfloat16 value) {
  return value.bits;
}

// The distance of two numbers in numbers of their type; −0 and 0 are neighbours.
template <typename Real>
uint64_t ulps(Real x, Real y) {
  constexpr uint64_t kSign = uint64_t{1} << (8 * sizeof(Real) - 1);
  const uint64_t a = bits_of(x), b = bits_of(y);
  const uint64_t far_a = a & ~kSign, far_b = b & ~kSign;
  if ((a & kSign) != (b & kSign)) return far_a + far_b + 1;
  return far_a > far_b ? far_a - far_b : far_b - far_a;
}

struct Sums {
  double difference = 0, reference = 0;  // squares
};

Shape coordinates(const Shape& shape, int64_t index) {
  Shape at = shape;
  for (int dim = shape.dims() - 1; dim >= 0; --dim) {
    at[dim] = index % shape[dim];
    index /= shape[dim];
  }
  return at;
}

// Compares two slabs that begin with element `begin` of the tensor.
template <typename Real>
void compare(const Shape& shape, int64_t begin, const std::vector<std::byte>& a, const std::vector<std::byte>& b,
             TensorDifference& found, Sums& sums) {
  const size_t count = a.size() / sizeof(Real);
  for (size_t i = 0; i < count; ++i) {
    Real left, right;
    std::memcpy(&left, a.data() + i * sizeof(Real), sizeof(Real));
    std::memcpy(&right, b.data() + i * sizeof(Real), sizeof(Real));
    const auto x = static_cast<double>(to_accumulate(left)), y = static_cast<double>(to_accumulate(right));
    sums.reference += x * x;
    if (bits_of(left) == bits_of(right)) continue;
    ++found.unequal;
    double difference = std::abs(x - y);
    if (!found.first) {
      const bool numbers = !std::isnan(x) && !std::isnan(y);
      found.first = {coordinates(shape, begin + static_cast<int64_t>(i)), x, y,
                     numbers ? std::optional(ulps(left, right)) : std::nullopt};
    }
    if (std::isnan(difference)) difference = std::numeric_limits<double>::infinity();
    found.max_absolute = std::max(found.max_absolute, difference);
    sums.difference += difference * difference;
  }
}

class Comparison {
 public:
  Comparison(TensorSource& a, TensorSource& b, const DiffOptions& options) : a_(a), b_(b), options_(options) {}

  // −1 = not there
  TensorDifference of(const std::string& path, int index_a, int index_b);
  uint64_t total = 0;  // bytes to read from the first source

 private:
  void compare_elements(int index_a, int index_b, DType as, TensorDifference& found);
  TensorSource& a_;
  TensorSource& b_;
  const DiffOptions& options_;
  uint64_t done_ = 0;
  std::vector<std::byte> left_, right_, room_;
};

void Comparison::compare_elements(int index_a, int index_b, DType as, TensorDifference& found) {
  const ManifestTensor& tensor = a_.tensors()[static_cast<size_t>(index_a)];
  Sums sums;
  for_each_slab(tensor, [&](const Box& box, int64_t begin) {
    read_elements(a_, index_a, box, as, left_, room_);
    read_elements(b_, index_b, box, as, right_, room_);
    if (as == DType::float64) {
      compare<double>(tensor.shape, begin, left_, right_, found, sums);
    } else if (as == DType::float32) {
      compare<float>(tensor.shape, begin, left_, right_, found, sums);
    } else {
      compare<bfloat16>(tensor.shape, begin, left_, right_, found, sums);
    }
    done_ += static_cast<uint64_t>(box.extent.count() * size_of(tensor.dtype));
    if (options_.progress) options_.progress(done_, total);
  });
  found.count = tensor.shape.count();
  if (sums.difference > 0) {
    found.relative_l2 = std::sqrt(sums.difference) / std::sqrt(sums.reference);  // infinity if the reference is 0
    if (std::isnan(found.relative_l2)) found.relative_l2 = std::numeric_limits<double>::infinity();
  }
}

TensorDifference Comparison::of(const std::string& path, int index_a, int index_b) {
  TensorDifference found;
  found.path = path;
  if (index_a < 0 || index_b < 0) {
    found.mismatch = index_a < 0 ? "only in the second" : "only in the first";
    return found;
  }
  const ManifestTensor& x = a_.tensors()[static_cast<size_t>(index_a)];
  const ManifestTensor& y = b_.tensors()[static_cast<size_t>(index_b)];
  if (!(x.shape == y.shape) || (x.dtype != y.dtype && !options_.widen)) {
    found.mismatch = x.shape.text() + " of " + name_of(x.dtype) + " vs. " + y.shape.text() + " of " + name_of(y.dtype);
    return found;
  }
  compare_elements(index_a, index_b, size_of(x.dtype) >= size_of(y.dtype) ? x.dtype : y.dtype, found);
  return found;
}

}  // namespace

void TreeHash::update(const void* data, uint64_t bytes) {
  const auto* at = static_cast<const std::byte*>(data);
  while (bytes > 0) {
    const uint64_t some = std::min(bytes, leaf_bytes_ - filled_);
    leaf_.update(at, some);
    filled_ += some;
    at += some;
    bytes -= some;
    if (filled_ < leaf_bytes_) continue;
    leaves_.push_back(leaf_.digest_128());
    leaf_ = HashStream();
    filled_ = 0;
  }
}

Hash128 TreeHash::finish() {
  if (filled_ > 0) leaves_.push_back(leaf_.digest_128());
  CHECK(!leaves_.empty(), "a tree of no elements");
  std::vector<Hash128> nodes = std::move(leaves_);
  while (nodes.size() > 1) {
    std::vector<Hash128> parents;
    for (size_t i = 0; i + 1 < nodes.size(); i += 2) {
      std::array<std::byte, 32> children{};
      append_bytes(children, 0, nodes[i]);
      append_bytes(children, 16, nodes[i + 1]);
      parents.push_back(xxh3_128(children.data(), children.size()));
    }
    if (nodes.size() % 2 == 1) parents.push_back(nodes.back());
    nodes = std::move(parents);
  }
  return nodes.front();
}

StepDigest digest_source(TensorSource& source, const BytesRead& progress) {
  const std::vector<ManifestTensor>& tensors = source.tensors();
  uint64_t done = 0, total = 0;
  for (const ManifestTensor& tensor : tensors) total += bytes_of(tensor);
  StepDigest digest;
  std::vector<std::string> parameters, moments;
  std::vector<std::byte> slab;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const ManifestTensor& tensor = tensors[i];
    HashStream hash;
    TreeHash tree(static_cast<uint64_t>(kLeafElements * size_of(tensor.dtype)));
    for_each_slab(tensor, [&](const Box& box, int64_t) {
      slab.resize(static_cast<size_t>(box.extent.count() * size_of(tensor.dtype)));
      source.read(static_cast<int>(i), box, slab.data());
      hash.update(slab.data(), slab.size());
      tree.update(slab.data(), slab.size());
      done += slab.size();
      if (progress) progress(done, total);
    });
    digest.tensors.push_back({tensor, hash.digest_128(), tree.finish()});
    (tensor.group == TensorGroup::parameters ? parameters : moments)
        .push_back(tensor.path() + " " + name_of(tensor.dtype) + " " + tensor.shape.text() + " " +
                   to_hex(digest.tensors.back().tree) + "\n");
  }
  digest.parameters = root_of(std::move(parameters));
  if (!moments.empty()) digest.moments = root_of(std::move(moments));
  return digest;
}

StepDigest digest_step(const std::string& step_directory, const BytesRead& progress) {
  StepReader reader(step_directory, check_step(step_directory));
  return digest_source(reader, progress);
}

std::vector<TensorDifference> diff_sources(TensorSource& a, TensorSource& b, const DiffOptions& options) {
  const auto compared = [&](const ManifestTensor& tensor) {
    return tensor.group == TensorGroup::parameters || !options.parameters_only;
  };
  std::map<std::string, std::pair<int, int>> indices;  // −1 = not there
  Comparison comparison(a, b, options);
  for (size_t i = 0; i < a.tensors().size(); ++i) {
    if (!compared(a.tensors()[i])) continue;
    indices[a.tensors()[i].path()] = {static_cast<int>(i), -1};
    comparison.total += bytes_of(a.tensors()[i]);
  }
  for (size_t i = 0; i < b.tensors().size(); ++i) {
    if (!compared(b.tensors()[i])) continue;
    indices.try_emplace(b.tensors()[i].path(), -1, -1).first->second.second = static_cast<int>(i);
  }
  std::vector<TensorDifference> found;
  for (const auto& [path, index] : indices) found.push_back(comparison.of(path, index.first, index.second));
  return found;
}

StepDifference diff_steps(const std::string& a, const std::string& b, const DiffOptions& options) {
  StepReader left(a, check_step(a)), right(b, check_step(b));
  return {.step_a = left.manifest().step,
          .step_b = right.manifest().step,
          .state_equal = trainer_state(left.manifest()) == trainer_state(right.manifest()),
          .tensors = diff_sources(left, right, options),
          .parameters_only = options.parameters_only};
}

bool StepDifference::equal() const {
  return (parameters_only || (step_a == step_b && state_equal == true)) &&
         std::all_of(tensors.begin(), tensors.end(), [](const TensorDifference& tensor) { return tensor.equal(); });
}

}  // namespace shiftron

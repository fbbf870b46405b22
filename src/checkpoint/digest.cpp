// Streaming over logical tensors, slab by slab.
#include "checkpoint/digest.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "checkpoint/boxes.h"
#include "checkpoint/reader.h"
#include "checkpoint/steps.h"

namespace shiftron {
namespace {

constexpr int64_t kSlabBytes = int64_t{4} << 20;

// Calls visit(box) for rows of dim 0 that together hold about kSlabBytes, in order.
template <typename Visit>
void for_each_slab(const ManifestTensor& tensor, Visit visit) {
  const int64_t row = tensor.shape.count() / tensor.shape[0] * size_of(tensor.dtype);
  const int64_t rows = std::max<int64_t>(1, kSlabBytes / row);
  for (int64_t begin = 0; begin < tensor.shape[0]; begin += rows) {
    visit(row_box(tensor.shape, begin, std::min(rows, tensor.shape[0] - begin)));
  }
}

// Without the configuration, which names directories and the layout.
nlohmann::json trainer_state(const Manifest& manifest) {
  nlohmann::json state = nlohmann::json::parse(manifest.state_json);
  if (state.is_object()) state.erase("configuration");
  return state;
}

struct Sums {
  double difference = 0, reference = 0;  // squares
};

// Adds the elements of two slabs to `found` and `sums`.
template <typename Real>
void compare(const std::vector<std::byte>& a, const std::vector<std::byte>& b, TensorDifference& found, Sums& sums) {
  const size_t count = a.size() / sizeof(Real);
  for (size_t i = 0; i < count; ++i) {
    Real x, y;
    std::memcpy(&x, a.data() + i * sizeof(Real), sizeof(Real));
    std::memcpy(&y, b.data() + i * sizeof(Real), sizeof(Real));
    sums.reference += static_cast<double>(x) * static_cast<double>(x);
    if (std::memcmp(&x, &y, sizeof(Real)) == 0) continue;
    ++found.unequal;
    double difference = std::abs(static_cast<double>(x) - static_cast<double>(y));
    if (std::isnan(difference)) difference = std::numeric_limits<double>::infinity();
    found.max_absolute = std::max(found.max_absolute, difference);
    sums.difference += difference * difference;
  }
}

template <typename Real>
void compare_tensor(StepReader& a, StepReader& b, int index_a, int index_b, TensorDifference& found) {
  const ManifestTensor& tensor = a.manifest().tensors[static_cast<size_t>(index_a)];
  Sums sums;
  std::vector<std::byte> left, right;
  for_each_slab(tensor, [&](const Box& box) {
    const size_t bytes = static_cast<size_t>(box.extent.count()) * sizeof(Real);
    left.resize(bytes);
    right.resize(bytes);
    a.read(index_a, box, left.data());
    b.read(index_b, box, right.data());
    compare<Real>(left, right, found, sums);
  });
  found.count = tensor.shape.count();
  if (sums.difference > 0) {
    found.relative_l2 = std::sqrt(sums.difference) / std::sqrt(sums.reference);  // infinity where the reference is 0
    if (std::isnan(found.relative_l2)) found.relative_l2 = std::numeric_limits<double>::infinity();
  }
}

}  // namespace

std::vector<TensorDigest> digest_step(const std::string& step_directory) {
  StepReader reader(step_directory, check_step(step_directory));
  std::vector<TensorDigest> digests;
  std::vector<std::byte> slab;
  const std::vector<ManifestTensor>& tensors = reader.manifest().tensors;
  for (size_t i = 0; i < tensors.size(); ++i) {
    HashStream hash;
    for_each_slab(tensors[i], [&](const Box& box) {
      slab.resize(static_cast<size_t>(box.extent.count() * size_of(tensors[i].dtype)));
      reader.read(static_cast<int>(i), box, slab.data());
      hash.update(slab.data(), slab.size());
    });
    digests.push_back({tensors[i], hash.digest_128()});
  }
  return digests;
}

StepDifference diff_steps(const std::string& a, const std::string& b) {
  StepReader left(a, check_step(a)), right(b, check_step(b));
  StepDifference found;
  found.step_a = left.manifest().step;
  found.step_b = right.manifest().step;
  found.state_equal = trainer_state(left.manifest()) == trainer_state(right.manifest());
  std::map<std::string, std::pair<int, int>> indices;  // −1 = not there
  const auto& tensors_a = left.manifest().tensors;
  const auto& tensors_b = right.manifest().tensors;
  for (size_t i = 0; i < tensors_a.size(); ++i) indices[tensors_a[i].path()] = {static_cast<int>(i), -1};
  for (size_t i = 0; i < tensors_b.size(); ++i) {
    indices.try_emplace(tensors_b[i].path(), -1, -1).first->second.second = static_cast<int>(i);
  }
  for (const auto& [path, index] : indices) {
    TensorDifference& entry = found.tensors.emplace_back();
    entry.path = path;
    if (index.first < 0 || index.second < 0) {
      entry.mismatch = index.first < 0 ? "only in the second" : "only in the first";
      continue;
    }
    const ManifestTensor& x = tensors_a[static_cast<size_t>(index.first)];
    const ManifestTensor& y = tensors_b[static_cast<size_t>(index.second)];
    if (!(x == y)) {
      entry.mismatch =
          x.shape.text() + " of " + name_of(x.dtype) + " against " + y.shape.text() + " of " + name_of(y.dtype);
    } else if (x.dtype == DType::float64) {
      compare_tensor<double>(left, right, index.first, index.second, entry);
    } else {
      compare_tensor<float>(left, right, index.first, index.second, entry);
    }
  }
  return found;
}

bool StepDifference::equal() const {
  return step_a == step_b && state_equal &&
         std::all_of(tensors.begin(), tensors.end(), [](const TensorDifference& tensor) { return tensor.equal(); });
}

}  // namespace shiftron

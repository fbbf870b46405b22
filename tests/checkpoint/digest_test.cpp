// A digest's tree compared with its definition, and how a difference is located.
#include "checkpoint/digest.h"

#include <cmath>
#include <limits>

#include "checkpoint/fixture.h"

namespace shiftron {
namespace {

using namespace shiftron::testing;

// Tensors of one group in memory.
class MemorySource : public TensorSource {
 public:
  template <typename Real>
  void add(TensorGroup group, const std::string& name, const Shape& shape, DType dtype,
           const std::vector<Real>& values) {
    tensors_.push_back({group, name, shape, dtype});
    const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
    bytes_.emplace_back(bytes, bytes + values.size() * sizeof(Real));
  }
  const std::vector<ManifestTensor>& tensors() const override { return tensors_; }
  int find(TensorGroup group, const std::string& name) const override {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (tensors_[i].group == group && tensors_[i].name == name) return static_cast<int>(i);
    }
    return -1;
  }
  void read(int index, const Box& box, void* to) override {
    const auto at = static_cast<size_t>(index);
    const int64_t size = size_of(tensors_[at].dtype);
    for_each_run(whole_box(tensors_[at].shape), box, box, [&](int64_t from, int64_t target, int64_t count) {
      std::memcpy(static_cast<std::byte*>(to) + target * size, bytes_[at].data() + from * size,
                  static_cast<size_t>(count * size));
    });
  }

 private:
  std::vector<ManifestTensor> tensors_;
  std::vector<std::vector<std::byte>> bytes_;
};

// The bytes that the hexadecimal text names.
std::string bytes_of(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

std::string parent(const std::string& left, const std::string& right) {
  return to_hex(xxh3_128(bytes_of(left) + bytes_of(right)));
}

TEST(Digest, TreeOfFiveLeavesByHand) {
  const std::string bytes = "abcdefghijklmnopqr";
  std::vector<std::string> leaf;
  for (size_t at = 0; at < bytes.size(); at += 4) leaf.push_back(to_hex(xxh3_128(bytes.substr(at, 4))));
  ASSERT_EQ(leaf.size(), 5u);
  const std::string expected = parent(parent(parent(leaf[0], leaf[1]), parent(leaf[2], leaf[3])), leaf[4]);
  for (const size_t piece : {1, 3, 4, 7, 18}) {  // however the bytes arrive
    TreeHash tree(4);
    for (size_t at = 0; at < bytes.size(); at += piece)
      tree.update(bytes.data() + at, std::min(piece, bytes.size() - at));
    EXPECT_EQ(to_hex(tree.finish()), expected) << piece;
  }
}

TEST(Digest, RootsOfGroupsApart) {
  MemorySource source;
  source.add<float>(TensorGroup::parameters, "b", {2, 1}, DType::float32, {1, 2});
  source.add<float>(TensorGroup::first_moment, "a", {1}, DType::float32, {3});
  source.add<uint16_t>(TensorGroup::parameters, "a", {1}, DType::bfloat16, {0x3f80});
  const StepDigest digest = digest_source(source);
  const std::vector<float> b = {1, 2};
  const uint16_t a = 0x3f80;
  EXPECT_EQ(digest.tensors[0].tree, xxh3_128(b.data(), 8));
  EXPECT_EQ(digest.tensors[0].hash, xxh3_128(b.data(), 8));
  const std::string lines = "parameters/a bfloat16 [1] " + to_hex(xxh3_128(&a, 2)) + "\nparameters/b float32 [2, 1] " +
                            to_hex(xxh3_128(b.data(), 8)) + "\n";
  EXPECT_EQ(digest.parameters, xxh3_128(lines));
  const float moment = 3;
  ASSERT_TRUE(digest.moments);
  EXPECT_EQ(*digest.moments, xxh3_128("first_moment/a float32 [1] " + to_hex(xxh3_128(&moment, 4)) + "\n"));
  MemorySource bare;
  bare.add<float>(TensorGroup::parameters, "b", {2, 1}, DType::float32, {1, 2});
  EXPECT_FALSE(digest_source(bare).moments);
}

TEST(Digest, OfATensorOfSeveralLeaves) {
  std::vector<float> values(static_cast<size_t>(kLeafElements) * 2 + 1000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1013);
  MemorySource source;
  source.add(TensorGroup::parameters, "a", {static_cast<int64_t>(values.size() / 8), 8}, DType::float32, values);
  const auto leaf = [&](size_t begin, size_t end) {
    return to_hex(xxh3_128(values.data() + begin, (end - begin) * sizeof(float)));
  };
  const size_t n = static_cast<size_t>(kLeafElements);
  EXPECT_EQ(to_hex(digest_source(source).tensors[0].tree),
            parent(parent(leaf(0, n), leaf(n, 2 * n)), leaf(2 * n, values.size())));
}

TEST(Digest, NoLayoutChangesIt) {
  const TemporaryDirectory directory;
  const FakeModel model{.layers = 2, .kv_heads = 2, .vocab = 13};
  const auto digest = [&](const ParallelLayout& layout, const std::string& name) {
    return digest_step(save_state(directory.path() + "/" + name, model, layout, 1, 5).directory);
  };
  const StepDigest a = digest({}, "a"), b = digest({.tp = 2, .dp = 2, .pp = 2}, "b");
  EXPECT_EQ(a.parameters, b.parameters);
  EXPECT_EQ(a.moments, b.moments);
  const StepDigest c = digest_step(save_state(directory.path() + "/c", model, {}, 1, 6).directory);
  EXPECT_NE(a.parameters, c.parameters);
  EXPECT_NE(a.moments, c.moments);
}

TensorDifference difference(const std::vector<float>& a, const std::vector<float>& b, const Shape& shape) {
  MemorySource left, right;
  left.add(TensorGroup::parameters, "x", shape, DType::float32, a);
  right.add(TensorGroup::parameters, "x", shape, DType::float32, b);
  return diff_sources(left, right).at(0);
}

TEST(Diff, TellsTheFirstElementAndItsDistance) {
  const float next = std::nextafter(0.5f, 1.0f);
  const TensorDifference found = difference({1, 2, 3, 0.5f, 5, 6}, {1, 2, 3, next, 5, 7}, {3, 2});
  EXPECT_EQ(found.unequal, 2);
  ASSERT_TRUE(found.first);
  EXPECT_EQ(found.first->index.text(), "[1, 1]");
  EXPECT_EQ(found.first->a, 0.5);
  EXPECT_EQ(found.first->b, static_cast<double>(next));
  EXPECT_EQ(found.first->ulp, 1u);
}

TEST(Diff, DistancesAcrossZeroAndBesideNaN) {
  const float tiny = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(difference({0.0f}, {-0.0f}, {1}).first->ulp, 1u);
  EXPECT_EQ(difference({tiny}, {-tiny}, {1}).first->ulp, 3u);
  EXPECT_EQ(difference({-1}, {-2}, {1}).first->ulp, uint64_t{1} << 23);
  EXPECT_FALSE(difference({NAN}, {1}, {1}).first->ulp);
  EXPECT_TRUE(difference({NAN}, {NAN}, {1}).equal());
}

TEST(Diff, TypesAreWidenedWhenAskedFor) {
  MemorySource halves, floats;
  halves.add<uint16_t>(TensorGroup::parameters, "x", {2}, DType::bfloat16, {0x3f80, 0x4000});
  floats.add<float>(TensorGroup::parameters, "x", {2}, DType::float32, {1, std::nextafter(2.0f, 3.0f)});
  EXPECT_EQ(diff_sources(halves, floats).at(0).mismatch, "[2] of bfloat16 vs. [2] of float32");
  for (const bool turned : {false, true}) {
    const TensorDifference found = turned ? diff_sources(floats, halves, {.widen = true}).at(0)
                                          : diff_sources(halves, floats, {.widen = true}).at(0);
    EXPECT_EQ(found.unequal, 1);
    EXPECT_EQ(found.first->index.text(), "[1]");
    EXPECT_EQ(found.first->ulp, 1u);
  }
}

TEST(Diff, ParametersAlone) {
  MemorySource a, b;
  for (MemorySource* source : {&a, &b}) source->add<float>(TensorGroup::parameters, "x", {1}, DType::float32, {1});
  a.add<float>(TensorGroup::first_moment, "x", {1}, DType::float32, {1});
  EXPECT_EQ(diff_sources(a, b).size(), 2u);
  EXPECT_EQ(diff_sources(a, b).at(0).mismatch, "only in the first");
  const auto found = diff_sources(a, b, {.parameters_only = true});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found[0].equal());
}

}  // namespace
}  // namespace shiftron

// Views: strides, slices, splits, types, and what they refuse.
#include "core/tensor.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace shiftron {
namespace {

class TensorTest : public ::testing::Test {
 protected:
  TensorTest() { std::iota(memory_.begin(), memory_.end(), 0.0f); }
  Tensor tensor(Shape shape) { return Tensor(memory_.data(), DType::float32, shape, DeviceKind::cpu); }
  std::vector<float> memory_ = std::vector<float>(24);
};

TEST_F(TensorTest, ViewsAreRowMajor) {
  const Tensor x = tensor({2, 3, 4});
  EXPECT_EQ(x.stride(0), 12);
  EXPECT_EQ(x.stride(1), 4);
  EXPECT_EQ(x.stride(2), 1);
  EXPECT_EQ(x.count(), 24);
  EXPECT_EQ(x.bytes(), 96);
  EXPECT_EQ(x.shape().text(), "[2, 3, 4]");
  EXPECT_TRUE(x.contiguous());
  EXPECT_EQ(Shape().count(), 1);
  EXPECT_FALSE(Tensor().defined());
}

TEST_F(TensorTest, SlicesKeepStrides) {
  const Tensor x = tensor({4, 6});
  const Tensor rows = x.rows(1, 2);
  EXPECT_EQ(rows.data<float>()[0], 6);
  EXPECT_TRUE(rows.contiguous());
  const Tensor columns = x.slice(1, 2, 3);
  EXPECT_EQ(columns.data<float>()[columns.stride(0)], 8);
  EXPECT_FALSE(columns.contiguous());
  EXPECT_TRUE(x.slice(1, 5, 1).rows(2, 1).contiguous());
  EXPECT_EQ(x.rows(4, 0).count(), 0);
  EXPECT_THROW((void)x.rows(3, 2), Error);
  EXPECT_THROW((void)x.slice(2, 0, 1), Error);
}

TEST_F(TensorTest, SplitAndMergeOfTheLastDim) {
  const Tensor columns = tensor({4, 6}).slice(1, 2, 4);
  const Tensor heads = columns.split_last(2, 2);
  EXPECT_EQ(heads.shape(), (Shape{4, 2, 2}));
  EXPECT_EQ(heads.data<float>()[3 * heads.stride(0) + heads.stride(1)], 22);
  const Tensor merged = heads.merge_last();
  EXPECT_EQ(merged.shape(), (Shape{4, 4}));
  EXPECT_EQ(merged.stride(0), 6);
  EXPECT_THROW((void)columns.split_last(3, 2), Error);
  EXPECT_THROW((void)heads.slice(2, 0, 1).merge_last(), Error);
  EXPECT_THROW((void)columns.view({16}), Error);
  EXPECT_EQ(tensor({4, 6}).view({3, 8}).stride(0), 8);
}

TEST_F(TensorTest, DataChecksTheType) {
  const Tensor x = tensor({24});
  EXPECT_THROW((void)x.data<double>(), Error);
  const Tensor meta(nullptr, DType::float32, {5, 2}, DeviceKind::meta);
  EXPECT_EQ(meta.rows(1, 2).raw(), nullptr);
  EXPECT_EQ(meta.bytes(), 40);
}

TEST_F(TensorTest, ShapesAreChecked) {
  EXPECT_THROW((Shape{1, 2, 3, 4, 5}), Error);
  EXPECT_THROW((Shape{-1}), Error);
  EXPECT_FALSE((Shape{2, 3}) == (Shape{2, 3, 1}));
  EXPECT_EQ(size_of(DType::bfloat16), 2);
  EXPECT_EQ(size_of(DType::uint16), 2);
  EXPECT_STREQ(name_of(DType::uint16), "uint16");
  EXPECT_STREQ(name_of(DType::uint8), "uint8");
  EXPECT_EQ(accumulation_type(DType::bfloat16), DType::float32);
  EXPECT_EQ(accumulation_type(DType::float64), DType::float64);
}

}  // namespace
}  // namespace shiftron

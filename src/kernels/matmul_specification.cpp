// Reference implementation of the products of a linear layer: one plain product with three pairs of strides.
#include "kernels/bodies.h"
#include "kernels/element.h"

namespace shiftron::specification {
namespace {

// Matrix view with both strides, so that a transposed operand is only another pair of strides.
template <typename T>
struct Matrix {
  T* data;
  int64_t row_stride, column_stride;
  T& at(int64_t row, int64_t column) const { return data[row * row_stride + column * column_stride]; }
};
template <typename T>
Matrix<const T> matrix(const ConstTensor& x) {
  return {x.data<T>(), x.stride(0), 1};
}
template <typename T>
Matrix<const T> transposed(const ConstTensor& x) {
  return {x.data<T>(), 1, x.stride(0)};
}

// Columns whose sums are computed at the same time; k runs in order for each of them.
constexpr int64_t kColumns = 16;

// store(i, j, Σ_k a[i, k] b[k, j]) with k ascending, summed in A.
template <typename T, typename Store>
void product(int64_t rows, int64_t columns, int64_t inner, Matrix<const T> a, Matrix<const T> b, Store store) {
  using A = Accumulation<T>;
  for (int64_t first = 0; first < columns; first += kColumns) {
    const int64_t width = columns - first < kColumns ? columns - first : kColumns;
    for (int64_t i = 0; i < rows; ++i) {
      A sums[kColumns] = {};
      for (int64_t k = 0; k < inner; ++k) {
        const A factor = to_accumulate(a.at(i, k));
        const auto add = [&](int64_t j) { sums[j] += factor * to_accumulate(b.at(k, first + j)); };
        if (width == kColumns) {
          for (int64_t j = 0; j < kColumns; ++j) add(j);
        } else {
          for (int64_t j = 0; j < width; ++j) add(j);
        }
      }
      for (int64_t j = 0; j < width; ++j) store(i, first + j, sums[j]);
    }
  }
}

// store(d_x[i, j], Σ_k d_y[i, k] w[k, j]).
template <typename T, typename Result, typename Store>
void product_with_weight(const ConstTensor& d_y, const ConstTensor& w, const Tensor& d_x, Store store) {
  Result* out = d_x.data<Result>();
  product<T>(d_y.extent(0), w.extent(1), w.extent(0), matrix<T>(d_y), matrix<T>(w),
             [&](int64_t i, int64_t j, auto sum) { store(out[i * d_x.stride(0) + j], sum); });
}

}  // namespace

void matmul_forward(const CpuOptions&, ConstTensor x, ConstTensor w, Tensor y, Tensor) {
  for_type(x.dtype(), [&](auto element) {
    using T = decltype(element);
    for_type(y.dtype(), [&](auto result) {
      using Y = decltype(result);
      Y* out = y.data<Y>();
      product<T>(x.extent(0), w.extent(0), x.extent(1), matrix<T>(x), transposed<T>(w),
                 [&](int64_t i, int64_t j, auto sum) { out[i * y.stride(0) + j] = round_to<Y>(sum); });
    });
  });
}

void matmul_forward_add(const CpuOptions&, ConstTensor x, ConstTensor w, ConstTensor residual, Tensor y, Tensor) {
  for_type(x.dtype(), [&](auto element) {
    using T = decltype(element);
    const T* in = residual.data<T>();
    T* out = y.data<T>();
    product<T>(x.extent(0), w.extent(0), x.extent(1), matrix<T>(x), transposed<T>(w),
               [&](int64_t i, int64_t j, auto sum) {
                 out[i * y.stride(0) + j] = round_to<T>(to_accumulate(in[i * residual.stride(0) + j]) + sum);
               });
  });
}

void matmul_backward_input(const CpuOptions&, ConstTensor d_y, ConstTensor w, Tensor d_x, Tensor) {
  for_type(d_y.dtype(), [&](auto element) {
    using T = decltype(element);
    product_with_weight<T, T>(d_y, w, d_x, [](T& to, auto sum) { to = round_to<T>(sum); });
  });
}

void matmul_backward_input_sum(const CpuOptions&, ConstTensor d_y, ConstTensor w, Tensor d_x, Tensor) {
  for_type(d_y.dtype(), [&](auto element) {
    using T = decltype(element);
    using A = Accumulation<T>;
    product_with_weight<T, A>(d_y, w, d_x, [](A& to, A sum) { to += sum; });
  });
}

void matmul_backward_weight(const CpuOptions&, ConstTensor d_y, ConstTensor x, Tensor d_w, Tensor) {
  for_type(d_y.dtype(), [&](auto element) {
    using T = decltype(element);
    auto* out = d_w.data<Accumulation<T>>();
    product<T>(d_y.extent(1), x.extent(1), d_y.extent(0), transposed<T>(d_y), matrix<T>(x),
               [&](int64_t i, int64_t j, auto sum) { out[i * d_w.stride(0) + j] += sum; });
  });
}

}  // namespace shiftron::specification

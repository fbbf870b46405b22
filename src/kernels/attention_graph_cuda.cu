// The graphs, in the shapes that cuDNN recognises as attention. Tensors of rows are viewed as [samples, heads, length,
// head_dim], scores as [samples, heads, length, length]; query head i uses KV head i / (heads / kv_heads).
#include <array>

#include "kernels/attention_graph_cuda.h"

namespace shiftron::cuda {

namespace {

constexpr int64_t kAlignment = 16;  // bytes, of every tensor
using Dims = std::array<int64_t, 4>;

struct Value {
  cudnnBackendDescriptor_t descriptor = nullptr;
  Dims dims{};
};

// Strides of contiguous elements.
Dims packed(const Dims& dims) {
  return {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1};
}
// With the last two dims exchanged.
Dims turned(const Dims& of) {
  return {of[0], of[1], of[3], of[2]};
}

// Operations, in order, between values; those without a number are virtual.
class Operations {
 public:
  explicit Operations(Maker& maker) : maker_(maker) {}

  Value tensor(int64_t number, cudnnDataType_t type, const Dims& dims, const Dims& strides) {
    return describe(number, type, dims, strides, false, false);
  }
  Value scalar(int64_t number) { return describe(number, CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1}, false, true); }
  Value between(cudnnDataType_t type, const Dims& dims) {
    return describe(next_++, type, dims, packed(dims), true, false);
  }

  // y = a b.
  Value matmul(Value a, Value b, Value y) {
    const auto how = maker_.make(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    maker_.set_type(how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
    maker_.finalize(how);
    const auto operation = maker_.make(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    maker_.set_part(operation, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    maker_.set_part(operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a.descriptor);
    maker_.set_part(operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b.descriptor);
    maker_.set_part(operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC, y.descriptor);
    return add(operation, y);
  }

  // y = mode(x), mode(x, b), or x where `condition` holds and b elsewhere.
  Value pointwise(cudnnPointwiseMode_t mode, Value y, Value x, Value b = {}, Value condition = {}) {
    return pointwise(make_pointwise(mode, CUDNN_DATA_FLOAT, -1), y, x, b, condition);
  }
  // y = result of comparing x with b.
  Value compare(cudnnPointwiseMode_t mode, Value y, Value x, Value b) {
    return pointwise(make_pointwise(mode, CUDNN_DATA_BOOLEAN, -1), y, x, b, {});
  }
  // int32: the index of each of x's elements along a dim.
  Value index(Value x, int64_t dim) {
    return pointwise(make_pointwise(CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, dim),
                     between(CUDNN_DATA_INT32, x.dims), x, {}, {});
  }

  // y = the sum or the maximum of x over the dims in which y has fewer elements; each element of y covers as many
  // consecutive ones of x.
  Value reduce(cudnnReduceTensorOp_t what, Value y, Value x) {
    const auto how = maker_.make(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    maker_.set(how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, &what);
    maker_.set_type(how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    maker_.finalize(how);
    const auto operation = maker_.make(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    maker_.set_part(operation, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    maker_.set_part(operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x.descriptor);
    maker_.set_part(operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y.descriptor);
    return add(operation, y);
  }

  // x, stored with `strides`, with its last two dims exchanged.
  Value transposed(Value x, cudnnDataType_t type, const Dims& strides) {
    const Value y = describe(next_++, type, turned(x.dims), turned(strides), true, false);
    const auto operation = maker_.make(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    maker_.set_part(operation, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x.descriptor);
    maker_.set_part(operation, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y.descriptor);
    return add(operation, y);
  }

  const std::vector<cudnnBackendDescriptor_t>& all() const { return operations_; }

 private:
  Value describe(int64_t number, cudnnDataType_t type, const Dims& dims, const Dims& strides, bool is_virtual,
                 bool by_value) {
    const auto tensor = maker_.make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    maker_.set_number(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, number);
    maker_.set_type(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, type);
    maker_.set(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, dims.data(), 4);
    maker_.set(tensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, strides.data(), 4);
    maker_.set_number(tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kAlignment);
    maker_.set(tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, &is_virtual);
    maker_.set(tensor, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, &by_value);
    maker_.finalize(tensor);
    return {tensor, dims};
  }
  cudnnBackendDescriptor_t make_pointwise(cudnnPointwiseMode_t mode, cudnnDataType_t computed, int64_t dim) {
    const auto how = maker_.make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    maker_.set(how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, &mode);
    maker_.set_type(how, CUDNN_ATTR_POINTWISE_MATH_PREC, computed);
    if (dim >= 0) maker_.set_number(how, CUDNN_ATTR_POINTWISE_AXIS, dim);
    maker_.finalize(how);
    return how;
  }
  Value pointwise(cudnnBackendDescriptor_t how, Value y, Value x, Value b, Value condition) {
    const auto operation = maker_.make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    maker_.set_part(operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    maker_.set_part(operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x.descriptor);
    if (b.descriptor) maker_.set_part(operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b.descriptor);
    if (condition.descriptor) maker_.set_part(operation, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, condition.descriptor);
    maker_.set_part(operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y.descriptor);
    return add(operation, y);
  }
  Value add(cudnnBackendDescriptor_t operation, Value y) {
    maker_.finalize(operation);
    operations_.push_back(operation);
    return y;
  }

  Maker& maker_;
  std::vector<cudnnBackendDescriptor_t> operations_;
  int64_t next_ = 100;  // numbers of virtual tensors, above AttentionTensor
};

// What both passes start with, and their shapes.
class AttentionGraph {
 public:
  AttentionGraph(Maker& maker, const AttentionProblem& problem)
      : problem_(problem),
        operations_(maker),
        query_dims_{problem.samples, problem.heads, problem.length, problem.head_dim},
        key_dims_{problem.samples, problem.kv_heads, problem.length, problem.head_dim},
        score_dims_{problem.samples, problem.heads, problem.length, problem.length},
        row_dims_{problem.samples, problem.heads, problem.length, 1} {
    q_ = rows(kQuery, query_dims_, problem.q);
    statistics_ =
        operations_.tensor(kStatistics, CUDNN_DATA_FLOAT, row_dims_, {problem.length, problem.statistics, 1, 1});
    scale_ = operations_.scalar(kScale);
  }

  // out = softmax(masked scores) v, statistics = log Σ exp(masked scores).
  const std::vector<cudnnBackendDescriptor_t>& forward() {
    const Value k = operations_.tensor(kKey, CUDNN_DATA_BFLOAT16, turned(key_dims_), turned(strides(problem_.k)));
    const Value v = rows(kValue, key_dims_, problem_.v);
    const Value score = masked(scaled_score(k));
    const Value maximum = operations_.reduce(CUDNN_REDUCE_TENSOR_MAX, in_float(row_dims_), score);
    const Value shifted = operations_.pointwise(CUDNN_POINTWISE_SUB, in_float(score_dims_), score, maximum);
    const Value weight = operations_.pointwise(CUDNN_POINTWISE_EXP, in_float(score_dims_), shifted);
    const Value total = operations_.reduce(CUDNN_REDUCE_TENSOR_ADD, in_float(row_dims_), weight);
    const Value log_total = operations_.pointwise(CUDNN_POINTWISE_LOG, in_float(row_dims_), total);
    operations_.pointwise(CUDNN_POINTWISE_ADD, statistics_, maximum, log_total);
    const Value p = operations_.pointwise(CUDNN_POINTWISE_DIV, operations_.between(CUDNN_DATA_BFLOAT16, score_dims_),
                                          weight, total);
    operations_.matmul(p, v, rows(kOut, query_dims_, problem_.out));
    return operations_.all();
  }

  // With p = exp(masked scores − statistics), delta = Σ d_out out and e = p (d_out v − delta) / √head_dim: d_q = e k,
  // d_k = eᵀ q, d_v = pᵀ d_out, the last two summed over the query heads of a KV head.
  const std::vector<cudnnBackendDescriptor_t>& backward() {
    const Value d_out = rows(kOutGradient, query_dims_, problem_.d_out);
    const Value delta = out_products(d_out);
    const Value k = operations_.tensor(kKey, CUDNN_DATA_BFLOAT16, turned(key_dims_), turned(strides(problem_.k)));
    const Value exponent =
        masked(operations_.pointwise(CUDNN_POINTWISE_SUB, in_float(score_dims_), scaled_score(k), statistics_));
    const Value p = operations_.pointwise(CUDNN_POINTWISE_EXP, in_float(score_dims_), exponent);
    group_sum(kValueGradient, problem_.d_v, turned_scores(p), d_out);
    const Value v = operations_.tensor(kValue, CUDNN_DATA_BFLOAT16, turned(key_dims_), turned(strides(problem_.v)));
    const Value d_p = operations_.matmul(d_out, v, in_float(score_dims_));
    const Value from_mean = operations_.pointwise(CUDNN_POINTWISE_SUB, in_float(score_dims_), d_p, delta);
    const Value weighted = operations_.pointwise(CUDNN_POINTWISE_MUL, in_float(score_dims_), from_mean, p);
    const Value e = operations_.pointwise(CUDNN_POINTWISE_MUL, operations_.between(CUDNN_DATA_BFLOAT16, score_dims_),
                                          weighted, scale_);
    group_sum(kKeyGradient, problem_.d_k, turned_scores(e), q_);
    const Value keys = operations_.transposed(k, CUDNN_DATA_BFLOAT16, turned(strides(problem_.k)));
    if (problem_.deterministic) {
      operations_.matmul(e, keys, rows(kQueryGradient, query_dims_, problem_.d_q));
      return operations_.all();
    }
    // Blocks of keys add to these sums at the same time, in any order.
    const Value sum = operations_.tensor(kQuerySum, CUDNN_DATA_FLOAT, query_dims_, packed(query_dims_));
    operations_.matmul(e, keys, sum);
    operations_.pointwise(CUDNN_POINTWISE_IDENTITY, rows(kQueryGradient, query_dims_, problem_.d_q), sum);
    return operations_.all();
  }

 private:
  Dims strides(const HeadStrides& of) const { return {problem_.length * of.row, of.head, of.row, 1}; }
  Value rows(AttentionTensor number, const Dims& dims, const HeadStrides& of) {
    return operations_.tensor(number, CUDNN_DATA_BFLOAT16, dims, strides(of));
  }
  Value in_float(const Dims& dims) { return operations_.between(CUDNN_DATA_FLOAT, dims); }
  Value in_boolean(const Dims& dims) { return operations_.between(CUDNN_DATA_BOOLEAN, dims); }

  // q k / √head_dim.   k [samples, kv_heads, head_dim, length]
  Value scaled_score(Value k) {
    const Value product = operations_.matmul(q_, k, in_float(score_dims_));
    return operations_.pointwise(CUDNN_POINTWISE_MUL, in_float(score_dims_), product, scale_);
  }
  // x where key row ≤ query row, and with documents start ≤ key row; −∞ elsewhere.
  Value masked(Value x) {
    const Value infinity = operations_.scalar(kMinusInfinity);
    const Value past = operations_.compare(CUDNN_POINTWISE_CMP_GE, in_boolean(score_dims_), operations_.index(x, 2),
                                           operations_.index(x, 3));
    const Value causal = operations_.pointwise(CUDNN_POINTWISE_BINARY_SELECT, in_float(score_dims_), x, infinity, past);
    if (!problem_.documents) return causal;
    const Value start = operations_.tensor(kStart, CUDNN_DATA_INT32, {problem_.samples, 1, problem_.length, 1},
                                           {problem_.length, problem_.length, 1, 1});
    const Value own =
        operations_.compare(CUDNN_POINTWISE_CMP_GE, in_boolean(score_dims_), operations_.index(causal, 3), start);
    return operations_.pointwise(CUDNN_POINTWISE_BINARY_SELECT, in_float(score_dims_), causal, infinity, own);
  }

  // delta = Σ d_out out, for each row and head.
  Value out_products(Value d_out) {
    const Value out = rows(kOut, query_dims_, problem_.out);
    const Value products = operations_.pointwise(CUDNN_POINTWISE_MUL, in_float(query_dims_), d_out, out);
    const Value sum = operations_.reduce(CUDNN_REDUCE_TENSOR_ADD, in_float(row_dims_), products);
    const Value delta = operations_.tensor(kDelta, CUDNN_DATA_FLOAT, row_dims_, packed(row_dims_));
    return operations_.pointwise(CUDNN_POINTWISE_MUL, delta, sum, operations_.scalar(kOne));
  }
  Value turned_scores(Value scores) { return operations_.transposed(scores, CUDNN_DATA_BFLOAT16, packed(score_dims_)); }
  // Computes the tensor `number`: weights x, summed over the query heads of a KV head.
  void group_sum(AttentionTensor number, const HeadStrides& of, Value weights, Value x) {
    const Value result = rows(number, key_dims_, of);
    if (problem_.heads == problem_.kv_heads) {
      operations_.matmul(weights, x, result);
    } else {
      const Value of_heads = operations_.between(CUDNN_DATA_BFLOAT16, query_dims_);
      operations_.reduce(CUDNN_REDUCE_TENSOR_ADD, result, operations_.matmul(weights, x, of_heads));
    }
  }

  const AttentionProblem& problem_;
  Operations operations_;
  Dims query_dims_, key_dims_, score_dims_, row_dims_;
  Value q_, statistics_, scale_;
};

}  // namespace

cudnnBackendDescriptor_t attention_graph(Maker& maker, const AttentionProblem& problem, cudnnHandle_t handle) {
  AttentionGraph attention(maker, problem);
  const auto& operations = problem.pass == AttentionPass::forward ? attention.forward() : attention.backward();
  const auto graph = maker.make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  maker.set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, operations.data(),
            static_cast<int64_t>(operations.size()));
  if (handle) maker.set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, &handle);
  maker.finalize(graph);
  return graph;
}

}  // namespace shiftron::cuda

// Front ends of the embedding lookup. The ledger counts one table row for each token, not the table.
#include <algorithm>

#include "kernels/arguments.h"
#include "kernels/bodies.h"
#include "kernels/launch.h"

namespace shiftron {
namespace {

template <typename View>
View touched_rows(const View& table, int64_t rows) {
  return table.rows(0, std::min(rows, table.extent(0)));
}

}  // namespace

void embedding_forward(Stream& stream, ConstTensor ids, ConstTensor table, int64_t vocab_begin, Tensor y) {
  constexpr const char* kName = "embedding_forward";
  check_dims(kName, "ids", ids, 1);
  check_dims(kName, "table", table, 2);
  check_floating(kName, "table", table);
  const int64_t rows = ids.extent(0);
  check_argument(stream, kName, "ids", ids, DType::int32, {rows});
  check_argument(stream, kName, "table", table, table.dtype(), table.shape());
  check_argument(stream, kName, "y", y, table.dtype(), {rows, table.extent(1)});
  launch(stream, kName, {ids, touched_rows(table, rows)}, {y}, 0, table.dtype(),
         BodyTable{specification::embedding_forward, fast::embedding_forward, SHIFTRON_CUDA_BODY(embedding_forward)},
         ids, table, vocab_begin, y);
}

void embedding_backward(Stream& stream, ConstTensor ids, ConstTensor d_y, int64_t vocab_begin, InOut d_table) {
  constexpr const char* kName = "embedding_backward";
  const Tensor table = d_table.tensor;
  check_dims(kName, "ids", ids, 1);
  check_dims(kName, "d_table", table, 2);
  check_floating(kName, "d_y", d_y);
  const int64_t rows = ids.extent(0);
  check_argument(stream, kName, "ids", ids, DType::int32, {rows});
  check_argument(stream, kName, "d_y", d_y, d_y.dtype(), {rows, table.extent(1)});
  check_argument(stream, kName, "d_table", table, accumulation_type(d_y.dtype()), table.shape());
  const Tensor touched = touched_rows(table, rows);
  launch(stream, kName, {ids, d_y, touched}, {touched}, d_y.count(), d_y.dtype(),
         BodyTable{specification::embedding_backward, fast::embedding_backward, SHIFTRON_CUDA_BODY(embedding_backward)},
         ids, d_y, vocab_begin, table);
}

}  // namespace shiftron

// Front ends of masters in two halves.
#include "kernels/arguments.h"
#include "kernels/bodies.h"
#include "kernels/launch.h"

namespace shiftron {
namespace {

void check_halves(const Stream& stream, const char* kernel, const ConstTensor& master, const ConstTensor& weight,
                  const ConstTensor& rest) {
  const auto check = [&](const char* name, const ConstTensor& tensor, DType type) {
    check_argument(stream, kernel, name, tensor, type, master.shape());
    check_contiguous(kernel, name, tensor);
  };
  check("master", master, DType::float32);
  check("weight", weight, DType::bfloat16);
  check("rest", rest, DType::uint16);
}

}  // namespace

void split_master(Stream& stream, ConstTensor master, Tensor weight, Tensor rest) {
  constexpr const char* kName = "split_master";
  check_halves(stream, kName, master, weight, rest);
  launch(stream, kName, {master}, {weight, rest}, 0, DType::float32,
         BodyTable{specification::split_master, fast::split_master, SHIFTRON_CUDA_BODY(split_master)}, master, weight,
         rest);
}

void join_master(Stream& stream, ConstTensor weight, ConstTensor rest, Tensor master) {
  constexpr const char* kName = "join_master";
  check_halves(stream, kName, master, weight, rest);
  launch(stream, kName, {weight, rest}, {master}, 0, DType::float32,
         BodyTable{specification::join_master, fast::join_master, SHIFTRON_CUDA_BODY(join_master)}, weight, rest,
         master);
}

}  // namespace shiftron

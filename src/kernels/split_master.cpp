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
  const Launch launch(stream, kName, {master}, {weight, rest}, 0);
  if (!launch.runs()) return;
  use_fast(stream, DType::float32) ? fast::split_master(stream, master, weight, rest)
                                   : specification::split_master(stream, master, weight, rest);
}

void join_master(Stream& stream, ConstTensor weight, ConstTensor rest, Tensor master) {
  constexpr const char* kName = "join_master";
  check_halves(stream, kName, master, weight, rest);
  const Launch launch(stream, kName, {weight, rest}, {master}, 0);
  if (!launch.runs()) return;
  use_fast(stream, DType::float32) ? fast::join_master(stream, weight, rest, master)
                                   : specification::join_master(stream, weight, rest, master);
}

}  // namespace shiftron

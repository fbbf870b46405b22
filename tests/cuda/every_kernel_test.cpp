// One small call of every operation on a device: contiguous, and with rows so far apart that the last one begins after
// 2³² elements, where a signed or unsigned 32-bit offset would reach other rows. Memory of that size is sparse in the
// emulator; a GPU has enough for it.
#include "core/sanitizer.h"
#include "cuda/device_testing.h"
#include "cuda/gpus.h"
#include "kernels/all_cases.h"

namespace shiftron::kernel_testing {
namespace {

// The rows of a host's tensor on a device, `stride` elements apart.
class SparseCopy {
 public:
  SparseCopy(const Owned& host, int64_t stride, const CudaDevice& device) : host_(host.tensor()), device_(device) {
    const int64_t rows = host_.extent(0), width = host_.count() / rows, size = size_of(host_.dtype());
    row_bytes_ = static_cast<size_t>(width * size);
    pitch_ = static_cast<size_t>(stride * size);
    expect_done(cudaMalloc(&data_, static_cast<size_t>(rows - 1) * pitch_ + row_bytes_));
    expect_done(cudaMallocHost(&pinned_, static_cast<size_t>(rows) * row_bytes_));
    std::memcpy(pinned_, host_.raw(), static_cast<size_t>(rows) * row_bytes_);
    copy_rows(cudaMemcpyHostToDevice);
    tensor_ = Tensor(data_, host_.dtype(), {rows, stride}, DeviceKind::cuda).slice(1, 0, width);
    if (host_.dims() == 3) tensor_ = tensor_.split_last(host_.extent(1), host_.extent(2));
  }
  ~SparseCopy() {
    cudaStreamSynchronize(device_.handle());
    cudaFree(data_);
    cudaFreeHost(pinned_);
  }
  SparseCopy(const SparseCopy&) = delete;

  const Tensor& tensor() const { return tensor_; }
  void fetch() const {
    copy_rows(cudaMemcpyDeviceToHost);
    device_.wait();
    std::memcpy(host_.raw(), pinned_, static_cast<size_t>(host_.extent(0)) * row_bytes_);
  }

 private:
  void copy_rows(cudaMemcpyKind kind) const {
    for (size_t row = 0; row < static_cast<size_t>(host_.extent(0)); ++row) {
      void *there = static_cast<char*>(data_) + row * pitch_, *here = static_cast<char*>(pinned_) + row * row_bytes_;
      const bool up = kind == cudaMemcpyHostToDevice;
      expect_done(cudaMemcpyAsync(up ? there : here, up ? here : there, row_bytes_, kind, device_.handle()));
    }
  }

  Tensor host_, tensor_;
  const CudaDevice& device_;
  size_t row_bytes_ = 0, pitch_ = 0;
  void* data_ = nullptr;
  void* pinned_ = nullptr;
};

bool may_be_sparse(const Argument& argument) {
  return argument.strided && argument.shape.dims() > 1 && argument.shape[0] > 1;
}

// The last row begins after 2³² elements; with `odd` no kernel reads in packs.
int64_t sparse_stride(int64_t rows, bool odd) {
  constexpr int64_t kPack = 64;
  return ((int64_t{1} << 32) / (rows - 1) / kPack + 2) * kPack + (odd ? 1 : 0);
}

// As evaluate_on(), with argument `sparse` spread.
Outcome evaluate_sparse(const KernelCase& call, DType dtype, size_t sparse, bool odd) {
  CudaDevice device;
  std::vector<Owned> owned;
  owned.reserve(call.arguments.size());
  std::vector<std::unique_ptr<DeviceCopy>> copies(call.arguments.size());
  std::unique_ptr<SparseCopy> spread;
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    const Argument& argument = call.arguments[i];
    owned.emplace_back(type_of(argument.kind, dtype), argument.shape);
    if (!argument.values.empty()) owned.back().set(argument.values);
    if (i == sparse) {
      spread = std::make_unique<SparseCopy>(owned.back(), sparse_stride(argument.shape[0], odd), device);
      tensors.push_back(spread->tensor());
    } else {
      copies[i] = std::make_unique<DeviceCopy>(owned.back(), device);
      tensors.push_back(copies[i]->tensor());
    }
  }
  call.run(device.stream, tensors);
  Outcome outcome;
  for (size_t i = 0; i < owned.size(); ++i) {
    if (i == sparse) {
      spread->fetch();
    } else {
      copies[i]->fetch();
    }
    outcome.values.push_back(owned[i].values());
  }
  return outcome;
}

// Rows of more than a warp's packs.
std::vector<KernelCase> small_calls() {
  constexpr int64_t kWidth = 272;
  std::vector<KernelCase> calls;
  add_matmul_cases(calls, 5, 16, 24);
  add_elementwise_cases(calls, 3, kWidth);
  add_embedding_cases(calls, 5, 3, kWidth);
  add_rms_norm_cases(calls, 3, kWidth);
  add_swiglu_cases(calls, 3, kWidth);
  add_shift_rope_cases(calls, {"of_every_kernel", {5}, 2, 16, 3});
  add_shift_rope_cases(calls, {"of_every_kernel_carried", {3}, 2, 16, 3, true, true});
  add_shift_streams_cases(calls, {"of_every_kernel_layer", {5}, 16, {{3, 0}, {2, 2}, {2, 2, false}}});
  std::vector<KernelCase> attention;
  add_attention_cases(attention, {"of_every_kernel", {5, 3}, 8, 4, 2, 8});
  calls.insert(calls.end(), attention.begin(), attention.end());
  add_cross_entropy_cases(calls, 3, kWidth, 0);
  add_combine_case(calls, 3, 5);
  for (const bool halves : {false, true}) add_adamw_case(calls, kWidth, halves, false);
  const std::vector<int64_t> list = {kWidth, 0, 7, kWidth, 16};
  add_adamw_list_case(calls, list);
  add_squares_list_case(calls, list, 4);
  add_split_master_cases(calls, kWidth);
  add_small_cases(calls);
  return calls;
}

class EveryKernel : public ::testing::TestWithParam<KernelCase> {};

TEST_P(EveryKernel, MatchesSpecification) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    CudaDevice device;
    expect_outcome_matches_specification(GetParam(), dtype, 0, evaluate_on(device, GetParam(), dtype, 0));
  }
}

TEST_P(EveryKernel, TakesRowsFarApart) {
  if (sanitizer::kThreads) GTEST_SKIP() << "ThreadSanitizer would keep a shadow of all of them";
  NEED_GPU_MEMORY(size_t{20} << 30);
  const KernelCase& call = GetParam();
#ifdef SHIFTRON_REAL_GPUS  // cuBLASLt 13.1 reads elsewhere where rows lie 2³⁰ elements apart (seen on an H200)
  if (call.name.starts_with("matmul")) GTEST_SKIP() << "rows of 2 GiB";
#endif
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    if (!may_be_sparse(call.arguments[i])) continue;
    for (const bool odd : {false, true}) {
      // The emulated cuDNN computes values from whole operands.
      if (!odd && call.name.starts_with("attention")) continue;
      SCOPED_TRACE(call.arguments[i].name + (odd ? ", not in packs" : ""));
      const Outcome outcome = evaluate_sparse(call, DType::bfloat16, i, odd);
      expect_outcome_matches_specification(call, DType::bfloat16, 0, outcome);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryKernel, ::testing::ValuesIn(small_calls()),
                         [](const auto& parameter) { return parameter.param.name; });

}  // namespace
}  // namespace shiftron::kernel_testing

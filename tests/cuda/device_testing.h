// What tests on a device share: a stream with its products, tensors' bytes there and back, kernel calls run there.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/queue_cuda.h"
#include "kernels/attention_plans_cuda.h"
#include "kernels/kernel_testing.h"
#include "kernels/products_cuda.h"

namespace shiftron::kernel_testing {

inline void expect_done(cudaError_t status) {
  if (status != cudaSuccess) throw_crash("CUDA: ", cudaGetErrorString(status));
}

struct FreeOnDevice {
  void operator()(void* memory) const { cudaFree(memory); }
  void operator()(CUstream_st* stream) const { cudaStreamDestroy(stream); }
};
template <typename T>
using DeviceOwner = std::unique_ptr<T, FreeOnDevice>;

// The case of that name; it must be among them.
inline KernelCase case_of(const std::vector<KernelCase>& cases, const std::string& name) {
  for (const KernelCase& call : cases) {
    if (call.name == name) return call;
  }
  throw_crash("no case ", name);
}

// How the library adds the parts of a sum (cublasLtReductionScheme_t).
inline uint32_t reduction_of(const ProductChoice& choice) {
  cublasLtMatmulAlgo_t algorithm{};
  std::copy(choice.algorithm.begin(), choice.algorithm.end(), algorithm.data);
  uint32_t scheme = 0;
  size_t written = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME,
                                                                     &scheme, sizeof(scheme), &written);
  if (status != CUBLAS_STATUS_SUCCESS) throw_crash("cublasLtMatmulAlgoConfigGetAttribute: ", status);
  return scheme;
}

// A stream of its own, with attention's plans, whose products have a workspace of its own or that one which is given.
class CudaDevice {
 public:
  static constexpr int64_t kWorkspace = 1 << 20;  // bytes

  explicit CudaDevice(void* workspace = nullptr) {
    if (workspace == nullptr) {
      expect_done(cudaMalloc(&workspace, kWorkspace));
      workspace_.reset(workspace);
    }
    expect_done(cudaStreamCreateWithPriority(&context_.stream, cudaStreamNonBlocking, 0));
    context_.most_shared = block_memory();
    stream_.reset(context_.stream);
    const Tensor room(workspace, DType::uint8, {kWorkspace}, DeviceKind::cuda);
    products_ = std::make_unique<CudaProducts>(room, "a device");
    context_.products = products_.get();
    context_.attention = &attention_;
    stream.device = DeviceKind::cuda;
    stream.ledger = &ledger_;
    stream.cuda = &context_;
  }
  ~CudaDevice() { cudaStreamSynchronize(context_.stream); }
  CudaDevice(const CudaDevice&) = delete;

  CudaProducts& products() { return *products_; }
  CudaAttention& attention() { return attention_; }
  CudaContext& context() { return context_; }
  void* workspace() const { return workspace_.get(); }
  cudaStream_t handle() const { return context_.stream; }
  void wait() const { expect_done(cudaStreamSynchronize(context_.stream)); }

  Stream stream;

 private:
  Ledger ledger_;
  CudaContext context_;
  DeviceOwner<void> workspace_;
  DeviceOwner<CUstream_st> stream_;
  std::unique_ptr<CudaProducts> products_;
  CudaAttention attention_{"a device"};
};

// The bytes of a host's tensor on a device, those between its rows too.
class DeviceCopy {
 public:
  DeviceCopy(const Owned& host, const CudaDevice& device) : host_(host.tensor()), device_(device) {
    const int64_t row = host_.dims() > 1 ? host_.stride(0) : 1;
    const int64_t rows = host_.dims() > 0 ? host_.extent(0) : 1;
    bytes_ = static_cast<size_t>(rows * row * size_of(host_.dtype()));
    if (bytes_ > 0) {
      expect_done(cudaMalloc(&data_, bytes_));
      expect_done(cudaMallocHost(&pinned_, bytes_));
      std::memcpy(pinned_, host_.raw(), bytes_);
      expect_done(cudaMemcpyAsync(data_, pinned_, bytes_, cudaMemcpyHostToDevice, device.handle()));
    }
    if (host_.contiguous()) {
      tensor_ = Tensor(data_, host_.dtype(), host_.shape(), DeviceKind::cuda);
      return;
    }
    int64_t width = 1;
    for (int dim = 1; dim < host_.dims(); ++dim) width *= host_.extent(dim);
    tensor_ = Tensor(data_, host_.dtype(), {rows, row}, DeviceKind::cuda).slice(1, 0, width);
    if (host_.dims() == 3) tensor_ = tensor_.split_last(host_.extent(1), host_.extent(2));
  }
  ~DeviceCopy() {
    cudaStreamSynchronize(device_.handle());
    cudaFree(data_);
    cudaFreeHost(pinned_);
  }
  DeviceCopy(const DeviceCopy&) = delete;

  const Tensor& tensor() const { return tensor_; }
  // The host's tensor has what stands on the device when this returns.
  void fetch() const {
    if (bytes_ == 0) return;
    expect_done(cudaMemcpyAsync(pinned_, data_, bytes_, cudaMemcpyDeviceToHost, device_.handle()));
    device_.wait();
    std::memcpy(host_.raw(), pinned_, bytes_);
  }

 private:
  Tensor host_, tensor_;
  const CudaDevice& device_;
  size_t bytes_ = 0;
  void* data_ = nullptr;
  void* pinned_ = nullptr;
};

// As evaluate_in(), with memory to the byte, so that an overrun meets a page that nobody has.
inline Outcome evaluate_on(CudaDevice& device, const KernelCase& call, DType dtype, int64_t padding) {
  std::vector<Owned> owned;
  owned.reserve(call.arguments.size());
  for (const Argument& argument : call.arguments) {
    owned.emplace_back(type_of(argument.kind, dtype), argument.shape, DeviceKind::cpu, argument.strided ? padding : 0);
    if (!argument.values.empty()) owned.back().set(argument.values);
  }
  std::vector<std::unique_ptr<DeviceCopy>> copies;
  std::vector<Tensor> tensors;
  for (const Owned& host : owned) {
    copies.push_back(std::make_unique<DeviceCopy>(host, device));
    tensors.push_back(copies.back()->tensor());
  }
  call.run(device.stream, tensors);
  Outcome outcome;
  for (size_t i = 0; i < owned.size(); ++i) {
    copies[i]->fetch();
    EXPECT_TRUE(owned[i].padding_intact()) << call.name << " wrote between the rows of " << call.arguments[i].name;
    outcome.values.push_back(owned[i].values());
  }
  return outcome;
}

// Rows without padding, with one that lets nobody read in packs, and with one that does.
inline void expect_device_matches_specification(const KernelCase& call, DType dtype) {
  for (const int64_t padding : {0, 3, 16}) {
    CudaDevice device;
    expect_outcome_matches_specification(call, dtype, padding, evaluate_on(device, call, dtype, padding));
  }
}

// The same call gives the same bits.
inline void expect_device_repeats(const KernelCase& call) {
  CudaDevice device;
  const Outcome first = evaluate_on(device, call, DType::bfloat16, 0);
  expect_same_results(call, evaluate_on(device, call, DType::bfloat16, 0), first);
}

}  // namespace shiftron::kernel_testing

// Allocation of buffers and the bump pointer of arenas.
#include "core/memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <utility>

namespace shiftron {
namespace {

int64_t round_up(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

#ifndef NDEBUG
// NaN in float32, bfloat16 and float64 alike.
void fill_with_nan(const Tensor& bytes) { std::memset(bytes.raw(), 0xFF, static_cast<size_t>(bytes.bytes())); }
#endif

constexpr int64_t kHugePage = int64_t{2} << 20;

[[noreturn]] void refuse(int64_t bytes, const std::string& category, const Ledger& ledger) {
  const bool of_batch = category == "activations" || category == "scratch";
  throw_bad_input("not enough memory: ", bytes, " bytes are needed for ", category, " beside ", ledger.memory_total(),
                  " bytes of this rank; ",
                  of_batch ? "lower train.micro_batch or train.sequence_length, or set parallel.recompute=full"
                           : "raise parallel.tp or parallel.pp, or take a smaller model.*",
                  " (shiftron train --dry-run counts all of it)");
}

}  // namespace

Buffer::Buffer(DeviceKind device, int64_t bytes, Ledger& ledger, std::string category)
    : bytes_(round_up(bytes)), device_(device), ledger_(&ledger), category_(std::move(category)) {
  CHECK(device != DeviceKind::cuda, "this build has no CUDA");
  if (device == DeviceKind::cpu && bytes_ > 0) {
    const bool huge = bytes_ >= kHugePage;
    const int64_t alignment = huge ? kHugePage : kAlignment;
    data_ = std::aligned_alloc(static_cast<size_t>(alignment),
                               static_cast<size_t>((bytes_ + alignment - 1) / alignment * alignment));
    if (data_ == nullptr) refuse(bytes_, category_, ledger);
    if (huge) madvise(data_, static_cast<size_t>(bytes_), MADV_HUGEPAGE);
    std::memset(data_, 0, static_cast<size_t>(bytes_));
  }
  ledger_->add_memory(category_, bytes_);
}

void Buffer::free() {
  if (ledger_ != nullptr) ledger_->add_memory(category_, -bytes_);
  std::free(data_);
  data_ = nullptr;
  ledger_ = nullptr;
  bytes_ = 0;
}

Buffer::~Buffer() { free(); }

Buffer::Buffer(Buffer&& other) noexcept { *this = std::move(other); }

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    free();
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    device_ = other.device_;
    ledger_ = std::exchange(other.ledger_, nullptr);
    category_ = std::move(other.category_);
  }
  return *this;
}

Tensor Buffer::tensor(int64_t byte_offset, DType dtype, Shape shape) const {
  CHECK(byte_offset >= 0 && byte_offset + shape.count() * size_of(dtype) <= bytes_, "tensor ", shape.text(), " at ",
        byte_offset, " is outside of ", bytes_, " bytes of ", category_);
  void* start = data_ == nullptr ? nullptr : static_cast<char*>(data_) + byte_offset;
  return Tensor(start, dtype, shape, device_);
}

Arena::Arena(DeviceKind device, const std::string& name, const MemoryPlan& plan, Ledger& ledger, std::string category,
             int64_t alike)
    : device_(device),
      name_(name),
      alike_(alike),
      ledger_(&ledger),
      category_(std::move(category)),
      generation_(std::make_unique<Generation>()) {
  if (device != DeviceKind::meta) {
    const auto entry = plan.find(name);
    CHECK(entry != plan.end(), "the plan has no arena ", name);
    capacity_ = entry->second;
    buffer_ = Buffer(device, capacity_, ledger, category_);
  }
}

Tensor Arena::allocate(DType dtype, Shape shape) {
  const int64_t bytes = round_up(shape.count() * size_of(dtype));
  CHECK(device_ == DeviceKind::meta || used_ + bytes <= capacity_, "arena ", name_, " was planned with ", capacity_,
        " bytes; ", used_, " are in use, ", bytes, " more are asked for ", shape.text());
  Tensor tensor = device_ == DeviceKind::meta ? Tensor(nullptr, dtype, shape, device_)
                                              : buffer_.tensor(used_, dtype, shape);
  used_ += bytes;
  if (used_ > peak_) {
    if (device_ == DeviceKind::meta) ledger_->add_memory(category_, alike_ * (used_ - peak_));
    peak_ = used_;
  }
  tensor.bind(generation_.get());
  return tensor;
}

void Arena::rewind(int64_t used) {
#ifndef NDEBUG
  if (device_ == DeviceKind::cpu && used_ > used) {
    fill_with_nan(buffer_.tensor(used, DType::uint8, {used_ - used}));
  }
#endif
  used_ = used;
}

void Arena::release() {
  rewind(0);
  generation_->count += 1;
}

}  // namespace shiftron

// Allocation of buffers and the bump pointer of arenas.
#include "core/memory.h"

#include <sys/mman.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#define SHIFTRON_ADDRESS_SANITIZER
#endif

#include <cstdlib>
#include <cstring>
#include <exception>
#include <utility>

#include "core/event.h"
#include "core/has_cuda.h"
#include "core/memory_cuda.h"

namespace shiftron {
namespace {

int64_t round_up(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Gap between tensors of an arena, which nothing may write to.
#ifdef SHIFTRON_ADDRESS_SANITIZER
constexpr int64_t kRedZone = kAlignment;
#else
constexpr int64_t kRedZone = 0;
#endif
constexpr int64_t kHugePage = int64_t{2} << 20;

// What is known about the room that was too small.
std::string room_of(DeviceKind device) {
  if (device == DeviceKind::pinned) return "it must be pinned host memory; ";
  if constexpr (kHasCuda) {
    if (device == DeviceKind::cuda) {
      const std::string text = cuda::memory_text();
      return text.empty() ? text : text + "; ";
    }
  }
  return "";
}

[[noreturn]] void refuse(int64_t bytes, const std::string& category, const Ledger& ledger, DeviceKind device) {
  const bool of_batch =
      category == "activations" || category == "scratch" || category == "staging" || category == "batches";
  if (category == "cache") {  // for generating text, which no plan covers
    throw_bad_input(
        "not enough memory: ", bytes, " bytes are needed for the ", category,
        " of generated tokens, and this rank already uses ", ledger.memory_total(), " bytes; ", room_of(device),
        "generate fewer tokens: generate --tokens, evaluate --max-gen-toks, or evaluation.max_gen_toks of a run");
  }
  throw_bad_input("not enough memory: ", bytes, " bytes are needed for ", category, ", and this rank already uses ",
                  ledger.memory_total(), " bytes; ", room_of(device),
                  of_batch ? "lower train.micro_batch or train.sequence_length, or set parallel.recompute=full"
                           : "raise parallel.tp or parallel.pp, or choose a smaller model (model.*)",
                  " (shiftron train --dry-run prints the memory that a run needs)");
}

// Zeroed host memory; null if there is not enough.
void* allocate_on_host(int64_t bytes) {
  const bool huge = bytes >= kHugePage;
  const int64_t alignment = huge ? kHugePage : kAlignment;
  void* data = std::aligned_alloc(static_cast<size_t>(alignment),
                                  static_cast<size_t>((bytes + alignment - 1) / alignment * alignment));
  if (data == nullptr) return nullptr;
  if (huge) madvise(data, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  std::memset(data, 0, static_cast<size_t>(bytes));
  return data;
}

}  // namespace

Buffer::Buffer(DeviceKind device, int64_t bytes, Ledger& ledger, std::string category, bool of_cuda)
    : bytes_(round_up(bytes)),
      device_(device),
      of_cuda_(of_cuda || device == DeviceKind::cuda),
      ledger_(&ledger),
      category_(std::move(category)) {
  CHECK(kHasCuda || !of_cuda_, "this build has no CUDA");
  if (device != DeviceKind::meta && bytes_ > 0) {
    if constexpr (kHasCuda) {
      if (of_cuda_) data_ = cuda::allocate(device, bytes_);
    }
    if (!of_cuda_) data_ = allocate_on_host(bytes_);
    if (data_ == nullptr) refuse(bytes_, category_, ledger, device);
  }
  ledger_->add_memory(category_, bytes_);
}

void Buffer::free() {
  if (ledger_ != nullptr) ledger_->add_memory(category_, -bytes_);
  if constexpr (kHasCuda) {
    if (of_cuda_ && data_ != nullptr) cuda::release(device_, data_);
  }
  if (!of_cuda_) std::free(data_);
  data_ = nullptr;
  ledger_ = nullptr;
  bytes_ = 0;
}

Buffer::~Buffer() {
  free();
}

Buffer::Buffer(Buffer&& other) noexcept {
  *this = std::move(other);
}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    free();
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    device_ = other.device_;
    of_cuda_ = other.of_cuda_;
    ledger_ = std::exchange(other.ledger_, nullptr);
    category_ = std::move(other.category_);
  }
  return *this;
}

Tensor Buffer::tensor(int64_t byte_offset, DType dtype, Shape shape) const {
  CHECK(byte_offset >= 0 && byte_offset + shape.count() * size_of(dtype) <= bytes_, "tensor ", shape.text(), " at ",
        byte_offset, " is outside ", bytes_, " bytes of ", category_);
  void* start = data_ == nullptr ? nullptr : static_cast<char*>(data_) + byte_offset;
  return Tensor(start, dtype, shape, device_);
}

Buffer staging_buffer(Stream& stream, int64_t bytes) {
  const DeviceKind kind = stream.device == DeviceKind::meta ? DeviceKind::meta : DeviceKind::pinned;
  return Buffer(kind, bytes, *stream.ledger, "staging", stream.device == DeviceKind::cuda);
}

Arena::Arena(Stream& stream, const std::string& name, const MemoryPlan& plan, std::string category, int64_t copies)
    : stream_(&stream),
      name_(name),
      copies_(copies),
      category_(std::move(category)),
      record_(std::make_unique<ArenaRecord>()) {
  if (stream.device != DeviceKind::meta) {
    const auto entry = plan.find(name);
    CHECK(entry != plan.end(), "the plan has no arena ", name);
    capacity_ = entry->second;
    buffer_ = Buffer(stream.device, capacity_, *stream.ledger, category_);
    close(0, capacity_);
  }
}

Arena::~Arena() {
  if (buffer_.bytes() == 0) return;
  if (stream_->queue != nullptr && std::uncaught_exceptions() == 0) {
    try {
      for (const ArenaRecord::Pin& pin : record_->pins) pin.user->wait(*stream_);
      finish(*stream_);
    } catch (const Error&) {  // nothing runs after a failure, which the stream keeps
    }
  }
#ifdef SHIFTRON_ADDRESS_SANITIZER
  ASAN_UNPOISON_MEMORY_REGION(buffer_.tensor(0, DType::uint8, {capacity_}).raw(), static_cast<size_t>(capacity_));
#endif
}

Tensor Arena::allocate(DType dtype, Shape shape) {
  const bool planned = stream_->device == DeviceKind::meta;
  const int64_t bytes = round_up(shape.count() * size_of(dtype)) + kRedZone;
  CHECK(planned || used_ + bytes <= capacity_, "arena ", name_, " was planned with ", capacity_, " bytes; ", used_,
        " are in use, and ", shape.text(), " needs ", bytes, " more");
  Tensor tensor = planned ? Tensor(nullptr, dtype, shape, DeviceKind::meta) : buffer_.tensor(used_, dtype, shape);
  open(used_, tensor.bytes());
  used_ += bytes;
  peak_since_release_ = std::max(peak_since_release_, used_);
  if (used_ > peak_) {
    if (planned) stream_->ledger->add_memory(category_, copies_ * (used_ - peak_));
    peak_ = used_;
  }
  record_->stamps.push_back(++record_->made);
  tensor.bind(record_.get());
  return tensor;
}

void Arena::rewind(size_t tensors, int64_t used) {
  std::erase_if(record_->pins, [&](const ArenaRecord::Pin& pin) {
    if (pin.place < tensors) return false;
    if (std::uncaught_exceptions() == 0) pin.user->wait(*stream_);  // otherwise peers may be gone
    return true;
  });
  close(used, used_ - used);
  record_->stamps.resize(tensors);
  used_ = used;
}

int64_t Arena::release() {
  rewind(0, 0);
  return std::exchange(peak_since_release_, 0);
}

// In the stream's order, like everything that touches the memory.
void Arena::open([[maybe_unused]] int64_t begin, [[maybe_unused]] int64_t bytes) {
#ifdef SHIFTRON_ADDRESS_SANITIZER
  if (stream_->device != DeviceKind::cpu || bytes == 0) return;
  char* const first = static_cast<char*>(buffer_.tensor(begin, DType::uint8, {bytes}).raw());
  do_in(*stream_, [first, bytes] { ASAN_UNPOISON_MEMORY_REGION(first, static_cast<size_t>(bytes)); });
#endif
}

void Arena::close([[maybe_unused]] int64_t begin, [[maybe_unused]] int64_t bytes) {
#ifndef NDEBUG
  if (stream_->device == DeviceKind::meta || bytes == 0) return;
  char* const first = static_cast<char*>(buffer_.tensor(begin, DType::uint8, {bytes}).raw());
  if (stream_->device == DeviceKind::cuda) {
    if constexpr (kHasCuda) {
      if (std::uncaught_exceptions() == 0)
        cuda::fill_undefined(*stream_->cuda, first, bytes);  // else the GPU may be lost
    }
    return;
  }
  do_in(*stream_, [first, bytes] {
#ifdef SHIFTRON_ADDRESS_SANITIZER
    ASAN_POISON_MEMORY_REGION(first, static_cast<size_t>(bytes));
#else
    std::memset(first, 0xFF, static_cast<size_t>(bytes));  // NaN in float32, bfloat16 and float64
#endif
  });
#endif
}

}  // namespace shiftron

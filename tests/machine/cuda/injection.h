// Calls of CUDA and its libraries that fail on request, and resources that are not freed. SHIFTRON_MACHINE_FAIL names
// one call of a process, [RANK/][KIND:]NUMBER: the number-th of a kind, or of all, on that rank or on every one. With
// SHIFTRON_MACHINE_REPORT=FILE a process writes at its end to FILE.RANK, as JSON, which call failed, how many calls of
// each kind there were, and what is not freed.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

namespace shiftron::machine {

enum class CallKind {
  allocation,  // of memory
  launch,      // of a kernel: refused at the call
  kernel,      // what is given to a stream: fails when it runs, and the device is lost
  copy,        // copies, and bytes that are set
  event,
  stream,
  device,      // what is asked of it
  product,     // cuBLASLt
  attention,   // cuDNN
  collective,  // NCCL
};
inline constexpr int kCallKinds = 10;
const char* name_of(CallKind kind);

// One host's calls that can fail, counted; one of them does, from 1. Those that give back are not among them.
class Injection {
 public:
  Injection() = default;  // none fails
  explicit Injection(CallKind kind, int64_t number) : kind_(kind), number_(number) {}
  explicit Injection(int64_t number) : number_(number) {}  // of all kinds

  bool strikes(CallKind kind, const char* call);  // counts
  const char* struck() const { return struck_; }  // null: no call yet
  int64_t counted(CallKind kind) const { return counts_[static_cast<size_t>(kind)]; }
  void lose_device() { lost_ = true; }
  bool device_lost() const { return lost_; }

 private:
  std::optional<CallKind> kind_;
  int64_t number_ = 0;
  std::array<std::atomic<int64_t>, kCallKinds> counts_{};
  std::atomic<int64_t> all_ = 0;
  std::atomic<const char*> struck_ = nullptr;
  std::atomic<bool> lost_ = false;
};

// "RANK/KIND:NUMBER", "KIND:NUMBER" or "NUMBER", on this rank; an Error(bad_input) for anything else.
std::shared_ptr<Injection> injection_from(const std::string& text, int rank);

// Of the calling thread: what it was given, else that of the environment.
const std::shared_ptr<Injection>& injection();

// While it lives the calling thread's calls count there.
class InjectionScope {
 public:
  explicit InjectionScope(std::shared_ptr<Injection> of_thread);
  ~InjectionScope();
  InjectionScope(const InjectionScope&) = delete;
  InjectionScope& operator=(const InjectionScope&) = delete;

 private:
  std::shared_ptr<Injection> before_;
};

// What a library's call returns instead of doing anything; success (0 in all libraries) if it is to run. If the device
// is lost, only calls that concern just the host still run.
template <typename Status>
Status injected(CallKind kind, const char* call, Status error) {
  return injection()->strikes(kind, call) ? error : Status{};
}
template <typename Status>
Status injected_on_device(CallKind kind, const char* call, Status error) {
  return injection()->strikes(kind, call) || injection()->device_lost() ? error : Status{};
}

// What nobody gave back yet, in the whole process; empty where there is nothing.
std::map<std::string, int64_t> left_behind();

}  // namespace shiftron::machine

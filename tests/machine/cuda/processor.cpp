// Threads meet here: the last to arrive lets the others continue, and one that has to wait chooses who runs meanwhile.
// Not instrumented; what fibers access here is neither allocated nor freed by them.
#include "cuda/processor.h"

#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "core/check.h"
#include "core/sanitizer.h"
#include "cuda/device_shim.h"
#include "cuda/fiber.h"
#include "cuda/shared_memory.h"
#include "cuda/streams.h"

#ifdef SHIFTRON_THREAD_SANITIZER
#include <sanitizer/tsan_interface.h>
#endif

constinit thread_local uint3 threadIdx{}, blockIdx{};
constinit thread_local dim3 blockDim{}, gridDim{};

namespace shiftron::machine {
namespace {

constexpr int kWarp = 32, kWarps = 32, kMostThreads = 1024;
constexpr int64_t kMostX = (int64_t{1} << 31) - 1, kMostY = 65535;
constexpr int kSets = sanitizer::kThreads ? 2 : 1;  // of fibers: successive blocks must not share a clock

// What a thread does, or did last, together with others.
struct Deed {
  const char* name = nullptr;
  unsigned mask = 0;  // 0 of a barrier
  Place place;
  bool same_as(const Deed& other) const {
    const auto same = [](const char* a, const char* b) { return a == b || std::strcmp(a, b) == 0; };
    return mask == other.mask && place.line() == other.place.line() && place.column() == other.place.column() &&
           same(name, other.name) && same(place.file_name(), other.place.file_name());
  }
};

struct Thread {
  Thread(void (*body)(void*), int n) : fiber(body, this), number(n) {}
  Fiber fiber;
  const int number;
  Deed deed;
  uint64_t brought = 0, result = 0;
  int source = 0;  // a lane
  bool awaited = false;  // the kernels before its own
};

struct Warp {
  unsigned ready, waiting, at_barrier, ended;  // lanes; waiting for other lanes
  unsigned meetings;
};

struct Fault {
  const char* text = nullptr;
  int first = -1, second = -1;  // threads
  const SharedArray* array = nullptr;
};

// Points in time, to ThreadSanitizer. The block's are fresh in every block.
struct BlockMoments {
  uint64_t begin = 0, barrier[2] = {}, lanes[kWarps][2] = {};
};

class Processor {
 public:
  void execute(const char* name, int64_t grid_x, int64_t grid_y, int block, const std::function<void()>& thread_body,
               int64_t shared, bool allowed, bool early);

  void await_earlier_kernels() { threads_[current_]->awaited = true; }
  void meet_block(const Place& place);
  Thread& meet_lanes(const char* name, unsigned mask, uint64_t brought, int source, const Place& place);
  void meet_lanes_in_order(unsigned mask, const Place& place);
  void* shared_array(const char* name, const void* key, size_t bytes, const Place& place);
  size_t bytes() const { return bytes_; }

 private:
  static void live(void* thread);
  void run_block(int set);
  void set_order();
  void end();
  void keep_going();
  int ready_behind(int number) const;
  int ready_before(int number) const;
  int choose();
  uint64_t random();
  bool all_here(int warp, const Deed& deed);
  [[noreturn]] void explain_stop();
  [[noreturn]] void give_up(const char* text, int first, int second = -1, const SharedArray* array = nullptr);
  [[noreturn]] void report(int set);
  std::string describe(const Thread& thread) const;
  Thread& at(int warp, unsigned lanes) { return *threads_[warp * kWarp + std::countr_zero(lanes)]; }

  std::unique_ptr<Thread> sets_[kSets][kMostThreads];
  std::unique_ptr<Thread>* threads_ = nullptr;  // of the block
  Fiber* home_ = nullptr;
  const char* name_ = nullptr;
  const std::function<void()>* body_ = nullptr;
  bool early_ = false;
  int count_ = 0, warps_count_ = 0;
  int current_ = 0, arrived_ = 0, ended_ = 0;
  unsigned barriers_ = 0;
  Warp warps_[kWarps];
  WarpOrder order_ = WarpOrder::forward;
  uint64_t state_ = 0;
  BlockMoments* moments_ = nullptr;
  uint64_t* end_ = nullptr;  // of the grid
  SharedMemory shared_;
  size_t bytes_ = 0;  // of the launch, for each block
  size_t most_bytes_ = 0;
  Fault fault_;
  std::exception_ptr thrown_;
};

thread_local Processor* current = nullptr;  // that executes

ProcessorOptions options_of_environment() {
  const char* const text = std::getenv("SHIFTRON_WARPS");
  if (text == nullptr) return {};
  const std::string whole = text, order = whole.substr(0, whole.find(':'));
  ProcessorOptions options;
  const char* const names[] = {"forward", "reverse", "random", "stay", "mixed"};
  int found = 0;
  while (found < 5 && order != names[found]) ++found;
  CHECK(found < 5, "SHIFTRON_WARPS=", whole, ": forward, reverse, random, stay or mixed, then perhaps :seed");
  options.order = static_cast<WarpOrder>(found);
  if (order != whole) options.seed = std::strtoull(whole.c_str() + order.size() + 1, nullptr, 10);
  return options;
}

ProcessorOptions& options() {
  static ProcessorOptions all = options_of_environment();
  return all;
}

void Processor::execute(const char* name, int64_t grid_x, int64_t grid_y, int block,
                        const std::function<void()>& thread_body, int64_t shared, bool allowed, bool early) {
  Fiber home;
  most_bytes_ = allowed ? SharedMemory::kMostBytes : SharedMemory::kBytes;
  const auto grid_end = std::make_unique<uint64_t>();
  name_ = name;
  body_ = &thread_body;
  early_ = early;
  bytes_ = static_cast<size_t>(shared);
  count_ = block;
  warps_count_ = block / kWarp;
  home_ = &home;
  end_ = grid_end.get();
  gridDim = dim3(static_cast<unsigned>(grid_x), static_cast<unsigned>(grid_y));
  blockDim = dim3(static_cast<unsigned>(block));
  for (int64_t i = 0; i < grid_x * grid_y; ++i) {
    blockIdx = {static_cast<unsigned>(i % grid_x), static_cast<unsigned>(i / grid_x), 0};
    run_block(static_cast<int>(i % kSets));
  }
  sanitizer::acquire(end_);
}

void Processor::run_block(int set) {
  threads_ = sets_[set];
  for (int i = 0; i < count_; ++i) {
    if (threads_[i] == nullptr) threads_[i] = std::make_unique<Thread>(live, i);
    threads_[i]->deed = {};
    threads_[i]->awaited = false;
  }
  for (int i = 0; i < warps_count_; ++i) warps_[i] = {~0u, 0, 0, 0, 0};
  arrived_ = ended_ = 0;
  barriers_ = 0;
  set_order();
  shared_.renew(most_bytes_);
  const auto moments = std::make_unique<BlockMoments>();
  moments_ = moments.get();
  sanitizer::release(&moments_->begin);
  current_ = static_cast<int>(random() % static_cast<uint64_t>(count_));
  current_ = choose();
  threadIdx.x = static_cast<unsigned>(current_);
  home_->switch_to(threads_[current_]->fiber);
  if (const SharedArray* const array = shared_.overrun(); fault_.text == nullptr && array != nullptr) {
    fault_ = {"written beyond a shared array", -1, -1, array};
  }
  if (fault_.text != nullptr) report(set);
}

// The same for a block of a kernel in every run.
void Processor::set_order() {
  state_ = options().seed;
  for (const char* letter = name_; *letter != 0; ++letter) state_ = state_ * 131 + static_cast<unsigned char>(*letter);
  state_ = state_ * 131 + blockIdx.x + (uint64_t{blockIdx.y} << 32);
  for (int i = 0; i < 4; ++i) random();
  order_ = options().order;
  if (order_ == WarpOrder::mixed) order_ = static_cast<WarpOrder>(random() % 4);
}

uint64_t Processor::random() {
  state_ = state_ * 6364136223846793005u + 1442695040888963407u;
  return state_ >> 33;
}

void* Processor::shared_array(const char* name, const void* key, size_t bytes, const Place& place) {
  const SharedArray& array = shared_.array(name, key, bytes, place);
  if (array.words == nullptr) {
    give_up(array.limit == SharedMemory::kBytes ? "more than 49152 bytes of shared memory"
                                                : "more than 232448 bytes of shared memory",
            current_, -1, &array);
  }
  return array.words;
}

// ---- threads --------------------------------------------------------------------------------------------------------
void Processor::live(void* thread) {
  for (;;) {
    Processor& processor = *current;
    sanitizer::acquire(&processor.moments_->begin);
    bool failed = false;
    try {
      (*processor.body_)();
    } catch (...) {
      processor.thrown_ = std::current_exception();
      failed = true;
    }
    const auto& self = *static_cast<Thread*>(thread);
    if (failed) processor.give_up("an exception", self.number);
    if (processor.early_ && !self.awaited) {
      processor.give_up("a thread ended that did not wait for earlier kernels", self.number);
    }
    processor.end();
  }
}

void Processor::end() {
  const int warp = current_ / kWarp;
  const unsigned lane = 1u << current_ % kWarp;
  warps_[warp].ready &= ~lane;
  warps_[warp].ended |= lane;
  ++ended_;
  sanitizer::release(end_);
  keep_going();
}

// Runs the next thread, or after the last one the host; returns when the current thread continues.
void Processor::keep_going() {
  Thread& self = *threads_[current_];
  if (ended_ == count_) {
    self.fiber.switch_to(*home_);
    return;  // in a later block
  }
  const int next = choose();
  if (next < 0) explain_stop();
  if (next != current_) {
    current_ = next;
    threadIdx.x = static_cast<unsigned>(next);
    self.fiber.switch_to(threads_[next]->fiber);
  }
}

// The first that can continue after `number`, around the block; −1: none.
int Processor::ready_behind(int number) const {
  for (int step = 0; step <= warps_count_; ++step) {
    const int warp = (number / kWarp + step) % warps_count_;
    const unsigned above = step == 0 ? ~1u << number % kWarp : ~0u;
    if (const unsigned lanes = warps_[warp].ready & above; lanes != 0) return warp * kWarp + std::countr_zero(lanes);
  }
  return -1;
}

int Processor::ready_before(int number) const {
  for (int step = 0; step <= warps_count_; ++step) {
    const int warp = (number / kWarp + warps_count_ - step % warps_count_) % warps_count_;
    const unsigned below = step == 0 ? (1u << number % kWarp) - 1 : ~0u;
    if (const unsigned lanes = warps_[warp].ready & below; lanes != 0) {
      return warp * kWarp + std::bit_width(lanes) - 1;
    }
  }
  return -1;
}

int Processor::choose() {
  if (order_ == WarpOrder::forward) return ready_behind(current_);
  if (order_ == WarpOrder::reverse) return ready_before(current_);
  const bool stays = order_ == WarpOrder::stay && warps_[current_ / kWarp].ready != 0;
  const int warp = stays ? current_ / kWarp : static_cast<int>(random() % static_cast<uint64_t>(warps_count_));
  const int lane = static_cast<int>(random() % kWarp);
  const unsigned lanes = warps_[warp].ready & ~0u << lane;
  if (lanes != 0) return warp * kWarp + std::countr_zero(lanes);
  if (warps_[warp].ready != 0) return warp * kWarp + std::countr_zero(warps_[warp].ready);
  return ready_behind(warp * kWarp);
}

// ---- meetings -------------------------------------------------------------------------------------------------------
void Processor::meet_block(const Place& place) {
  Thread& self = *threads_[current_];
  self.deed = {"__syncthreads", 0, place};
  const int warp = current_ / kWarp;
  const unsigned lane = 1u << current_ % kWarp;
  for (int i = 0; arrived_ > 0 && i < warps_count_; ++i) {
    if (warps_[i].at_barrier == 0) continue;
    const Thread& other = at(i, warps_[i].at_barrier);
    if (!other.deed.same_as(self.deed)) give_up("not the same barrier", current_, other.number);
    break;  // they are all at the same
  }
  uint64_t* const moment = &moments_->barrier[barriers_ & 1];
  sanitizer::release(moment);
  warps_[warp].ready &= ~lane;
  warps_[warp].at_barrier |= lane;
  if (++arrived_ == count_) {
    for (int i = 0; i < warps_count_; ++i) {
      warps_[i].ready = warps_[i].at_barrier;
      warps_[i].at_barrier = 0;
    }
    arrived_ = 0;
    ++barriers_;
  }
  keep_going();
  sanitizer::acquire(moment);
}

// Whether all lanes that this names wait in it. One that does not may still come: lanes go their own ways until all
// wait.
bool Processor::all_here(int warp, const Deed& deed) {
  if ((warps_[warp].waiting & deed.mask) != deed.mask) return false;
  for (unsigned lanes = deed.mask; lanes != 0; lanes &= lanes - 1) {
    if (!at(warp, lanes).deed.same_as(deed)) return false;
  }
  return true;
}

// No thread can continue: reports who waits for whom.
void Processor::explain_stop() {
  for (int i = 0; i < warps_count_; ++i) {
    for (unsigned waiting = warps_[i].waiting; waiting != 0; waiting &= waiting - 1) {
      const Thread& one = at(i, waiting);
      if (const unsigned gone = one.deed.mask & warps_[i].ended; gone != 0) {
        give_up("a lane ended that another waits for", at(i, gone).number, one.number);
      }
      if (const unsigned away = one.deed.mask & warps_[i].at_barrier; away != 0) {
        give_up("a barrier in a divergent branch", at(i, away).number, one.number);
      }
      for (unsigned lanes = one.deed.mask; lanes != 0; lanes &= lanes - 1) {
        const Thread& other = at(i, lanes);
        if (other.deed.mask != one.deed.mask) give_up("lanes meet with different masks", other.number, one.number);
        if (!other.deed.same_as(one.deed)) give_up("lanes meet at different places", other.number, one.number);
      }
    }
  }
  int ended = 0, waiting = 0;
  while (warps_[ended].ended == 0) ++ended;
  while (warps_[waiting].at_barrier == 0) ++waiting;
  give_up("a thread ended that others wait for", at(ended, warps_[ended].ended).number,
          at(waiting, warps_[waiting].at_barrier).number);
}

Thread& Processor::meet_lanes(const char* name, unsigned mask, uint64_t brought, int source, const Place& place) {
  Thread& self = *threads_[current_];
  self.deed = {name, mask, place};
  self.brought = brought;
  self.source = source;
  const int number = current_ / kWarp;
  Warp& warp = warps_[number];
  const unsigned lane = 1u << current_ % kWarp;
  if ((mask & lane) == 0) give_up("a lane is not in its mask", current_);
  warp.ready &= ~lane;
  warp.waiting |= lane;
  if (all_here(number, self.deed)) {
    unsigned votes = 0;
    for (unsigned lanes = mask; lanes != 0; lanes &= lanes - 1) {
      Thread& other = at(number, lanes);
      if (other.brought != 0) votes |= lanes & -lanes;
      if (other.source < 0) continue;
      if ((mask >> other.source & 1) == 0) give_up("a shuffle from a lane outside of the mask", other.number);
      other.result = threads_[number * kWarp + other.source]->brought;
    }
    for (unsigned lanes = mask; lanes != 0; lanes &= lanes - 1) {
      Thread& other = at(number, lanes);
      if (other.source < 0) other.result = votes;
    }
    warp.waiting &= ~mask;
    warp.ready |= mask;
    ++warp.meetings;
  }
  keep_going();
  return self;
}

// Shuffles make no order in memory, this does.
void Processor::meet_lanes_in_order(unsigned mask, const Place& place) {
  const int warp = current_ / kWarp;
  uint64_t* const moment = &moments_->lanes[warp][warps_[warp].meetings & 1];
  sanitizer::release(moment);
  meet_lanes("__syncwarp", mask, 0, -1, place);
  sanitizer::acquire(moment);
}

// ---- faults ---------------------------------------------------------------------------------------------------------
void Processor::give_up(const char* text, int first, int second, const SharedArray* array) {
  fault_ = {text, first, second, array};
  threads_[current_]->fiber.switch_to(*home_);
  std::abort();
}

std::string Processor::describe(const Thread& thread) const {
  const Warp& warp = warps_[thread.number / kWarp];
  const bool ended = (warp.ended >> thread.number % kWarp & 1) != 0;
  std::string text = "thread " + std::to_string(thread.number) + (ended ? " ended" : "");
  if (thread.deed.name == nullptr) return text + (ended ? " without having met others" : "");
  text += (ended ? ", last in " : " in ") + std::string(thread.deed.name);
  char mask[32];
  std::snprintf(mask, sizeof(mask), " of lanes %#x", thread.deed.mask);
  if (thread.deed.mask != 0) text += mask;
  return text + " at " + thread.deed.place.file_name() + ":" + std::to_string(thread.deed.place.line());
}

// Throws, and leaves fibers that have not finished.
void Processor::report(int set) {
  std::string text = std::string("kernel ") + name_ + ", block (" + std::to_string(blockIdx.x) + ", " +
                     std::to_string(blockIdx.y) + "): " + fault_.text;
  if (fault_.array != nullptr) {
    text += std::string(", ") + fault_.array->name + " at " + fault_.array->place.file_name() + ":" +
            std::to_string(fault_.array->place.line());
  }
  if (fault_.first >= 0) text += "; " + describe(*threads_[fault_.first]);
  if (fault_.second >= 0) text += "; " + describe(*threads_[fault_.second]);
  fault_ = {};
  for (int i = 0; i < count_; ++i) threads_[i]->fiber.release(end_);
  sanitizer::acquire(end_);
  for (std::unique_ptr<Thread>& thread : sets_[set]) thread.reset();
  if (const std::exception_ptr thrown = std::exchange(thrown_, nullptr); thrown != nullptr) {
    try {
      std::rethrow_exception(thrown);
    } catch (const std::exception& exception) {
      throw_crash(text, ": ", exception.what());
    }
  }
  throw_crash(text);
}

}  // namespace

// ---- what kernels and launches call ---------------------------------------------------------------------------------
void set_processor_options(const ProcessorOptions& wanted) {
  options() = wanted;
}
ProcessorOptions processor_options() {
  return options();
}

void execute_grid(const char* name, int64_t grid_x, int64_t grid_y, int block, const std::function<void()>& thread_body,
                  int64_t shared, bool allowed, bool early) {
  // One for each stream that ThreadSanitizer tells apart.
  thread_local std::map<void*, std::unique_ptr<Processor>> processors;
#ifdef SHIFTRON_THREAD_SANITIZER
  void* const stream = __tsan_get_current_fiber();
#else
  void* const stream = nullptr;
#endif
  std::unique_ptr<Processor>& processor = processors[stream];
  if (processor == nullptr) processor = std::make_unique<Processor>();
  CHECK(current == nullptr, name, ": a grid within a grid");
  current = processor.get();
  struct Reset {
    ~Reset() { current = nullptr; }
  } reset;
  processor->execute(name, grid_x, grid_y, block, thread_body, shared, allowed, early);
}

namespace {
struct Launches {
  std::mutex mutex;
  std::map<std::string, int64_t> of;
};
Launches& counted_launches() {
  static Launches counted;
  return counted;
}
void count_launch(const char* name) {
  const std::lock_guard lock(counted_launches().mutex);
  ++counted_launches().of[name];
}
}  // namespace

std::map<std::string, int64_t> launches() {
  const std::lock_guard lock(counted_launches().mutex);
  return counted_launches().of;
}
void clear_launches() {
  const std::lock_guard lock(counted_launches().mutex);
  counted_launches().of.clear();
}

namespace {
struct Allowed {
  std::mutex mutex;
  std::map<const void*, int64_t> of;
};
Allowed& allowed() {
  static Allowed all;
  return all;
}
std::optional<int64_t> allowed_shared(const void* kernel) {
  const std::lock_guard lock(allowed().mutex);
  const auto found = allowed().of.find(kernel);
  return found == allowed().of.end() ? std::nullopt : std::optional(found->second);
}
}  // namespace

void allow_shared(const void* kernel, int64_t bytes) {
  const std::lock_guard lock(allowed().mutex);
  allowed().of[kernel] = bytes;
}

cudaError_t launch(const Launch& grid, cudaStream_t stream, std::function<void()> thread_body) {
  const auto& [name, kernel, x, y, block, shared, early] = grid;
  CHECK(x > 0 && x <= kMostX && y > 0 && y <= kMostY, name, ": grid of ", x, " x ", y);
  CHECK(block > 0 && block <= kMostThreads && block % kWarp == 0, name, ": blocks of ", block, " threads");
  const std::optional<int64_t> allowance = allowed_shared(kernel);
  const int64_t most = allowance.value_or(SharedMemory::kBytes);
  CHECK(shared >= 0 && shared <= most, name, ": ", shared, " bytes of shared memory, of which ", most,
        " are allowed (cudaFuncSetAttribute)");
  count_launch(name);
  load_code(detail::concatenate(name, " at ", kernel));  // each kernel of a template by itself
  return launch_in_stream(name, stream, [grid, body = std::move(thread_body), allowed = allowance.has_value()] {
    execute_grid(grid.name, grid.x, grid.y, grid.block, body, grid.shared, allowed, grid.early);
  });
}

void* shared_array(const char* name, const void* key, size_t bytes, const Place& place) {
  return current->shared_array(name, key, bytes, place);
}

void* shared_bytes(const char* name, const Place& place) {
  return current->shared_array(name, nullptr, current->bytes(), place);
}

void await_earlier_kernels() {
  current->await_earlier_kernels();
}
void meet_block(const Place& place) {
  current->meet_block(place);
}
void meet_lanes(unsigned mask, const Place& place) {
  current->meet_lanes_in_order(mask, place);
}

uint64_t shuffle(const char* name, unsigned mask, uint64_t bits, int source, const Place& place) {
  return current->meet_lanes(name, mask, bits, source, place).result;
}
unsigned vote(const char* name, unsigned mask, bool value, const Place& place) {
  return static_cast<unsigned>(current->meet_lanes(name, mask, value ? 1 : 0, -1, place).result);
}

}  // namespace shiftron::machine

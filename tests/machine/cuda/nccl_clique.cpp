// A rank's stream posts its calls with copies of what they read; the last rank to arrive for some calls computes them
// on the copies; each rank takes its results. What NCCL may do at any time happens at the worst time: operands are read
// at the start and must still be the same at the end; results are NaN until then.
#include "machine/cuda/nccl_clique.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>
#include <utility>

#include "core/check.h"
#include "core/queue.h"
#include "machine/cuda/streams.h"

namespace shiftron::machine {
namespace {

constexpr size_t kLarge = size_t{1} << 20;  // copies whose pages are given back

bool all_done(const Seat& seat) {
  return std::all_of(seat.posted, seat.posted + seat.calls, [](const Posted& posted) { return posted.done; });
}

bool overlap(const void* one, size_t one_bytes, const void* two, size_t two_bytes) {
  const char *first = static_cast<const char*>(one), *second = static_cast<const char*>(two);
  return first < second + two_bytes && second < first + one_bytes;
}

}  // namespace

Clique::Clique(std::shared_ptr<Segment> segment, int rank, int size, const NcclOptions& options)
    : segment_(std::move(segment)), table_(segment_->table()), rank_(rank), size_(size), options_(options) {
  CHECK(size <= kMostRanks, "a communicator of ", size, " ranks; the emulator's limit is ", kMostRanks);
}

// ---- ranks that come and go -----------------------------------------------------------------------------------------
Clique::Joined Clique::join(uint64_t host, int device, std::string& details) {
  {
    const TableLock held(table_);
    CHECK(table_.ranks == 0 || table_.ranks == size_, "a communicator of ", size_, " ranks, and of ", table_.ranks);
    CHECK(!seat(rank_).taken, "two ranks make a communicator as rank ", rank_);
    segment_->be_there(rank_);
    table_.ranks = size_;
    Seat& mine = seat(rank_);
    mine.process = getpid();
    mine.host = host;
    mine.device = device;
    mine.taken = true;
  }
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(options_.patience);
  const auto all_came = [this] {
    const TableLock held(table_);
    return std::all_of(table_.seats, table_.seats + size_, [](const Seat& one) { return one.taken; });
  };
  while (!all_came()) {
    if (Clock::now() > end) return Joined::not_all;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  for (int other = 0; other < size_; ++other) {  // threads of one process stand for ranks with a device each
    const Seat& theirs = seat(other);
    if (theirs.process == getpid() || theirs.host != host || theirs.device != device) continue;
    details = "Duplicate GPU detected: rank " + std::to_string(rank_) + " and rank " + std::to_string(other) +
              " both on device " + std::to_string(device);
    return Joined::two_on_one_device;
  }
  return Joined::all;
}

bool Clique::connect(const std::vector<NcclCall>& calls, std::string& details) {
  const auto begun = [this](int rank, bool sends, int peer) -> bool& {
    Seat& at = seat(rank);
    return (sends ? at.sends : at.receives)[peer];
  };
  std::vector<const NcclCall*> first;
  {
    const TableLock held(table_);
    for (const NcclCall& call : calls) {
      if (!call.is_message() || std::exchange(begun(rank_, call.kind == NcclKind::send, call.peer), true)) continue;
      first.push_back(&call);
    }
  }
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(options_.patience);
  for (const NcclCall* call : first) {
    const auto came = [&] {
      const TableLock held(table_);
      return begun(call->peer, call->kind != NcclKind::send, rank_) || seat(rank_).aborted;
    };
    while (!came()) {
      if (Clock::now() > end || peer_is_lost() || seat(call->peer).left) {
        details = "rank " + std::to_string(rank_) + " waits in " + text_of(*call) + " for that rank's first such call";
        return false;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
  return true;
}

void Clique::leave() {
  const TableLock held(table_);
  seat(rank_).left = true;
}

void Clique::abort() {
  const TableLock held(table_);
  Seat& mine = seat(rank_);
  mine.left = mine.aborted = true;
  mine.waits = false;
  if (options_.lost_rank < 0) set_fault(table_, "rank " + std::to_string(rank_) + " gave up");
}

bool Clique::peer_is_lost() {
  const TableLock held(table_);
  for (int other = 0; other < size_; ++other) {
    if (!seat(other).left && !segment_->is_there(other)) return true;
  }
  if (!options_.loss_is_told || rank_ == options_.lost_rank) return false;
  return options_.lost_rank >= 0 ||
         std::any_of(table_.seats, table_.seats + size_, [](const Seat& one) { return one.aborted; });
}

bool Clique::spans_processes() {
  return std::any_of(table_.seats, table_.seats + size_, [](const Seat& one) { return one.process != getpid(); });
}

// ---- one rank -------------------------------------------------------------------------------------------------------
void Clique::perform(const std::vector<NcclCall>& calls) {
  Seat& mine = seat(rank_);
  const bool comes = rank_ != options_.lost_rank;
  if (comes) {
    post(calls);
    const TableLock held(table_);
    mine.waits = table_.fault[0] == 0 && !mine.aborted;
    if (mine.waits) keep_going();
  }
  const auto ends = [&] {
    const TableLock held(table_);
    return mine.aborted || table_.fault[0] != 0 || (comes && !mine.waits);
  };
  try {
    while (!ends()) yield_to_other_operations(ends);
  } catch (...) {
    const TableLock held(table_);
    mine.waits = false;
    throw;
  }
  {
    const TableLock held(table_);
    mine.waits = false;
    if (mine.aborted) return;
    if (!comes || !all_done(mine)) throw_crash("NCCL: ", table_.fault);
  }
  open_memory();
  take_results(calls);
}

void Clique::post(const std::vector<NcclCall>& calls) {
  CHECK(calls.size() <= kMostCalls, "a group of ", calls.size(), " calls; the emulator's limit is ", kMostCalls);
  Seat& mine = seat(rank_);
  size_t used = 0;
  const auto place = [&](size_t bytes) { return std::exchange(used, used + (bytes + 63) / 64 * 64); };
  for (size_t i = 0; i < calls.size(); ++i) {
    const NcclCall& call = calls[i];
    const size_t read = call.bytes_read(rank_, size_), written = call.bytes_written(size_);
    Posted& posted = mine.posted[i];
    posted = {.call = call, .input = place(read), .output = place(written), .done = false};
    CHECK(used <= kSeatBytes, text_of(call), ": the emulator has no memory for it");
    std::byte* input = segment_->copies(rank_) + posted.input;
    if (read > 0) std::memcpy(input, call.from, read);
    if (written > 0) std::memset(call.to, 0xFF, written);
    if (overlap(call.from, read, call.to, written)) std::memcpy(const_cast<void*>(call.from), input, read);
  }
  mine.calls = static_cast<int>(calls.size());
}

void Clique::take_results(const std::vector<NcclCall>& calls) {
  const Seat& mine = seat(rank_);
  size_t used = 0;
  for (size_t i = 0; i < calls.size(); ++i) {
    const NcclCall& call = calls[i];
    const Posted& posted = mine.posted[i];
    const size_t read = call.bytes_read(rank_, size_), written = call.bytes_written(size_);
    const bool same = read == 0 || std::memcmp(call.from, segment_->copies(rank_) + posted.input, read) == 0;
    CHECK(same, "NCCL: what rank ", rank_, " gave to ", text_of(call), " was written before that was done");
    if (written > 0) std::memcpy(call.to, segment_->copies(rank_) + posted.output, written);
    used = posted.output + written;
  }
  if (used > kLarge) segment_->forget_copies(rank_);
}

// ---- ranks that meet, under the lock --------------------------------------------------------------------------------
// That a rank's stream is at, if it is at one of all ranks.
const NcclCall* Clique::collective(int rank) {
  const Seat& one = seat(rank);
  return one.waits && !one.posted[0].call.is_message() ? &one.posted[0].call : nullptr;
}

// This rank has come to its calls.
void Clique::keep_going() {
  bool moved = false;
  for (int other = 0; other < size_; ++other) {
    find_misfit(other);
    moved |= move_messages(rank_, other);
    moved |= move_messages(other, rank_);
  }
  if (table_.fault[0] != 0) return;
  const bool all_came = std::all_of(table_.seats, table_.seats + size_, [](const Seat& one) { return one.waits; });
  if (all_came && collective(rank_) != nullptr) {
    meet();
  } else if (all_came && !moved) {
    std::string fault = "no rank can continue";
    for (int other = 0; other < size_; ++other) fault += told_by(other);
    set_fault(table_, fault);
  }
  for (int other = 0; other < size_; ++other) {
    if (seat(other).waits && all_done(seat(other))) seat(other).waits = false;
  }
}

std::string Clique::told_by(int rank) {
  const Seat& one = seat(rank);
  const Posted* first = std::find_if(one.posted, one.posted + one.calls, [](const Posted& p) { return !p.done; });
  return "; rank " + std::to_string(rank) + " is at " + text_of(first->call);
}

// Whether neither this rank nor the other can continue.
void Clique::find_misfit(int other) {
  if (!seat(other).waits || other == rank_ || table_.fault[0] != 0) return;
  const NcclCall *mine = collective(rank_), *theirs = collective(other);
  const auto needs = [this](int one, int peer) {
    const Seat& at = seat(one);
    return std::any_of(at.posted, at.posted + at.calls, [peer](const Posted& posted) {
      return posted.call.is_message() && !posted.done && posted.call.peer == peer;
    });
  };
  const bool fits = mine != nullptr && theirs != nullptr ? mine->fits(*theirs)
                    : mine != nullptr                    ? !needs(other, rank_)
                                                         : theirs == nullptr || !needs(rank_, other);
  if (!fits) set_fault(table_, "the calls of two ranks do not fit" + told_by(rank_) + told_by(other));
}

// The messages that one rank's stream is at and another's too.
bool Clique::move_messages(int from, int to) {
  Seat &out = seat(from), &in = seat(to);
  bool moved = false;
  while (out.waits && in.waits && table_.fault[0] == 0) {
    const auto next = [](Seat& at, NcclKind kind, int peer) {
      return std::find_if(at.posted, at.posted + at.calls, [=](const Posted& posted) {
        return posted.call.kind == kind && posted.call.peer == peer && !posted.done;
      });
    };
    Posted *const sent = next(out, NcclKind::send, to), *const received = next(in, NcclKind::recv, from);
    if (sent == out.posted + out.calls || received == in.posted + in.calls) break;
    if (sent->call.count != received->call.count || sent->call.type != received->call.type) {
      set_fault(table_, "the message of rank " + std::to_string(from) + " is " + text_of(sent->call) + ", where rank " +
                            std::to_string(to) + " is at " + text_of(received->call));
      break;
    }
    std::memcpy(segment_->copies(to) + received->output, segment_->copies(from) + sent->input, sent->call.bytes());
    sent->done = received->done = moved = true;
  }
  return moved;
}

void Clique::meet() {
  const NcclCall& call = seat(rank_).posted[0].call;
  const size_t bytes = call.bytes();
  std::vector<const void*> sources;
  std::vector<std::byte*> targets;
  for (int rank = 0; rank < size_; ++rank) {
    sources.push_back(segment_->copies(rank) + seat(rank).posted[0].input);
    targets.push_back(segment_->copies(rank) + seat(rank).posted[0].output);
    seat(rank).posted[0].done = true;
  }
  if (call.kind == NcclKind::broadcast) {
    for (std::byte* target : targets) std::memcpy(target, sources[static_cast<size_t>(call.peer)], bytes);
  } else if (call.kind == NcclKind::all_gather) {
    for (std::byte* target : targets) {
      for (const void* source : sources) std::memcpy(std::exchange(target, target + bytes), source, bytes);
    }
  } else if (call.kind == NcclKind::all_reduce) {
    reduce_ranks(call, sources, 0, order_of_sum(call, 0), options_.rounds_every_sum, targets[0]);
    for (std::byte* target : targets) std::memmove(target, targets[0], bytes);
  } else {
    for (size_t piece = 0; piece < targets.size(); ++piece) {
      reduce_ranks(call, sources, piece * call.count, order_of_sum(call, piece), options_.rounds_every_sum,
                   targets[piece]);
    }
  }
}

std::vector<int> Clique::order_of_sum(const NcclCall& call, size_t piece) {
  std::vector<int> ranks(static_cast<size_t>(size_));
  std::iota(ranks.begin(), ranks.end(), 0);
  const uint64_t draw = options_.fixed_sums ? call.count : options_.seed + 0x9E3779B97F4A7C15 * ++table_.sums;
  uint64_t devices = 0;  // of other ones, another order
  for (int rank = 0; rank < size_; ++rank) devices = 31 * devices + static_cast<uint64_t>(seat(rank).device);
  std::seed_seq drawn{draw & 0xFFFFFFFF, draw >> 32, uint64_t{piece}, devices};
  std::mt19937 random(drawn);
  std::shuffle(ranks.begin(), ranks.end(), random);
  return ranks;
}

}  // namespace shiftron::machine

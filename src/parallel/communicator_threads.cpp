// Ranks as threads of one process: exchanges by rendezvous, messages as queued copies; a failure wakes all.
#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <list>
#include <map>
#include <mutex>
#include <string_view>
#include <thread>

#include "parallel/host_communicator.h"

namespace shiftron {
namespace {

// What a rank calls at a rendezvous; must be the same in the whole group.
struct Call {
  std::string_view operation;
  int64_t bytes = 0;
  int root = 0;
  bool operator==(const Call&) const = default;
};

// Messages from one rank to another. A receive gets its number when it is posted, so the order of calls counts.
struct Channel {
  uint64_t sent = 0;
  uint64_t posted = 0;
  std::map<uint64_t, std::vector<std::byte>> waiting;
};

struct World;

struct Group {
  Group(std::string name_, std::vector<int> world_ranks_)
      : name(std::move(name_)),
        world_ranks(std::move(world_ranks_)),
        calls(world_ranks.size()),
        sources(world_ranks.size()),
        arrived(world_ranks.size(), 0),
        message_came(world_ranks.size()),
        channels(world_ranks.size() * world_ranks.size()) {}
  int size() const { return static_cast<int>(world_ranks.size()); }
  Channel& channel(int from, int to) { return channels[static_cast<size_t>(from * size() + to)]; }

  std::string name;
  std::vector<int> world_ranks;
  std::vector<Call> calls;
  std::vector<const std::byte*> sources;  // read by all between the two rendezvous of a collective
  std::vector<char> arrived;              // at the current rendezvous
  int arrivals = 0;
  uint64_t round = 0;
  std::condition_variable round_ended;
  std::deque<std::condition_variable> message_came;  // one per rank, which receives, or waits for a receiver
  std::vector<Channel> channels;

  // Groups being formed: a rank joins the first one with its members that it has not joined yet.
  struct Forming {
    std::vector<int> members;
    std::shared_ptr<Group> group;
    std::vector<char> taken;
  };
  std::list<Forming> forming;
};

// One mutex guards everything of a world except the bytes that ranks exchange.
struct World {
  explicit World(int ranks) : ended(static_cast<size_t>(ranks), 0) {}
  std::mutex mutex;
  std::vector<char> ended;  // by world rank: its body has returned
  std::string failure;      // empty: none so far
  int failed_rank = -1;
  std::vector<std::weak_ptr<Group>> groups;

  void add(const std::shared_ptr<Group>& group) {
    std::erase_if(groups, [](const std::weak_ptr<Group>& other) { return other.expired(); });
    groups.push_back(group);
  }
  void wake_all() {
    for (const std::weak_ptr<Group>& weak : groups) {
      if (const std::shared_ptr<Group> group = weak.lock()) {
        group->round_ended.notify_all();
        for (std::condition_variable& receiver : group->message_came) receiver.notify_all();
      }
    }
  }
  void fail(int rank, const std::string& reason) {  // the first failure stays
    if (failure.empty()) {
      failed_rank = rank;
      failure = "rank " + std::to_string(rank) + " failed: " + reason;
    }
    wake_all();
  }
};

class ThreadCommunicator : public HostCommunicator {
 public:
  ThreadCommunicator(std::shared_ptr<World> world, std::shared_ptr<Group> group, int rank)
      : RankGroup(group->name, rank, group->size()),
        HostCommunicator(group->name, rank, group->size()),
        world_(std::move(world)),
        group_(std::move(group)) {}
  ~ThreadCommunicator() override {
    drop_operations();
    const std::lock_guard lock(world_->mutex);
    group_.reset();
  }

  std::unique_ptr<HostCommunicator> split(const std::vector<int>& members, const std::string& group_name) override {
    const size_t place = static_cast<size_t>(place_in(members));
    const std::lock_guard lock(world_->mutex);
    auto forming = std::find_if(group_->forming.begin(), group_->forming.end(), [&](const Group::Forming& other) {
      return other.members == members && other.taken[place] == 0;
    });
    if (forming == group_->forming.end()) {
      std::vector<int> world_ranks;
      for (const int member : members) world_ranks.push_back(group_->world_ranks[static_cast<size_t>(member)]);
      Group::Forming fresh{members, std::make_shared<Group>(group_name, world_ranks),
                           std::vector<char>(members.size(), 0)};
      world_->add(fresh.group);
      forming = group_->forming.insert(group_->forming.end(), std::move(fresh));
    }
    const std::shared_ptr<Group> group = forming->group;
    if (group->name != group_name)
      mismatch("split: this rank forms group " + group_name + ", but a peer forms " + group->name);
    forming->taken[place] = 1;
    if (std::count(forming->taken.begin(), forming->taken.end(), 0) == 0) group_->forming.erase(forming);
    return std::make_unique<ThreadCommunicator>(world_, group, static_cast<int>(place));
  }

 protected:
  void exchange_all_to_all(const void* send, int64_t send_stride, void* receive, int64_t bytes) override {
    collect({"all_to_all", bytes}, send, send_stride, receive);
  }
  void exchange_all_gather(const void* piece, void* whole, int64_t bytes) override {
    collect({"all_gather", bytes}, piece, 0, whole);
  }
  void exchange_broadcast(void* data, int64_t bytes, int root) override {
    meet({"broadcast", bytes, root}, data);
    if (rank() != root) std::memcpy(data, group_->sources[static_cast<size_t>(root)], static_cast<size_t>(bytes));
    meet({"end of broadcast"});
  }
  void exchange_barrier() override { meet({"barrier"}); }

  void start_send(const void* data, int64_t bytes, int to) override {
    const std::byte* begin = static_cast<const std::byte*>(data);
    std::vector<std::byte> message(begin, begin + bytes);
    const std::lock_guard lock(world_->mutex);
    if (!world_->failure.empty()) throw_lost("send");
    Channel& channel = group_->channel(rank(), to);
    channel.waiting.emplace(channel.sent++, std::move(message));
    group_->message_came[static_cast<size_t>(to)].notify_all();
  }

  void wait_for_receivers(int to, int most) override {
    std::unique_lock lock(world_->mutex);
    const Channel& channel = group_->channel(rank(), to);
    const auto are_taken = [&] { return static_cast<int>(channel.waiting.size()) <= most; };
    while (!are_taken()) {
      if (!world_->failure.empty()) throw_lost("send");
      if (has_ended(to)) {
        fail_ended(to, "send");
        throw_lost("send");
      }
      wait(group_->message_came[static_cast<size_t>(rank())], lock, [&] { return are_taken() || has_ended(to); });
    }
  }

  std::function<void()> start_recv(void* data, int64_t bytes, int from) override {
    const std::lock_guard lock(world_->mutex);
    const uint64_t number = group_->channel(from, rank()).posted++;
    return [this, data, bytes, from, number] { finish_recv(data, bytes, from, number); };
  }

 private:
  // Inside a queue's operation, other operations run meanwhile.
  template <typename Ready>
  void wait(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, const Ready& ready) const {
    if (Turns::of_this_thread() == nullptr) return changed.wait(lock);
    lock.unlock();
    yield_to_other_operations([&] {
      const std::lock_guard held(world_->mutex);
      return !world_->failure.empty() || ready();
    });
    lock.lock();
  }
  int world_rank(int member) const { return group_->world_ranks[static_cast<size_t>(member)]; }
  [[noreturn]] void throw_lost(std::string_view operation) const {  // the lock is held
    throw Error("group " + name() + ", " + std::string(operation) + ": " + world_->failure, ExitCode::hang);
  }
  [[noreturn]] void mismatch(const std::string& what) {  // the lock is held
    const std::string text = "group " + name() + ": " + what;
    world_->fail(world_rank(rank()), text);
    throw_crash(text);
  }
  bool has_ended(int member) const { return world_->ended[static_cast<size_t>(world_rank(member))] != 0; }
  void fail_ended(int member, std::string_view operation) {  // the lock is held
    world_->fail(world_rank(member), "it ended while rank " + std::to_string(world_rank(rank())) +
                                         " waited for it in " + std::string(operation) + " of group " + name());
  }

  // Returns when every rank of the group has made a matching call.
  void meet(const Call& call, const void* source = nullptr) {
    std::unique_lock lock(world_->mutex);
    Group& group = *group_;
    if (!world_->failure.empty()) throw_lost(call.operation);
    for (int member = 0; member < size(); ++member) {
      const size_t other = static_cast<size_t>(member);
      if (group.arrived[other] && group.calls[other] != call) {
        mismatch("rank " + std::to_string(rank()) + " calls " + describe(call) + ", but rank " +
                 std::to_string(member) + " calls " + describe(group.calls[other]));
      }
    }
    group.calls[static_cast<size_t>(rank())] = call;
    if (source != nullptr) group.sources[static_cast<size_t>(rank())] = static_cast<const std::byte*>(source);
    group.arrived[static_cast<size_t>(rank())] = 1;
    if (++group.arrivals == size()) {
      group.arrivals = 0;
      std::fill(group.arrived.begin(), group.arrived.end(), 0);
      ++group.round;
      lock.unlock();
      group.round_ended.notify_all();
      return;
    }
    const uint64_t round = group.round;
    while (group.round == round) {
      if (!world_->failure.empty()) throw_lost(call.operation);
      for (int member = 0; member < size(); ++member) {
        if (!group.arrived[static_cast<size_t>(member)] && has_ended(member)) {
          fail_ended(member, call.operation);
          throw_lost(call.operation);
        }
      }
      wait(group.round_ended, lock, [&] {
        if (group.round != round) return true;
        for (int member = 0; member < size(); ++member) {
          if (!group.arrived[static_cast<size_t>(member)] && has_ended(member)) return true;
        }
        return false;
      });
    }
  }
  static std::string describe(const Call& call) {
    return std::string(call.operation) + " of " + std::to_string(call.bytes) + " bytes, root " +
           std::to_string(call.root);
  }

  // Receives part rank() of what each rank sends, where part r begins r * stride bytes into it.
  void collect(const Call& call, const void* send, int64_t stride, void* receive) {
    meet(call, send);
    const size_t bytes = static_cast<size_t>(call.bytes);
    for (int step = 0; step < size(); ++step) {  // each rank begins with its own, so that not all read the same one
      const int from = (rank() + step) % size();
      const std::byte* source = group_->sources[static_cast<size_t>(from)] + rank() * stride;
      std::byte* target = static_cast<std::byte*>(receive) + from * call.bytes;
      if (source != target) std::memcpy(target, source, bytes);
    }
    meet({"end of collective"});
  }

  void finish_recv(void* data, int64_t bytes, int from, uint64_t number) {
    std::unique_lock lock(world_->mutex);
    Channel& channel = group_->channel(from, rank());
    auto message = channel.waiting.find(number);
    while (message == channel.waiting.end()) {
      if (!world_->failure.empty()) throw_lost("recv");
      if (has_ended(from)) {
        fail_ended(from, "recv");
        throw_lost("recv");
      }
      wait(group_->message_came[static_cast<size_t>(rank())], lock,
           [&] { return channel.waiting.contains(number) || has_ended(from); });
      message = channel.waiting.find(number);
    }
    const std::vector<std::byte> content = std::move(message->second);
    channel.waiting.erase(message);
    group_->message_came[static_cast<size_t>(from)].notify_all();  // the sender, which may wait for receivers
    if (static_cast<int64_t>(content.size()) != bytes) {
      mismatch("rank " + std::to_string(rank()) + " receives " + std::to_string(bytes) + " bytes, but rank " +
               std::to_string(from) + " sent " + std::to_string(content.size()));
    }
    lock.unlock();
    std::memcpy(data, content.data(), content.size());
  }

  std::shared_ptr<World> world_;
  std::shared_ptr<Group> group_;
};

std::string describe(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "unknown exception";
  }
}

}  // namespace

void run_thread_ranks(int ranks, const std::function<void(HostCommunicator& world)>& body) {
  CHECK(ranks >= 1, "ranks ", ranks);
  std::vector<int> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(rank);
  const auto world = std::make_shared<World>(ranks);
  const auto group = std::make_shared<Group>("world", all);
  world->add(group);
  std::vector<std::exception_ptr> exceptions(static_cast<size_t>(ranks));
  const auto end = [&](int rank, const std::exception_ptr& exception) {
    const std::lock_guard lock(world->mutex);
    exceptions[static_cast<size_t>(rank)] = exception;
    world->ended[static_cast<size_t>(rank)] = 1;
    if (exception != nullptr) return world->fail(rank, describe(exception));
    world->wake_all();
  };
  std::vector<std::thread> threads;
  for (const int rank : all) {
    try {
      threads.emplace_back([&, rank] {
        try {
          ThreadCommunicator communicator(world, group, rank);
          body(communicator);
        } catch (...) {
          return end(rank, std::current_exception());
        }
        end(rank, nullptr);
      });
    } catch (const std::system_error&) {  // the thread could not start: that rank has failed
      end(rank, std::current_exception());
      break;
    }
  }
  for (std::thread& thread : threads) thread.join();
  if (world->failed_rank < 0) return;
  const auto rethrow = [](const std::exception_ptr& exception) {
    if (exception != nullptr) std::rethrow_exception(exception);
  };
  rethrow(exceptions[static_cast<size_t>(world->failed_rank)]);
  for (const std::exception_ptr& exception : exceptions) rethrow(exception);
  throw Error(world->failure, ExitCode::crash);
}

}  // namespace shiftron

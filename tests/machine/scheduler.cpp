// Who runs next: all lanes under one lock, and the queues that enqueue into them. Not instrumented.
#include "machine/scheduler.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/sanitizer.h"
#include "machine/lane.h"

namespace shiftron::machine {

using sanitizer::Hidden;

class World : public std::enable_shared_from_this<World> {
 public:
  explicit World(const MachineOptions& options) : options_(options), random_(options.seed), eagerness_(random_() % 4) {}
  ~World() {
    Hidden hidden;
    errors_.clear();
  }

  std::unique_ptr<Queue> make_queue(const std::string& name);
  void hand_over(Lane& lane, std::unique_ptr<Item> item);
  void wait(Place& place);
  void keep_going(Place& place);  // by one step, for a host that asks in a loop
  void relieve();
  void drop(Lane& lane);
  void remove(Lane& lane);
  std::vector<Machine::Entry> log() {
    std::lock_guard held(lock_);
    return log_;
  }

 private:
  bool fresh(const Lane& lane) const { return lane.ready != nullptr ? (*lane.ready)() : lane.tried != attempt_; }
  std::vector<Lane*> ready_lanes() const;
  Lane* pick(const Place* needed);
  void step(Lane& lane);
  void drive(std::unique_lock<FairLock>& held, const Place& place, std::string& fault);
  void report_finished_step();
  std::string who_waits() const;

  const MachineOptions options_;
  FairLock lock_;  // of all below
  std::mt19937_64 random_;
  uint64_t eagerness_;  // quarters: of the random order, to run something at a call
  std::vector<std::shared_ptr<Lane>> lanes_;
  std::vector<const Place*> awaited_;       // by hosts
  std::vector<std::exception_ptr> errors_;  // kept: hosts drop theirs in no order that ThreadSanitizer knows
  std::vector<Machine::Entry> log_;
  uint64_t progress_ = 0;  // items handed over and ended
  uint64_t relieved_ = 0;  // progress at the end of the last relief
  uint64_t attempt_ = 1;   // in each of which an operation gives its turn once
  bool driven_ = false;    // by a host that waits; the others sleep
  Word changes_ = 0;       // of what those wait for: a place is reached, nobody drives
};

namespace {

class LateQueue final : public Queue {
 public:
  LateQueue(std::shared_ptr<World> world, std::shared_ptr<Lane> lane)
      : world_(std::move(world)), lane_(std::move(lane)) {}
  ~LateQueue() override {
    Hidden hidden;
    world_->remove(*lane_);
    lane_.reset();
    world_.reset();
  }
  std::unique_ptr<Queue> sibling(const std::string& name) override {
    Hidden hidden;
    return world_->make_queue(name);
  }
  void run(std::function<void()> operation) override {
    auto item = make_item(Item::Kind::operation, nullptr);
    item->handed_over.release();
    Hidden hidden;
    item->operation = std::move(operation);
    world_->hand_over(*lane_, std::move(item));
  }
  std::shared_ptr<Mark> mark(bool) override {
    Hidden hidden;
    auto place = std::make_shared<Place>(world_, lane_, marks_++);
    world_->hand_over(*lane_, make_item(Item::Kind::mark, place));
    return place;
  }
  void wait(std::shared_ptr<Mark> mark) override {
    Hidden hidden;
    auto place = std::dynamic_pointer_cast<Place>(std::move(mark));
    CHECK(place != nullptr && place->world == world_, "queue ", lane_->name, " waits for a mark of another scheduler");
    world_->hand_over(*lane_, make_item(Item::Kind::wait, std::move(place)));
  }
  void drop() noexcept override {
    Hidden hidden;
    world_->drop(*lane_);
  }

 private:
  std::unique_ptr<Item> make_item(Item::Kind kind, std::shared_ptr<Place> place) {
    Hidden hidden;
    CHECK(Turns::of_this_thread() == nullptr, "an operation hands over to queue ", lane_->name);
    auto item = std::make_unique<Item>();
    item->kind = kind;
    item->place = std::move(place);
    return item;
  }

  std::shared_ptr<World> world_;
  std::shared_ptr<Lane> lane_;
  int64_t marks_ = 0;
};

// The lane whose first item can run, and must before the place is reached.
Lane* first_needed(const Place& place) {
  Lane* lane = place.lane.get();
  while (!lane->can_go_on()) lane = lane->items.front()->place->lane.get();
  return lane;
}

template <typename Allowed>
Lane* oldest(const std::vector<Lane*>& lanes, Allowed allowed) {
  Lane* found = nullptr;
  for (Lane* lane : lanes) {
    if (allowed(*lane) && (!found || lane->items.front()->age < found->items.front()->age)) found = lane;
  }
  return found;
}

}  // namespace

bool Place::reached() {
  if (done) {
    moment.acquire();
    return true;
  }
  Hidden hidden;
  if (++asked > 100 && Turns::of_this_thread() == nullptr) world->keep_going(*this);
  return false;
}

void Place::wait() {
  {
    Hidden hidden;
    CHECK(Turns::of_this_thread() == nullptr, "an operation waits for mark ", number, " of queue ", lane->name);
    world->wait(*this);
  }
  moment.acquire();
  if (error) std::rethrow_exception(error);
}

double Place::seconds_since(const Mark& earlier) const {
  const auto* other = dynamic_cast<const Place*>(&earlier);
  CHECK(other != nullptr && other->done && done, "mark ", number, " of queue ", lane->name);
  return std::chrono::duration<double>(time - other->time).count();
}

std::unique_ptr<Queue> World::make_queue(const std::string& name) {
  std::lock_guard held(lock_);
  auto lane = std::make_shared<Lane>(name);
  lane->fast = random_() % 2 == 0;
  lanes_.push_back(lane);
  return std::make_unique<LateQueue>(shared_from_this(), std::move(lane));
}

void World::hand_over(Lane& lane, std::unique_ptr<Item> item) {
  std::lock_guard held(lock_);
  item->number = lane.counts[static_cast<int>(item->kind)]++;
  item->age = ++progress_;
  ++attempt_;
  lane.items.push_back(std::move(item));
  if (random_() % 16 == 0) {
    lane.fast = random_() % 2 == 0;
    eagerness_ = random_() % 4;
  }
  report_finished_step();
}

// What the order wants to run though nobody waits.
void World::report_finished_step() {
  while (options_.order != Order::random || random_() % 4 < eagerness_) {
    Lane* lane = pick(nullptr);
    if (lane == nullptr) return;
    step(*lane);
  }
}

std::vector<Lane*> World::ready_lanes() const {
  std::vector<Lane*> ready;
  for (const auto& lane : lanes_) {
    if (lane->can_go_on() && fresh(*lane)) ready.push_back(lane.get());
  }
  return ready;
}

// A lane to run next: for a host that waits for `needed`, or by itself.
Lane* World::pick(const Place* needed) {
  const std::vector<Lane*> ready = ready_lanes();
  if (ready.empty()) return nullptr;
  const auto any = [](const Lane&) { return true; };
  if (options_.order == Order::eager) return oldest(ready, any);
  if (options_.order == Order::random) return ready[random_() % ready.size()];
  if (options_.order == Order::uneven) {
    if (Lane* fast = oldest(ready, [](const Lane& lane) { return lane.fast; })) return fast;
  }
  if (needed == nullptr) return nullptr;
  Lane* lane = first_needed(*needed);
  return fresh(*lane) ? lane : oldest(ready, any);
}

void World::step(Lane& lane) {
  const Item& item = *lane.items.front();
  const bool logged = options_.keeps_log && item.kind == Item::Kind::operation && (item.begun || !lane.error);
  if (logged && !item.begun) log_.push_back({lane.name, item.number, true});
  lane.items.front()->begun = true;
  const bool failed = lane.error != nullptr;
  lane.take_turn();
  if (lane.gave) {
    lane.tried = attempt_;
    return;
  }
  if (logged) log_.push_back({lane.name, item.number, false});
  if (lane.error && !failed) errors_.push_back(lane.error);
  const bool awaited = std::ranges::find(awaited_, item.place.get()) != awaited_.end();
  lane.items.pop_front();
  if (awaited) {
    ++changes_;
    wake_all(changes_);
  }
  ++progress_;
  ++attempt_;
}

void World::wait(Place& place) {
  std::unique_lock held(lock_);
  awaited_.push_back(&place);
  std::string fault;
  while (!place.done && fault.empty()) {
    if (!driven_) {
      driven_ = true;
      drive(held, place, fault);
      driven_ = false;
      ++changes_;
      wake_all(changes_);
      continue;
    }
    const uint32_t before = changes_;
    held.unlock();
    sleep_while(changes_, before, 10'000);
    held.lock();
  }
  awaited_.erase(std::find(awaited_.begin(), awaited_.end(), &place));
  if (!place.done) throw Error(fault, ExitCode::hang);
}

void World::drive(std::unique_lock<FairLock>& held, const Place& place, std::string& fault) {
  uint64_t seen = 0;
  Clock::time_point since;
  int vain = 0;
  while (!place.done && fault.empty()) {
    if (progress_ != seen) {
      seen = progress_;
      since = Clock::now();
      vain = 0;
    }
    Lane* lane = pick(&place);
    if (lane != nullptr) {
      step(*lane);
    } else {
      ++attempt_;
    }
    if (std::chrono::duration<double>(Clock::now() - since).count() > options_.patience && progress_ == seen) {
      fault = who_waits();
    }
    if (lane != nullptr && !lock_.wanted()) continue;
    held.unlock();  // others may hand over
    if (lane == nullptr && ++vain > 16) nap();
    held.lock();
  }
}

void World::keep_going(Place& place) {
  std::lock_guard held(lock_);
  if (place.done) return;
  if (Lane* lane = pick(&place)) {
    step(*lane);
  } else {
    ++attempt_;
  }
}

void World::relieve() {
  std::unique_lock held(lock_);
  if (driven_ || progress_ != relieved_) {
    relieved_ = progress_;
    return;
  }
  ++attempt_;
  for (auto ready = ready_lanes(); !ready.empty() && !driven_; ready = ready_lanes()) {
    step(options_.order == Order::random ? *ready[random_() % ready.size()]
                                         : *oldest(ready, [](const Lane&) { return true; }));
    if (!lock_.wanted()) continue;
    held.unlock();
    held.lock();
  }
  relieved_ = progress_;
}

void World::drop(Lane& lane) {
  std::lock_guard held(lock_);
  if (!lane.items.empty()) {
    errors_.push_back(std::make_exception_ptr(Error("queue " + lane.name + " was dropped", ExitCode::crash)));
    if (!lane.error) lane.error = errors_.back();
    lane.dropped = true;
    while (!lane.items.empty()) step(lane);
    lane.dropped = false;
  }
  lane.error = nullptr;
}

void World::remove(Lane& lane) {
  drop(lane);
  {
    std::lock_guard held(lock_);
    std::erase_if(lanes_, [&](const auto& other) { return other.get() == &lane; });
  }
  lane.end_thread();
}

std::string World::who_waits() const {
  std::ostringstream text;
  text << "no progress for " << options_.patience << " s";
  for (const Place* place : awaited_) {
    text << "; a host waits for mark " << place->number << " of queue " << place->lane->name;
  }
  for (const auto& lane : lanes_) {
    if (lane->items.empty()) continue;
    const Item& item = *lane->items.front();
    text << "; queue " << lane->name;
    if (lane->can_go_on()) {  // then it has been tried
      text << ": its operation " << item.number << " gives its turn";
    } else {
      text << " waits for mark " << item.place->number << " of queue " << item.place->lane->name;
    }
  }
  return text.str();
}

}  // namespace shiftron::machine

namespace shiftron {

Machine::Machine(const MachineOptions& options) {
  sanitizer::Hidden hidden;
  world_ = std::make_shared<machine::World>(options);
}

Machine::~Machine() {
  sanitizer::Hidden hidden;
  world_.reset();
}

std::unique_ptr<Queue> Machine::make_queue(const std::string& name) {
  sanitizer::Hidden hidden;
  return world_->make_queue(name);
}

void Machine::relieve() {
  sanitizer::Hidden hidden;
  world_->relieve();
}

std::vector<Machine::Entry> Machine::log() const {
  sanitizer::Hidden hidden;
  return world_->log();
}

}  // namespace shiftron

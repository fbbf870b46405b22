// Checks every operation of a communicator on the ranks that were started.
#include <fmt/format.h>

#include <cmath>
#include <deque>
#include <functional>

#include "core/event.h"
#include "evaluate/self_test_parts.h"
#include "parallel/connect_groups.h"
#include "parallel/run.h"

namespace shiftron {

using kernel_testing::DeviceTensor;
using kernel_testing::Owned;

namespace {

constexpr const char* kRanksReason =
    "communicators: 0, because the values are small whole numbers whose sums are exact in every type and order";
constexpr int kMostRanksInBfloat16 = 32;  // sums of more would not be exact

double value(int rank, int64_t index) {
  return static_cast<double>((3 * rank + index) % 8);
}

using Values = std::function<double(int64_t index)>;

SelfCheck& check_of(const char* name, DType dtype, SelfTestReport& report) {
  for (SelfCheck& check : report.checks) {
    if (check.section == "communicators" && check.name == name && check.type == name_of(dtype)) return check;
  }
  report.checks.push_back({.section = "communicators", .name = name, .type = name_of(dtype), .reason = kRanksReason});
  return report.checks.back();
}

// Fetches the result `there` into `here` and compares it with the expected values.
void compare(SelfCheck& check, const std::string& what, const DeviceTensor& there, const Owned& here,
             const Values& expected) {
  there.fetch();
  double largest = 0;
  int64_t wrong = 0, first = -1;
  for (int64_t i = 0; i < here.tensor().count(); ++i) {
    const double error = std::abs(here[i] - expected(i));
    if (error == 0) continue;
    if (wrong++ == 0) first = i;
    largest = error > largest || std::isnan(error) ? error : largest;
  }
  check.add(wrong == 0 ? what
                       : fmt::format("{}: {} wrong, the first is {}: {} instead of {}", what, wrong, first, here[first],
                                     expected(first)),
            largest, 0);
}

// All operations for one count and type.
class Exchange {
 public:
  Exchange(Stream& stream, Communicator& group, DType dtype, int64_t count, SelfTestReport& report)
      : stream_(stream), group_(group), dtype_(dtype), count_(count), report_(report) {}

  void check_all() {
    const int size = group_.size();
    const auto own = [&](int64_t i) { return value(group_.rank(), i); };
    const auto sum = [&](int64_t i) {
      double total = 0;
      for (int rank = 0; rank < size; ++rank) total += value(rank, i);
      return total;
    };
    const auto of_part = [&](int64_t i) { return value(static_cast<int>(i / count_), i % count_); };
    {
      const Owned values = filled(count_, own);
      const DeviceTensor there(stream_, values);
      group_.all_reduce(stream_, InOut(there.tensor()), Reduction::sum).wait(stream_);
      expect("all_reduce", there, values, sum);
    }
    {
      const Owned values = filled(count_, own);
      const DeviceTensor there(stream_, values);
      group_.broadcast(stream_, InOut(there.tensor()), size - 1).wait(stream_);
      expect("broadcast", there, values, [&](int64_t i) { return value(size - 1, i); });
    }
    transform("all_gather", count_, count_ * size, own, of_part,
              [&](ConstTensor from, Tensor to) { return group_.all_gather(stream_, from, to); });
    const auto part = static_cast<int64_t>(group_.rank()) * count_;
    transform(
        "reduce_scatter", count_ * size, count_, own, [&](int64_t i) { return sum(part + i); },
        [&](ConstTensor from, Tensor to) { return group_.reduce_scatter(stream_, from, to); });
    transform(
        "all_to_all", count_ * size, count_ * size, own,
        [&](int64_t i) { return value(static_cast<int>(i / count_), part + i % count_); },
        [&](ConstTensor from, Tensor to) { return group_.all_to_all(stream_, from, to); });
    for (int from = 0; size > 1 && from < size; ++from) pass_on(from, (from + 1) % size);
  }

 private:
  Owned filled(int64_t count, const Values& of) const {
    Owned values(dtype_, {count});
    for (int64_t i = 0; i < count; ++i) put(values, i, of(i));
    return values;
  }
  void transform(const char* name, int64_t from, int64_t to, const Values& given, const Values& expected,
                 const std::function<Work(ConstTensor, Tensor)>& start) {
    const Owned send = filled(from, given), receive(dtype_, {to});
    const DeviceTensor sent(stream_, send), received(stream_, receive);
    start(sent, received).wait(stream_);
    expect(name, received, receive, expected);
    finish(stream_);
  }
  void pass_on(int from, int to) {
    const auto given = [&](int64_t i) { return value(from, i); };
    if (group_.rank() == from) {
      const Owned send = filled(count_, given);
      const DeviceTensor sent(stream_, send);
      group_.send(stream_, sent, to).wait(stream_);
      finish(stream_);
    } else if (group_.rank() == to) {
      const Owned receive(dtype_, {count_});
      const DeviceTensor received(stream_, receive);
      group_.recv(stream_, received, from).wait(stream_);
      expect("send and recv", received, receive, given);
    }
  }
  void expect(const char* name, const DeviceTensor& there, const Owned& here, const Values& expected) {
    compare(check_of(name, dtype_, report_), fmt::format("{} elements on each of {} ranks", count_, group_.size()),
            there, here, expected);
  }

  Stream& stream_;
  Communicator& group_;
  DType dtype_;
  int64_t count_;
  SelfTestReport& report_;
};

// Operations that run concurrently. Their memory is allocated before, because an allocation may wait for the device,
// and so for them.
class UnderWay {
 public:
  UnderWay(Stream& stream, int64_t count) : stream_(stream), count_(count) {}

  using Start = std::function<Work(Tensor)>;
  void add(const std::string& what, int seed, const Values& expected, const Start& start) {
    Owned& here = here_.emplace_back(DType::float32, Shape{count_});
    for (int64_t i = 0; i < count_; ++i) put(here, i, value(seed, i));
    there_.emplace_back(stream_, here);
    operations_.push_back({what, expected, start});
  }
  void run(SelfTestReport& report) {
    std::vector<Work> started;
    for (size_t i = 0; i < operations_.size(); ++i) started.push_back(operations_[i].start(there_[i]));
    for (Work& work : started) work.wait(stream_);
    for (size_t i = 0; i < operations_.size(); ++i) {
      compare(check_of("groups at once", DType::float32, report), operations_[i].what, there_[i], here_[i],
              operations_[i].expected);
    }
  }

 private:
  struct Operation {
    std::string what;
    Values expected;
    Start start;
  };
  Stream& stream_;
  const int64_t count_;
  std::deque<Owned> here_;
  std::deque<DeviceTensor> there_;
  std::vector<Operation> operations_;
};

// As in a training step: receives are posted first, sums over dp and tp start while they wait, then come the sends.
void exchange_at_once(Stream& stream, const Groups& groups, int64_t count, SelfTestReport& report) {
  UnderWay all(stream, count);
  const int stage = groups.at.pp;
  const auto of = [](int seed) { return [seed](int64_t i) { return value(seed, i); }; };
  for (const ChannelEnd& end : groups.channels) {
    if (end.channel.to != stage) continue;
    const int from = end.channel.from;
    all.add(fmt::format("a message from stage {}", from), 7, of(from),
            [&](Tensor tensor) { return end.group->recv(stream, tensor, 0); });
  }
  for (Communicator* group : {groups.dp.get(), groups.tp.get()}) {
    const auto sum = [size = group->size()](int64_t i) {
      double total = 0;
      for (int rank = 0; rank < size; ++rank) total += value(rank, i);
      return total;
    };
    all.add("a sum over " + group->name(), group->rank(), sum,
            [&stream, group](Tensor tensor) { return group->all_reduce(stream, InOut(tensor), Reduction::sum); });
  }
  for (const ChannelEnd& end : groups.channels) {
    if (end.channel.from != stage) continue;
    all.add("what was sent", stage, of(stage), [&](Tensor tensor) { return end.group->send(stream, tensor, 1); });
  }
  all.run(report);
}

}  // namespace

void check_groups_at_once(Stream& stream, HostCommunicator& world, SelfTestSize size, SelfTestReport& report) {
  constexpr int kTensor = 2, kStages = 2, kRounds = 4;
  if (world.size() % (kTensor * kStages) != 0) return;
  const ParallelLayout layout = make_layout({.tp = kTensor, .pp = kStages}, world.size());
  const Groups groups = make_groups(world, layout, 1, {}, stream.device);
  const int64_t count = size == SelfTestSize::full ? 1'000'003 : 3001;
  const TrafficCost sum{.calls = 1, .bytes = count * size_of(DType::float32)};
  connect_groups(world, groups, {{"dp all_reduce", sum}, {"tp all_reduce", sum}}, stream);
  for (int round = 0; round < kRounds; ++round) exchange_at_once(stream, groups, count, report);
}

void check_communicator(Stream& stream, Communicator& group, SelfTestSize size, SelfTestReport& report) {
  std::vector<int64_t> counts = {1, 3001};
  if (size == SelfTestSize::full) counts.push_back(1'000'003);
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    if (dtype == DType::bfloat16 && group.size() > kMostRanksInBfloat16) continue;
    for (const int64_t count : counts) Exchange(stream, group, dtype, count, report).check_all();
  }
}

}  // namespace shiftron

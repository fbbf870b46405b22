// Products of integers, their rate, and sums of rank numbers over every group.
#include "preflight/preflight_device.h"

#include <fmt/format.h>

#include <deque>

#include "core/check.h"
#include "core/event.h"
#include "core/system_error.h"
#include "kernels/element.h"
#include "kernels/kernels.h"
#include "parallel/agree.h"
#include "parallel/run.h"
#include "train/engine.h"
#include "train/run_environment.h"

namespace shiftron {
namespace {

constexpr int64_t kProductSize = 384;  // of a square matrix
constexpr int64_t kModulus = 17;       // operands are integers below it: exact in every type, and their sums in float32

int64_t element_of_x(int64_t i) {
  return (i * 7 + i / kProductSize) % kModulus;
}
int64_t element_of_w(int64_t i) {
  return (i * 5 + i / kProductSize * 3) % kModulus;
}

void put(const Tensor& staged, int64_t i, int64_t value) {
  const auto number = static_cast<float>(value);
  if (staged.dtype() == DType::bfloat16)
    staged.host_data<bfloat16>()[i] = to_bfloat16(number);
  else
    staged.host_data<float>()[i] = number;
}

// Compares a product of integers with the same computed in integers.
int64_t wrong_products(Stream& stream, DType dtype) {
  const Shape shape = {kProductSize, kProductSize};
  const int64_t bytes = shape.count() * size_of(DType::float32);
  Buffer memory(stream.device, 3 * bytes, *stream.ledger, "preflight");
  Buffer host = staging_buffer(stream, bytes);
  const Tensor staged = host.tensor(0, dtype, shape), result = host.tensor(0, DType::float32, shape);
  const Tensor x = memory.tensor(0, dtype, shape), w = memory.tensor(bytes, dtype, shape);
  const Tensor y = memory.tensor(2 * bytes, DType::float32, shape);
  for (const auto& [value, there] : {std::pair{&element_of_x, x}, std::pair{&element_of_w, w}}) {
    for (int64_t i = 0; i < shape.count(); ++i) put(staged, i, value(i));
    upload(stream, staged, there);
    finish(stream);
  }
  matmul_forward(stream, x, w, y);
  download(stream, y, result);
  finish(stream);
  int64_t wrong = 0;
  for (int64_t row = 0; row < kProductSize; ++row) {
    for (int64_t column = 0; column < kProductSize; ++column) {
      int64_t sum = 0;
      for (int64_t i = 0; i < kProductSize; ++i) {
        sum += element_of_x(row * kProductSize + i) * element_of_w(column * kProductSize + i);
      }
      wrong += result.host_data<float>()[row * kProductSize + column] != static_cast<float>(sum) ? 1 : 0;
    }
  }
  return wrong;
}

// One number on the device, and a host copy to check it.
class Value {
 public:
  Value(Stream& stream, float number)
      : stream_(stream),
        memory_(stream.device, size_of(DType::float32), *stream.ledger, "preflight"),
        host_(staging_buffer(stream, size_of(DType::float32))) {
    here().host_data<float>()[0] = number;
    upload(stream, here(), there());
  }
  Tensor there() const { return memory_.tensor(0, DType::float32, {1}); }
  // Throws unless the device's number is `expected` by now.
  void expect(const std::string& what, int64_t expected) const {
    download(stream_, there(), here());
    finish(stream_);
    const float found = here().host_data<float>()[0];
    if (found != static_cast<float>(expected)) {
      throw_crash(what, " is ", found, " on ", host_name(), "; expected ", expected);
    }
  }

 private:
  Tensor here() const { return host_.tensor(0, DType::float32, {1}); }
  Stream& stream_;
  Buffer memory_, host_;
};

using Values = std::deque<Value>;  // outlive the groups, whose operations may still use them

void check_sum(Stream& stream, Communicator& group, Values& values) {
  const Value& value = values.emplace_back(stream, static_cast<float>(group.rank() + 1));
  group.all_reduce(stream, InOut(value.there()), Reduction::sum).wait(stream);
  value.expect("a sum over " + group.name(), int64_t{group.size()} * (group.size() + 1) / 2);
}

// All at once, as in a step: a send may wait for its receive, and an allocation made meanwhile may wait for the send.
void check_messages(Stream& stream, const Groups& groups, Values& values) {
  const int stage = groups.at.pp;
  const size_t first = values.size();
  for (size_t i = 0; i < groups.channels.size(); ++i) values.emplace_back(stream, static_cast<float>(stage));
  std::vector<Work> under_way;
  for (const bool sends : {true, false}) {
    for (size_t i = 0; i < groups.channels.size(); ++i) {
      const auto& [channel, group] = groups.channels[i];
      if (sends != (channel.from == stage)) continue;
      const Tensor value = values[first + i].there();
      under_way.push_back(sends ? group->send(stream, value, 1) : group->recv(stream, value, 0));
    }
  }
  for (Work& work : under_way) work.wait(stream);
  for (size_t i = 0; i < groups.channels.size(); ++i) {
    const int from = groups.channels[i].channel.from;
    values[first + i].expect("the value from stage " + std::to_string(from), from);
  }
}

}  // namespace

DeviceCheck::DeviceCheck(const RunConfig& config, const HostShare& share, HostCommunicator& world,
                         const BeginPart& begin)
    : config_(config), world_(world) {
  begin("the start of the device", {});
  attempt([&] { started_ = open_device(config, share, stream_); });
  agree_on_devices();
  if (all_work_) join_devices(config, world, stream_, started_);
  begin("a matrix product", {});
  const DType dtype = product_type(config.train.precision, stream_.cpu);
  attempt([&] {
    libraries_.emplace(stream_);
    wrong_products_ = shiftron::wrong_products(stream_, dtype);
  });
  world.barrier();  // all at once, as in training
  attempt([&] { operations_ = measure_matmul_peak(stream_, dtype); });
  agree_on_devices();
  if (started_.identity.bus.empty()) return;
  begin("nvidia-smi", {});
  facts_ = facts_of_gpu(started_.identity.bus);
}

// Does nothing once the device has failed.
void DeviceCheck::attempt(const std::function<void()>& work) {
  if (!fault_.empty()) return;
  try {
    work();
  } catch (const std::exception& exception) {
    fault_ = as_error(exception).what();
  }
}

void DeviceCheck::agree_on_devices() {
  all_work_ = find_matching_ranks(world_, fault_.empty() ? "works" : "fails").count == world_.size() && fault_.empty();
}

void DeviceCheck::sum_over_groups(const BeginPart& begin) {
  begin("connecting the groups", setup_deadline(config_));
  const ParallelLayout layout = make_layout(config_.parallel, world_.size());
  Values values;
  const Groups groups = make_groups(world_, layout, config_.model.kv_heads, schedule_of(config_), stream_.device);
  for (Communicator* group : {groups.world.get(), groups.tp.get(), groups.cp.get(), groups.dp.get(),
                              groups.kv_replica.get(), groups.tied.get()}) {
    if (group == nullptr) continue;
    begin(fmt::format("a sum over the {} ranks of group {}", group->size(), group->name()), {});
    check_sum(stream_, *group, values);
  }
  begin("messages between stages", {});
  check_messages(stream_, groups, values);
}

}  // namespace shiftron

// What the tests of checkpoints share: a small model with the real one's parameters, layouts, temporary directories.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/boxes.h"
#include "checkpoint/restore.h"
#include "checkpoint/save.h"
#include "core/file.h"
#include "kernels/element.h"
#include "parallel/bucket_exchange.h"
#include "parallel/host_communicator.h"

namespace shiftron::testing {

namespace fs = std::filesystem;

class TemporaryDirectory {
 public:
  explicit TemporaryDirectory(const fs::path& parent = fs::temp_directory_path()) {
    std::string pattern = (parent / "shiftron-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryDirectory() {
    std::error_code error;
    fs::remove_all(path_, error);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// In memory, where there is such a file system: for tests of what is written, thousands of times, not of the disk.
inline fs::path fast_parent() {
  const fs::path memory = "/dev/shm";
  return ::access(memory.c_str(), W_OK) == 0 ? memory : fs::temp_directory_path();
}

struct FakeModel {
  int64_t layers = 5, hidden = 24, heads = 12, kv_heads = 1, head_dim = 2, ffn = 36, vocab = 101;
  bool tied = false;
  bool precise = false;                 // float64
  bool halves = false;                  // masters of matrices in two halves, as in bf16 runs
  std::vector<int64_t> stage_layers{};  // of the layout's stages; empty = even
  Division division{};
};
inline const FakeModel kSmallModel{.layers = 2, .kv_heads = 2, .vocab = 13};

// A layout, and how it cuts a model.
struct CheckpointLayout {
  ParallelLayout layout;
  std::vector<int64_t> stage_layers{};
  Division division{};
};

inline FakeModel under(FakeModel model, const CheckpointLayout& target) {
  model.stage_layers = target.stage_layers;
  model.division = target.division;
  return model;
}

// Declares what one stage holds, as the model does.
inline void declare(ParameterSet& set, const FakeModel& model) {
  const int stage = set.at().pp;
  const Range layers = stage_layers(model.layers, set.layout().pp, model.stage_layers)[static_cast<size_t>(stage)];
  const bool first = stage == 0, last = stage == set.layout().pp - 1;
  const auto add = [&](const std::string& name, Shape shape, int split_dim, bool tied = false) {
    ParameterSpec spec;
    spec.name = name;
    spec.shape = shape;
    spec.split_dim = split_dim;
    spec.initial = init_constant(1);
    spec.tied = tied;
    spec.keep_precise = shape.dims() == 1 || name.ends_with("shift_key");
    set.declare(spec);
  };
  if (first || (last && model.tied)) add("embedding.weight", {model.vocab, model.hidden}, 0, model.tied);
  for (int64_t i = layers.begin; i < layers.end; ++i) {
    const std::string layer = "layers." + std::to_string(i);
    add(layer + ".attention_norm.weight", {model.hidden}, kReplicated);
    add(layer + ".attention.query.weight", {model.heads, model.head_dim, model.hidden}, 0);
    add(layer + ".attention.key.weight", {model.kv_heads, model.head_dim, model.hidden}, 0);
    add(layer + ".attention.shift_key", {model.kv_heads, 2}, 0);
    add(layer + ".attention.out.weight", {model.hidden, model.heads, model.head_dim}, 1);
    add(layer + ".mlp.down.weight", {model.hidden, model.ffn}, 1);
  }
  if (last) add("final_norm.weight", {model.hidden}, kReplicated);
  if (last && !model.tied) add("head.weight", {model.vocab, model.hidden}, 0);
}

inline ParameterSet make_set(const FakeModel& model, const ParallelLayout& layout, int rank, Ledger& ledger,
                             bool training = true) {
  const DType type = model.precise ? DType::float64 : DType::float32;
  ParameterSet set(layout, layout.coordinates(rank), {model.halves ? DType::bfloat16 : type, type});
  declare(set, model);
  set.allocate(Stream{.ledger = &ledger}, training, model.division);
  return set;
}

inline float upper_half(bfloat16 half) {
  return std::bit_cast<float>(uint32_t{half.bits} << 16);
}

// Calls visit(logical index, value, half) for every element of the set's masters and moments, which it may change;
// half: the value is the upper half of a master whose lower one is on another rank.
template <typename Real, typename Visit>
void for_each_value(const ParameterSet& set, Visit visit) {
  for (const auto& parameter : set.parameters()) {
    const int64_t count = parameter->box.extent.count();
    const bool halves = parameter->rest.defined();
    const Range kept = parameter->kept, whole = halves ? kept : Range{0, count};
    std::vector<std::byte> room;
    const auto* from =
        static_cast<const Real*>(set.read(*parameter, ParameterState::master, whole.begin, whole.size(), room));
    std::vector<Real> masters(static_cast<size_t>(count));
    std::copy_n(from, whole.size(), masters.begin() + whole.begin);
    for (int64_t i = 0; halves && i < count; ++i) {
      if (i < kept.begin || i >= kept.end)
        masters[static_cast<size_t>(i)] = upper_half(parameter->weight.data<bfloat16>()[i]);
    }
    const bool training = parameter->first_moment.defined();
    for (int group = 0; group < (training ? 3 : 1); ++group) {
      const uint64_t stream = std::hash<std::string>{}(std::to_string(group) + parameter->spec.name);
      const Range here = group == 0 ? Range{0, count} : kept;
      Real* values = group == 0   ? masters.data()
                     : group == 1 ? parameter->first_moment.data<Real>()
                                  : parameter->second_moment.data<Real>();
      for_each_run(whole_box(parameter->spec.shape), parameter->box, parameter->box,
                   [&](int64_t logical, int64_t local, int64_t run) {
                     for (int64_t i = 0; i < run; ++i) {
                       if (local + i < here.begin || local + i >= here.end) continue;
                       const bool half = group == 0 && (local + i < whole.begin || local + i >= whole.end);
                       visit(stream + static_cast<uint64_t>(logical + i), values[local + i - here.begin], half);
                     }
                   });
    }
    set.write(*parameter, ParameterState::master, 0, count, masters.data());
  }
}

// A value of any bits but NaN for element `index` of the state that `salt` names.
template <typename Real>
Real value_of(uint64_t salt, uint64_t index) {
  uint64_t x = (index + 0x9E3779B97F4A7C15u * (salt + 1)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 29) * 0x94D049BB133111EBu;
  return static_cast<Real>(static_cast<double>(x >> 11) * 0x1p-53 - 0.5);
}

inline void fill(const FakeModel& model, const ParameterSet& set, uint64_t salt) {
  if (model.precise) {
    for_each_value<double>(set, [&](uint64_t index, double& value, bool) { value = value_of<double>(salt, index); });
  } else {
    for_each_value<float>(set, [&](uint64_t index, float& value, bool) { value = value_of<float>(salt, index); });
  }
}

// Elements whose bits are not those of fill(salt).
inline int64_t count_wrong(const FakeModel& model, const ParameterSet& set, uint64_t salt) {
  int64_t wrong = 0;
  const auto count = [&](const auto& expected, const auto& value) {
    if (std::memcmp(&expected, &value, sizeof(value)) != 0) ++wrong;
  };
  if (model.precise) {
    for_each_value<double>(set, [&](uint64_t i, double& value, bool) { count(value_of<double>(salt, i), value); });
  } else {
    for_each_value<float>(set, [&](uint64_t i, float& value, bool half) {
      const auto expected = value_of<float>(salt, i);
      count(half ? upper_half(weight_half(expected)) : expected, value);
    });
  }
  return wrong;
}

inline CheckpointContent content_at(int64_t step) {
  return {.step = step,
          .configuration = "[model]\nlayers = 5\n",
          .state_json = R"({"configuration":{},"consumed":)" + std::to_string(step * 8) + R"(,"trainer":{}})",
          .tokenizer = {{"tokenizer.model", std::string("tokenizer\0model", 15)},
                        {.beginning_of_document = step % 20 == 0 ? 7 : -1}},
          .data_fingerprint = "0123456789abcdef",
          .code_version = "test"};
}

inline SaveOptions small_blocks() {
  SaveOptions options;
  options.block_bytes = 512;
  return options;
}

// `options` whose hook calls `visit(number, point)`, numbered over all ranks together.
template <typename Options>
Options hooked(Options options, const std::function<void(int, const std::string&)>& visit) {
  auto passed = std::make_shared<std::atomic<int>>(0);
  options.at_point = [visit, passed](const std::string& point) { visit((*passed)++, point); };
  return options;
}

// Where every step is saved with a salt of its own: its number.
inline uint64_t salt_of_step(int64_t step) {
  return static_cast<uint64_t>(step);
}

// Saves the state that `salt` names under `layout`; every rank's result must be the same, which is returned.
inline SaveResult save_state(const std::string& directory, const FakeModel& model, const ParallelLayout& layout,
                             int64_t step, uint64_t salt, const Retention& keep = {.keep = 1000, .keep_every = 0},
                             const SaveOptions& options = small_blocks()) {
  std::vector<SaveResult> results(static_cast<size_t>(layout.ranks()));
  run_thread_ranks(layout.ranks(), [&](HostCommunicator& world) {
    Ledger ledger;
    Log log(world.rank());
    const ParameterSet set = make_set(model, layout, world.rank(), ledger);
    fill(model, set, salt);
    results[static_cast<size_t>(world.rank())] =
        save_checkpoint(directory, content_at(step), set, world, keep, log, options);
  });
  for (const SaveResult& result : results) {
    EXPECT_EQ(result.saved, results[0].saved);
    EXPECT_EQ(result.reason, results[0].reason);
    EXPECT_EQ(result.bytes, results[0].bytes);
  }
  return results[0];
}

// Weights of divided masters, out of the parts that ranks have of them.
inline void gather_weights(const FakeModel& model, ParameterSet& set, HostCommunicator& world, Ledger& ledger) {
  Stream stream{.ledger = &ledger};
  const Groups groups = make_groups(world, set.layout(), model.kv_heads);
  BucketExchange exchange(groups, set);
  for (const Bucket& bucket : set.buckets()) exchange.gather(stream, bucket);
  set.await_weights(stream);
}

// Loads under `layout`; returns the step, −1 = nothing there. Elements that are not fill(salt_of(step)) add to *wrong.
inline int64_t load_state(const std::string& directory, const FakeModel& model, const ParallelLayout& layout,
                          const std::function<uint64_t(int64_t step)>& salt_of, int64_t* wrong,
                          std::optional<int64_t> which = {}, const std::string& log_file = "") {
  std::vector<int64_t> steps(static_cast<size_t>(layout.ranks()));
  std::vector<int64_t> faults(static_cast<size_t>(layout.ranks()));
  run_thread_ranks(layout.ranks(), [&](HostCommunicator& world) {
    Ledger ledger;
    Log log(world.rank());
    if (!log_file.empty() && world.rank() == 0) log.add_file(log_file);
    ParameterSet set = make_set(model, layout, world.rank(), ledger);
    const auto content = load_checkpoint(directory, which, set, world, log,
                                         {.gather = [&] { gather_weights(model, set, world, ledger); }});
    const size_t rank = static_cast<size_t>(world.rank());
    steps[rank] = content ? content->step : -1;
    if (!content) return;
    faults[rank] = count_wrong(model, set, salt_of(content->step));
    const CheckpointContent expected = content_at(content->step);
    EXPECT_EQ(content->configuration, expected.configuration);
    EXPECT_EQ(content->state_json, expected.state_json);
    EXPECT_EQ(content->tokenizer.file.name, expected.tokenizer.file.name);
    EXPECT_EQ(content->tokenizer.file.bytes, expected.tokenizer.file.bytes);
    EXPECT_EQ(content->tokenizer.settings, expected.tokenizer.settings);
    EXPECT_EQ(content->data_fingerprint, expected.data_fingerprint);
  });
  for (const int64_t step : steps) EXPECT_EQ(step, steps[0]);
  for (const int64_t fault : faults) *wrong += fault;
  return steps[0];
}

// Calls `body` and returns the Error it throws; none is a failure of the test.
inline Error error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return Error("", ExitCode::done);
}

inline std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  if (!fs::exists(directory)) return names;
  for (const auto& entry : fs::directory_iterator(directory)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

inline void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

}  // namespace shiftron::testing

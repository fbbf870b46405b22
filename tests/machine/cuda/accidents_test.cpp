// Every call that can fail does, one in each training: training ends with a message that names the call, with the right
// exit code, without a hang, and frees everything. SHIFTRON_FULL_WALK=1 tries more of the calls: minutes, not seconds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "cuda/device_training.h"
#include "machine/cuda/injection.h"
#include "machine/cuda/nccl.h"
#include "machine/cuda/streams.h"
#include "time_scale.h"

namespace shiftron::testing {
namespace {

using machine::CallKind;
using machine::Injection;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

struct Ending {
  std::string message;  // empty: none
  ExitCode code = ExitCode::done;
  bool was_through = false;  // before any call failed
};

// Two steps, whose results are read.
void train(const RunConfig& config, HostCommunicator& world, const Injection& injection, Ending& ending) {
  Ledger ledger;
  DeviceRank rank(config, world, ledger);
  for (int64_t step = 1; step <= 2; ++step) rank.step(step);
  ending.was_through = injection.struck() == nullptr;
}

// Of the ranks, each of which has one of the injections.
std::vector<Ending> train(const RunConfig& config, const std::vector<std::shared_ptr<Injection>>& injections) {
  machine::restart_device({.patience = scaled(20)});
  std::vector<Ending> endings(injections.size());
  const auto run_rank = [&](HostCommunicator& world) {
    const auto rank = static_cast<size_t>(world.rank());
    const machine::InjectionScope scope(injections[rank]);
    try {
      train(config, world, *injections[rank], endings[rank]);
    } catch (const Error& error) {
      endings[rank].message = error.what();
      endings[rank].code = error.code();
      throw;
    }
  };
  try {
    run_thread_ranks(static_cast<int>(injections.size()), run_rank);
  } catch (const Error&) {  // one of those that are kept
  }
  return endings;
}

// Heads as cuDNN takes them.
RunConfig small_run() {
  RunConfig config = small_config(all_shifts()[1].shift, Precision::bf16);
  config.device.kind = DeviceChoice::cuda;
  config.model.hidden = 32;
  config.model.head_dim = 8;
  config.model.layers = 1;
  config.train.sequence_length = 16;
  config.train.micro_batch = 4;
  return config;
}

bool is_full() {
  return std::getenv("SHIFTRON_FULL_WALK") != nullptr;
}
int64_t behind(int64_t number) {
  if (is_full()) return number < 30 ? number + 1 : number + number / 8;
  return number < 2 ? number + 1 : 3 * number;
}

bool is_about_memory(CallKind kind, const std::string& call) {
  return kind == CallKind::allocation || call == "cudaStreamCreateWithPriority" || call == "cudaEventCreateWithFlags" ||
         call == "cudnnBackendCreateDescriptor" ||
         (kind == CallKind::product && call != "cublasLtCreate" && call.ends_with("Create"));
}

// What the message of a rank says whose call failed.
void expect_told(CallKind kind, const std::string& call, const Ending& ending) {
  const std::string& message = ending.message;
  switch (kind) {
    case CallKind::allocation:
      EXPECT_THAT(
          message,
          ContainsRegex(
              "not enough memory: [0-9]+ bytes are needed for [a-z]+, and this rank already uses [0-9]+ bytes"));
      EXPECT_THAT(message, AnyOf(HasSubstr(" of the GPU's "), HasSubstr("pinned host memory")));
      break;
    case CallKind::launch:
      EXPECT_THAT(message, ContainsRegex(" of (float32|bfloat16|int32|float64) \\[[0-9, ]*\\].*: kernel " + call +
                                         ", grid [0-9]+ x [0-9]+, blocks of [0-9]+: too many resources"));
      break;
    case CallKind::kernel:  // nobody knows which
      EXPECT_THAT(message, AnyOf(HasSubstr("unspecified launch failure (cudaErrorLaunchFailure)"),
                                 HasSubstr("EXECUTION_FAILED"), HasSubstr("unhandled cuda error")));
      break;
    case CallKind::product:
    case CallKind::attention:
      EXPECT_THAT(message, HasSubstr(call));
      if (!call.ends_with("Create")) {
        EXPECT_THAT(message, ContainsRegex("\\[[0-9, ]+\\].* for "));
      }
      break;
    case CallKind::collective:
      EXPECT_THAT(message, ContainsRegex("group [a-z0-9 ]+, rank [0-9] of [0-9], "));
      break;
    case CallKind::event:
      if (call == "cudaEventQuery") break;  // asks what is done; the next call tells
      [[fallthrough]];
    default:
      EXPECT_THAT(message, HasSubstr(call));
  }
  const bool of_user = is_about_memory(kind, call) || call == "cudaGetDeviceCount";
  const bool lost = call == "ncclGetUniqueId" || call == "ncclCommGetAsyncError";
  EXPECT_EQ(ending.code, of_user ? ExitCode::bad_input : lost ? ExitCode::hang : ExitCode::crash) << message;
}

class Accidents : public ::testing::TestWithParam<CallKind> {};

TEST_P(Accidents, EveryCallIsToldAndAllIsGivenBack) {
  const auto before = machine::left_behind();  // tests of faults leave something
  int64_t number = 1;
  for (;; number = behind(number)) {
    const auto injection = std::make_shared<Injection>(GetParam(), number);
    const Ending ending = train(small_run(), {injection}).front();
    const std::string call = injection->struck() == nullptr ? "" : injection->struck();
    SCOPED_TRACE(::testing::Message() << name_of(GetParam()) << " " << number << ": " << call);
    EXPECT_EQ(machine::left_behind(), before);
    if (call.empty()) {
      EXPECT_EQ(ending.message, "");
      break;
    }
    // A plan that the library does not make is replaced by kernels; who leaves with all results has nothing to tell.
    if (call == "cudnnBackendFinalize" || ending.was_through) {
      if (ending.message.empty()) continue;
    }
    expect_told(GetParam(), call, ending);
    if (HasFailure()) break;
  }
  EXPECT_GT(number, 1);
  RecordProperty("calls", std::to_string(number - 1));
}

INSTANTIATE_TEST_SUITE_P(Kinds, Accidents,
                         ::testing::Values(CallKind::allocation, CallKind::launch, CallKind::kernel, CallKind::copy,
                                           CallKind::event, CallKind::stream, CallKind::device, CallKind::product,
                                           CallKind::attention),
                         [](const auto& kind) { return name_of(kind.param); });

// Ranks that are threads: those that are left end too.
class LostRanks : public ::testing::TestWithParam<CallKind> {};

TEST_P(LostRanks, TheOthersEnd) {
  machine::set_nccl({.patience = scaled(1)});
  const auto before = machine::left_behind();
  std::vector<RunConfig> configs(2, small_run());
  configs[0].parallel.tp = 2;
  configs[1].parallel.pp = 2;
  configs[1].model.layers = 2;
  configs[1].train.micro_batch = 2;
  for (const RunConfig& config : configs) {
    for (int64_t number = 1;; number = behind(number) * (is_full() ? 1 : 2)) {
      const std::vector injections = {std::make_shared<Injection>(), std::make_shared<Injection>(GetParam(), number)};
      const std::vector<Ending> endings = train(config, injections);
      const std::string call = injections[1]->struck() == nullptr ? "" : injections[1]->struck();
      SCOPED_TRACE(::testing::Message() << name_of(GetParam()) << " " << number << ": " << call);
      EXPECT_EQ(machine::left_behind(), before);
      if (call.empty()) {
        EXPECT_EQ(endings[0].message + endings[1].message, "");
        break;
      }
      if (endings[1].message.empty() && (call == "cudnnBackendFinalize" || endings[1].was_through)) continue;
      expect_told(GetParam(), call, endings[1]);
      EXPECT_TRUE(endings[0].was_through || !endings[0].message.empty()) << "a rank has continued without its peer";
      if (HasFailure()) break;
    }
  }
  machine::set_nccl({});
}

INSTANTIATE_TEST_SUITE_P(Kinds, LostRanks,
                         ::testing::Values(CallKind::allocation, CallKind::launch, CallKind::kernel, CallKind::event,
                                           CallKind::stream, CallKind::product, CallKind::collective),
                         [](const auto& kind) { return name_of(kind.param); });

}  // namespace
}  // namespace shiftron::testing

// Counters of calls, the environment's request, and the report at a process's end.
#include "machine/cuda/injection.h"

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <utility>

#include "core/check.h"
#include "machine/cuda/blas.h"
#include "machine/cuda/dnn.h"
#include "machine/cuda/nccl.h"
#include "machine/cuda/streams.h"

namespace shiftron::machine {
namespace {

constexpr std::array kNames = {"allocation", "launch", "kernel",  "copy",      "event",
                               "stream",     "device", "product", "attention", "collective"};
static_assert(kNames.size() == kCallKinds);

int rank_of_process() {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  return rank == nullptr ? 0 : std::atoi(rank);
}

void report() {
  const Injection& of_process = *injection();
  nlohmann::ordered_json counts;
  for (int kind = 0; kind < kCallKinds; ++kind) {
    counts[kNames[static_cast<size_t>(kind)]] = of_process.counted(static_cast<CallKind>(kind));
  }
  const int rank = rank_of_process();
  const char* struck = of_process.struck();
  std::ofstream(std::getenv("SHIFTRON_MACHINE_REPORT") + ("." + std::to_string(rank)))
      << nlohmann::ordered_json{{"rank", rank},
                                {"failed", struck == nullptr ? "" : struck},
                                {"calls", counts},
                                {"left", left_behind()}}
      << "\n";
}

std::shared_ptr<Injection> injection_of_environment() {
  const char* wish = std::getenv("SHIFTRON_MACHINE_FAIL");
  auto made = wish == nullptr ? std::make_shared<Injection>() : injection_from(wish, rank_of_process());
  if (std::getenv("SHIFTRON_MACHINE_REPORT") != nullptr) std::atexit(report);
  return made;
}

std::shared_ptr<Injection>& of_thread() {
  thread_local std::shared_ptr<Injection> value;
  return value;
}

}  // namespace

const char* name_of(CallKind kind) {
  return kNames[static_cast<size_t>(kind)];
}

bool Injection::strikes(CallKind kind, const char* call) {
  const int64_t of_kind = ++counts_[static_cast<size_t>(kind)], of_all = ++all_;
  if (struck_ != nullptr || (kind_ && *kind_ != kind) || (kind_ ? of_kind : of_all) != number_) return false;
  struck_ = call;
  return true;
}

std::shared_ptr<Injection> injection_from(const std::string& text, int rank) {
  std::smatch parts;
  if (!std::regex_match(text, parts, std::regex("(?:([0-9]+)/)?(?:([a-z]+):)?([0-9]{1,15})"))) {
    throw_bad_input("SHIFTRON_MACHINE_FAIL is ", text, "; it may be [RANK/][KIND:]NUMBER");
  }
  if (parts[1].matched && parts[1].str() != std::to_string(rank)) return std::make_shared<Injection>();
  const int64_t number = std::stoll(parts[3].str());
  if (!parts[2].matched) return std::make_shared<Injection>(number);
  for (int kind = 0; kind < kCallKinds; ++kind) {
    if (kNames[static_cast<size_t>(kind)] == parts[2].str()) {
      return std::make_shared<Injection>(static_cast<CallKind>(kind), number);
    }
  }
  throw_bad_input("SHIFTRON_MACHINE_FAIL is ", text, ", and no call is of kind ", parts[2].str());
}

const std::shared_ptr<Injection>& injection() {
  static const auto& of_process = *new std::shared_ptr<Injection>(injection_of_environment());
  return of_thread() != nullptr ? of_thread() : of_process;
}

InjectionScope::InjectionScope(std::shared_ptr<Injection> given)
    : before_(std::exchange(of_thread(), std::move(given))) {}

InjectionScope::~InjectionScope() {
  of_thread() = std::move(before_);
}

std::map<std::string, int64_t> left_behind() {
  std::map<std::string, int64_t> left = runtime_objects();
  left["objects of cuBLASLt"] = living_product_objects();
  left["objects of cuDNN"] = living_graph_objects();
  left["communicators"] = nccl_communicators();
  std::erase_if(left, [](const auto& entry) { return entry.second == 0; });
  return left;
}

}  // namespace shiftron::machine

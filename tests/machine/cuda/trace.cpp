// A tool that NVTX finds because it is linked.
#define NVTX_STATIC_INJECTION_IMPL
#include "machine/cuda/trace.h"

#include <algorithm>
#include <cstdint>
#include <utility>

extern "C" {  // NVTX's header uses it, but leaves it to a tool's file to declare it
extern int (*InitializeInjectionNvtx2_fnptr)(const void* (*table_of)(uint32_t));
}
#include <nvtx3/nvToolsExt.h>

namespace shiftron::machine {
namespace {

struct Ranges {
  std::vector<std::string> begun;
  int open = 0;
};

Ranges& ranges() {
  thread_local Ranges own;
  return own;
}

int NVTX_API push(const char* name) {
  Ranges& own = ranges();
  own.begun.push_back(std::string(2 * static_cast<size_t>(std::max(own.open, 0)), ' ') + name);
  return own.open++;
}

int NVTX_API pop() {
  return --ranges().open;
}

int NVTX_API listen(NvtxGetExportTableFunc_t table_of) {
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(table_of(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable functions = nullptr;
  unsigned count = 0;
  if (callbacks == nullptr || callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &functions, &count) == 0) return 0;
  *functions[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(push);
  *functions[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
  return 1;
}

}  // namespace

std::vector<std::string> take_ranges() {
  return std::exchange(ranges().begun, {});
}

int open_ranges() {
  return ranges().open;
}

}  // namespace shiftron::machine

extern "C" {
NvtxInitializeInjectionNvtxFunc_t InitializeInjectionNvtx2_fnptr = shiftron::machine::listen;
}

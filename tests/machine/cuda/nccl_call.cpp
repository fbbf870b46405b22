// What calls of NCCL read, write and say, and the sums that they ask for.
#include "machine/cuda/nccl_call.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/check.h"

namespace shiftron::machine {
namespace {

size_t bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclUint8:
      return 1;
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclFloat64:
      return 8;
    default:
      throw_crash("NCCL's type ", static_cast<int>(type), " is not emulated");
  }
}

float widen(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}
uint16_t narrow(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Of one element. A NaN loses a maximum, as it does in NCCL.
template <typename Sum, typename T>
Sum reduce(const std::vector<const T*>& parts, const std::vector<int>& order, size_t i, bool maximum, bool rounds) {
  constexpr bool kNarrow = std::is_same_v<T, uint16_t>;  // bfloat16
  const auto at = [&](int rank) {
    if constexpr (kNarrow) return widen(parts[static_cast<size_t>(rank)][i]);
    if constexpr (!kNarrow) return static_cast<Sum>(parts[static_cast<size_t>(rank)][i]);
  };
  Sum total = at(order[0]);
  for (size_t r = 1; r < order.size(); ++r) {
    const Sum next = at(order[r]);
    if constexpr (std::is_floating_point_v<Sum>) {
      total = maximum ? std::fmax(total, next) : total + next;
    } else {
      total = maximum ? (static_cast<T>(next) > static_cast<T>(total) ? next : total) : total + next;
    }
    if constexpr (kNarrow) {
      if (rounds) total = widen(narrow(total));
    }
  }
  return total;
}

template <typename Sum, typename T>
void reduce_all(const NcclCall& call, const std::vector<const void*>& sources, size_t first,
                const std::vector<int>& order, bool rounds, void* to) {
  std::vector<const T*> parts;
  for (const void* source : sources) parts.push_back(static_cast<const T*>(source) + first);
  T* results = static_cast<T*>(to);
  for (size_t i = 0; i < call.count; ++i) {
    const Sum total = reduce<Sum>(parts, order, i, call.reduction == ncclMax, rounds);
    if constexpr (std::is_same_v<T, uint16_t>) {
      results[i] = narrow(total);
    } else {
      results[i] = static_cast<T>(total);
    }
  }
}

}  // namespace

bool NcclCall::fits(const NcclCall& other) const {
  return kind == other.kind && count == other.count && type == other.type && reduction == other.reduction &&
         peer == other.peer;
}

size_t NcclCall::bytes() const {
  return count * bytes_of(type);
}

size_t NcclCall::bytes_read(int rank, int ranks) const {
  if (from == nullptr || (kind == NcclKind::broadcast && rank != peer)) return 0;
  return kind == NcclKind::reduce_scatter ? static_cast<size_t>(ranks) * bytes() : bytes();
}

size_t NcclCall::bytes_written(int ranks) const {
  if (to == nullptr) return 0;
  return kind == NcclKind::all_gather ? static_cast<size_t>(ranks) * bytes() : bytes();
}

const char* name_of(NcclKind kind) {
  constexpr const char* kNames[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "send", "recv"};
  return kNames[static_cast<int>(kind)];
}

std::string text_of(const NcclCall& call) {
  const char* const types[] = {"int8",   "uint8",   "int32",   "uint32",  "int64",
                               "uint64", "float16", "float32", "float64", "bfloat16"};
  std::string text = name_of(call.kind);
  text += " of " + std::to_string(call.count) + " " + types[call.type];
  if (call.kind == NcclKind::all_reduce || call.kind == NcclKind::reduce_scatter) {
    text += call.reduction == ncclSum ? ", sum" : ", maximum";
  }
  if (call.kind == NcclKind::broadcast) text += ", root " + std::to_string(call.peer);
  if (call.is_message()) text += (call.kind == NcclKind::send ? " to " : " from ") + std::to_string(call.peer);
  return text;
}

void reduce_ranks(const NcclCall& call, const std::vector<const void*>& sources, size_t first,
                  const std::vector<int>& order, bool rounds_every_sum, void* to) {
  const auto reduce_in = [&]<typename Sum, typename T>() {
    reduce_all<Sum, T>(call, sources, first, order, rounds_every_sum, to);
  };
  switch (call.type) {
    case ncclBfloat16:
      return reduce_in.operator()<float, uint16_t>();
    case ncclFloat32:
      return reduce_in.operator()<float, float>();
    case ncclFloat64:
      return reduce_in.operator()<double, double>();
    case ncclInt32:
      return reduce_in.operator()<uint32_t, int32_t>();
    case ncclInt64:
      return reduce_in.operator()<uint64_t, int64_t>();
    default:
      return reduce_in.operator()<uint8_t, uint8_t>();
  }
}

}  // namespace shiftron::machine

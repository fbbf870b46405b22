// One thread of a kernel, instruction by instruction. Not instrumented, like the code in which threads meet.
#include <algorithm>
#include <bit>
#include <cstring>

#include "core/check.h"
#include "cuda/device_shim.h"
#include "cuda/ptx_arithmetic.h"

namespace shiftron::machine::ptx {
namespace {

constexpr Place kNowhere{};  // meetings are told apart by their names

// A call of a function: the kernel itself, or one that it calls.
class Frame {
 public:
  Frame(const Function& function, int64_t shared) : function_(function), launch_bytes_(shared) {
    slots_.resize(static_cast<size_t>(function.slots));
    local_.resize(function.local_bytes / 8 + 2);
    parameters_.resize(function.parameter_bytes / 8 + 2);
  }

  std::byte* parameter(const Symbol& symbol) {
    return reinterpret_cast<std::byte*>(parameters_.data()) + symbol.offset;
  }

  void run() {
    size_t at = 0;
    for (int64_t steps = 0;; ++steps) {
      CHECK(at < function_.code.size(), function_.name, ": runs beyond its end");
      CHECK(steps < kMostSteps, function_.name, ": has no end");
      const Instruction& in = function_.code[at++];
      if (in.guard.what != Operand::What::none && !is_true(in.guard)) continue;
      if (in.op == Op::branch) {
        at = static_cast<size_t>(in.target);
        continue;
      }
      if (in.op == Op::leave) return;
      execute(in);
    }
  }

 private:
  static constexpr int64_t kMostSteps = 1'000'000'000;

  uint64_t value(const Operand& operand) const {
    switch (operand.what) {
      case Operand::What::slot: return slots_[static_cast<size_t>(operand.slot)];
      case Operand::What::number: return static_cast<uint64_t>(operand.number);
      case Operand::What::symbol: return address_of(*operand.symbol);
      case Operand::What::special: return special(operand.special);
      default: throw_crash(function_.name, ": an operand without value");
    }
  }
  bool is_true(const Operand& operand) const { return ((value(operand) & 1) != 0) != operand.negated; }

  static uint64_t special(Special which) {
    switch (which) {
      case Special::tid_x: return threadIdx.x;
      case Special::tid_y: return threadIdx.y;
      case Special::tid_z: return threadIdx.z;
      case Special::ntid_x: return blockDim.x;
      case Special::ntid_y: return blockDim.y;
      case Special::ntid_z: return blockDim.z;
      case Special::ctaid_x: return blockIdx.x;
      case Special::ctaid_y: return blockIdx.y;
      case Special::ctaid_z: return blockIdx.z;
      case Special::nctaid_x: return gridDim.x;
      case Special::nctaid_y: return gridDim.y;
      case Special::nctaid_z: return gridDim.z;
      case Special::laneid: return static_cast<uint64_t>(lane());
    }
    return 0;
  }

  uint64_t address_of(const Symbol& symbol) const {
    switch (symbol.space) {
      case Space::shared: return symbol.offset;
      case Space::local: return reinterpret_cast<uint64_t>(local_.data()) + symbol.offset;
      case Space::parameter: return reinterpret_cast<uint64_t>(parameters_.data()) + symbol.offset;
      default: return reinterpret_cast<uint64_t>(symbol.data.data());
    }
  }

  // Where the bytes lie on the host.
  std::byte* memory(const Instruction& in, size_t bytes) {
    const Operand& operand = in.operands[0];
    const uint64_t address = value(operand) + (operand.what == Operand::What::number ? 0 : static_cast<uint64_t>(operand.number));
    if (address % bytes != 0) throw_crash(in.text, ": address ", address, " is no multiple of ", bytes);
    if (in.space != Space::shared) return reinterpret_cast<std::byte*>(address);
    const uint64_t number = (address & mask_of(4)) >> 20, offset = address & ((1u << 20) - 1);
    const SharedRoom& room = room_of(number);
    if (offset + bytes > room.bytes) {
      throw_crash(in.text, ": byte ", offset, " of shared memory of ", room.bytes, " bytes");
    }
    return room.data + offset;
  }

  struct SharedRoom {
    uint64_t number = 0;
    std::byte* data = nullptr;
    size_t bytes = 0;
  };
  const SharedRoom& room_of(uint64_t number) {
    for (const SharedRoom& room : rooms_) {
      if (room.number == number) return room;
    }
    const auto named = std::ranges::find(function_.shared, number << 20, &Symbol::offset);
    if (named == function_.shared.end()) throw_crash(function_.name, ": no shared memory has address ", number << 20);
    const Symbol& symbol = **named;
    const bool of_launch = symbol.bytes == 0;
    void* const data = of_launch ? shared_bytes(symbol.name.c_str(), kNowhere)
                                 : shared_array(symbol.name.c_str(), &symbol, symbol.bytes, kNowhere);
    const size_t bytes = of_launch ? static_cast<size_t>(launch_bytes_) : symbol.bytes;
    return rooms_.emplace_back(number, static_cast<std::byte*>(data), bytes);
  }

  void set(const Operand& result, uint64_t bits) {
    if (result.what == Operand::What::slot) slots_[static_cast<size_t>(result.slot)] = bits;
  }

  void execute(const Instruction& in) {
    switch (in.op) {
      case Op::load: return load(in);
      case Op::store: return store(in);
      case Op::pack: return pack(in);
      case Op::call: return call(in);
      case Op::barrier: return meet_block(kNowhere);
      case Op::warp_barrier: return meet_lanes(0xFFFFFFFFu, kNowhere);
      case Op::earlier_kernels: return;  // grids come one after another here
      case Op::shuffle: return shuffle(in);
      case Op::vote: return vote(in);
      case Op::compare: return compare(in);
      case Op::select: return select(in);
      case Op::convert: return set(in.results[0], converted(in, value(in.operands[0])));
      default: return set(in.results[0], calculate(in));
    }
  }

  void select(const Instruction& in) {
    const Operand& chosen = in.operands[is_true(in.operands[2]) ? 0 : 1];
    set(in.results[0], value(chosen) & mask_of(in.type.bytes));
  }
  void load(const Instruction& in) {
    const size_t bytes = in.type.bytes;
    const std::byte* from = memory(in, bytes * in.results.size());
    for (const Operand& result : in.results) {
      uint64_t bits = 0;
      std::memcpy(&bits, from, bytes);
      set(result, is_signed(in.type) ? static_cast<uint64_t>(signed_of(bits, in.type.bytes)) : bits);
      from += bytes;
    }
  }
  void store(const Instruction& in) {
    const size_t bytes = in.type.bytes;
    std::byte* to = memory(in, bytes * (in.operands.size() - 1));
    for (size_t i = 1; i < in.operands.size(); ++i, to += bytes) {
      const uint64_t bits = value(in.operands[i]);
      std::memcpy(to, &bits, bytes);
    }
  }
  void pack(const Instruction& in) {
    const int half = in.type.bytes / 2;
    if (in.results.size() == 2) {
      const uint64_t whole = value(in.operands[0]);
      set(in.results[0], whole & mask_of(half));
      set(in.results[1], whole >> (8 * half) & mask_of(half));
      return;
    }
    set(in.results[0], (value(in.operands[0]) & mask_of(half)) | (value(in.operands[1]) & mask_of(half)) << (8 * half));
  }

  void call(const Instruction& in) {
    const Function& callee = *in.callee;
    Frame frame(callee, launch_bytes_);
    CHECK(in.operands.size() == callee.parameters.size(), in.text, ": ", callee.parameters.size(), " parameters");
    for (size_t i = 0; i < in.operands.size(); ++i) {
      std::memcpy(frame.parameter(*callee.parameters[i]), parameter(*in.operands[i].symbol), callee.parameters[i]->bytes);
    }
    frame.run();
    std::memcpy(parameter(*in.results[0].symbol), frame.parameter(*callee.returned), callee.returned->bytes);
  }

  // 9.7.9.6
  void shuffle(const Instruction& in) {
    const auto bits = static_cast<uint32_t>(value(in.operands[0]));
    const int by = static_cast<int>(value(in.operands[1]) & 31), clamp = static_cast<int>(value(in.operands[2]) & 31),
              segment = static_cast<int>(value(in.operands[2]) >> 8 & 31);
    const auto lanes = static_cast<unsigned>(value(in.operands[3]));
    const int self = lane(), most = (self & segment) | (clamp & ~segment), least = self & segment;
    int source = 0;
    switch (in.shuffle) {
      case ShuffleMode::up: source = self - by; break;
      case ShuffleMode::down: source = self + by; break;
      case ShuffleMode::butterfly: source = self ^ by; break;
      case ShuffleMode::index: source = least | (by & ~segment); break;
    }
    const bool inside = in.shuffle == ShuffleMode::up ? source >= most : source <= most;
    const uint64_t result = machine::shuffle(in.text.c_str(), lanes, bits, inside ? source : self, kNowhere);
    set(in.results[0], result & mask_of(4));
    if (in.results.size() > 1) set(in.results[1], inside ? 1 : 0);
  }

  // 9.7.13.10
  void vote(const Instruction& in) {
    const auto lanes = static_cast<unsigned>(value(in.operands[1]));
    const unsigned those = machine::vote(in.text.c_str(), lanes, is_true(in.operands[0]), kNowhere);
    set(in.results[0], in.vote == VoteMode::ballot ? those
                       : in.vote == VoteMode::any  ? static_cast<uint64_t>(those != 0)
                                                   : static_cast<uint64_t>(those == lanes));
  }

  void compare(const Instruction& in) {
    const uint64_t a = value(in.operands[0]), b = value(in.operands[1]);
    const bool result = holds(in, a, b);
    set(in.results[0], result ? 1 : 0);
    if (in.results.size() > 1) set(in.results[1], result ? 0 : 1);
  }

  uint64_t calculate(const Instruction& in) {
    if (in.type.kind == Kind::predicate) return logic(in);
    const uint64_t a = value(in.operands[0]), b = in.operands.size() > 1 ? value(in.operands[1]) : 0,
                   c = in.operands.size() > 2 ? value(in.operands[2]) : 0;
    if (in.op == Op::move || in.op == Op::to_generic) {
      return a & mask_of(in.type.bytes);
    }
    if (is_floating(in.type)) return floating(in, a, b, c);
    return integers(in, a, b, c) & mask_of(in.op == Op::multiply_wide ? 2 * in.type.bytes : in.type.bytes);
  }

  uint64_t logic(const Instruction& in) const {
    const bool a = is_true(in.operands[0]), b = in.operands.size() > 1 && is_true(in.operands[1]);
    switch (in.op) {
      case Op::move: return a ? 1 : 0;
      case Op::complement: return a ? 0 : 1;
      case Op::conjunction: return a && b ? 1 : 0;
      case Op::disjunction: return a || b ? 1 : 0;
      case Op::exclusion: return a != b ? 1 : 0;
      default: throw_crash("of predicates: ", in.text);
    }
  }

  uint64_t with_carry(const Instruction& in, uint64_t a, uint64_t b) {
    const uint64_t mask = mask_of(in.type.bytes);
    const __int128 sum = static_cast<__int128>(a & mask) + static_cast<__int128>(b & mask) + (in.carry_in && carry_ ? 1 : 0);
    if (in.carry_out) carry_ = sum > static_cast<__int128>(mask);
    return static_cast<uint64_t>(sum);
  }

  uint64_t integers(const Instruction& in, uint64_t a, uint64_t b, uint64_t c) {
    const int bytes = in.type.bytes, bits = 8 * bytes;
    const uint64_t mask = mask_of(bytes);
    const __int128 x = wide_of(a, in.type), y = wide_of(b, in.type);
    switch (in.op) {
      case Op::add: return with_carry(in, a, b);
      case Op::subtract: {
        const __int128 left = static_cast<__int128>(a & mask) - static_cast<__int128>(b & mask) - (in.carry_in && carry_ ? 1 : 0);
        if (in.carry_out) carry_ = left < 0;
        return static_cast<uint64_t>(left);
      }
      case Op::multiply:
      case Op::multiply_wide: return static_cast<uint64_t>(x * y);
      case Op::multiply_high: return static_cast<uint64_t>((x * y) >> bits);
      case Op::multiply_add: return with_carry(in, static_cast<uint64_t>(x * y), c);
      case Op::multiply_high_add: return with_carry(in, static_cast<uint64_t>((x * y) >> bits), c);
      case Op::divide: return y == 0 ? ~uint64_t{0} : static_cast<uint64_t>(x / y);
      case Op::remainder: return y == 0 ? ~uint64_t{0} : static_cast<uint64_t>(x % y);
      case Op::minimum: return static_cast<uint64_t>(x < y ? x : y);
      case Op::maximum: return static_cast<uint64_t>(x > y ? x : y);
      case Op::absolute: return static_cast<uint64_t>(x < 0 ? -x : x);
      case Op::negate: return static_cast<uint64_t>(-x);
      case Op::conjunction: return a & b;
      case Op::disjunction: return a | b;
      case Op::exclusion: return a ^ b;
      case Op::complement: return ~a;
      case Op::shift_left: return (b & mask_of(4)) >= static_cast<uint64_t>(bits) ? 0 : a << (b & 63);
      case Op::shift_right: {
        const auto by = static_cast<int>(std::min<uint64_t>(b & mask_of(4), static_cast<uint64_t>(bits)));
        return static_cast<uint64_t>(x >> by);
      }
      case Op::funnel_shift: return static_cast<uint64_t>(((b << 32 | (a & mask_of(4))) << (c & 31)) >> 32);
      case Op::permute: return permuted(a, b, c);
      case Op::reverse_bits: {
        uint64_t turned = 0;
        for (int i = 0; i < bits; ++i) turned |= (a >> i & 1) << (bits - 1 - i);
        return turned;
      }
      case Op::leading_zeros: return static_cast<uint64_t>(std::countl_zero(a & mask) - (64 - bits));
      case Op::bits_set: return static_cast<uint64_t>(std::popcount(a & mask));
      case Op::highest_bit: {
        CHECK(!is_signed(in.type), "bfind of a signed number");
        if ((a & mask) == 0) return ~uint64_t{0};
        const int place = std::bit_width(a & mask) - 1;
        return static_cast<uint64_t>(in.as_shift ? bits - 1 - place : place);
      }
      default: throw_crash("no arithmetic: ", in.text);
    }
  }

  const Function& function_;
  const int64_t launch_bytes_;
  std::vector<uint64_t> slots_, local_, parameters_;
  std::vector<SharedRoom> rooms_;
  bool carry_ = false;
};

}  // namespace

void execute(const Function& kernel, const std::vector<std::vector<std::byte>>& parameters, int64_t shared) {
  Frame frame(kernel, shared);
  CHECK(parameters.size() == kernel.parameters.size(), kernel.name, ": ", kernel.parameters.size(), " parameters, ",
        parameters.size(), " are given");
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Symbol& symbol = *kernel.parameters[i];
    CHECK(symbol.bytes == parameters[i].size(), kernel.name, ": parameter ", i, " has ", symbol.bytes, " bytes, ",
          parameters[i].size(), " are given");
    std::memcpy(frame.parameter(symbol), parameters[i].data(), symbol.bytes);
  }
  frame.run();
}

}  // namespace shiftron::machine::ptx

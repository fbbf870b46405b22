// Emulates the matrix unit's instructions on processors without one: each is an illegal instruction there, and a signal
// handler executes it with the unit's plain loops. This tests the instructions themselves, as the assembler wrote them.
// Intel's manual, volume 2: encodings of LDTILECFG, TILEZERO, TILELOADD, TILELOADDT1, TILESTORED, TDPBF16PS,
// TILERELEASE.
#pragma once

#include <signal.h>
#include <ucontext.h>

#include <array>
#include <cstring>
#include <utility>

#include "core/check.h"
#include "kernels/matrix_unit.h"

namespace shiftron::kernel_testing {

#if defined(__x86_64__)
namespace emulation {

using fast::MatrixUnitLoops;
using fast::TileConfiguration;

inline struct sigaction action_before;

// The registers of a context in the order of their numbers in an instruction.
inline constexpr std::array kRegisters = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                          REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

// An instruction with a three-byte VEX prefix.
class Instruction {
 public:
  Instruction(const uint8_t* at, const greg_t* registers) : at_(at), registers_(registers) {}

  bool is_vex() const { return at_[0] == 0xc4 && (at_[1] & 0x1f) == 2 && (at_[2] & 0x84) == 0; }  // 0F38, W0, 128 bits
  int prefix() const { return at_[2] & 3; }                                                       // 1: 66, 2: F3, 3: F2
  int opcode() const { return at_[3]; }
  int mode() const { return at_[4] >> 6; }
  int reg() const { return at_[4] >> 3 & 7; }
  int rm() const { return at_[4] & 7; }
  int vvvv() const { return (at_[2] >> 3 & 15) ^ 15; }
  bool names_registers() const { return mode() == 3; }

  struct Operand {
    char* address;
    int64_t index;   // of a register, 0 without one
    int64_t length;  // of the whole instruction
  };
  Operand memory() const {
    const bool has_index = rm() == 4;
    const uint8_t* behind = at_ + 5 + (has_index ? 1 : 0);
    int base = has_index ? at_[5] & 7 : rm();
    int64_t index = 0;
    if (has_index) {
      const int number = (at_[5] >> 3 & 7) | (at_[1] & 0x40 ? 0 : 8);
      if (number != 4) index = register_of(number) << (at_[5] >> 6);
    }
    int64_t displacement = 0;
    if (mode() == 1) {
      displacement = static_cast<int8_t>(*behind);
      behind += 1;
    } else if (mode() == 2 || (mode() == 0 && base == 5)) {
      int32_t wide;
      std::memcpy(&wide, behind, sizeof wide);
      displacement = wide;
      behind += 4;
    }
    int64_t start = register_of(base | (at_[1] & 0x20 ? 0 : 8));
    if (mode() == 0 && base == 5) start = has_index ? 0 : reinterpret_cast<int64_t>(behind);
    return {reinterpret_cast<char*>(start + displacement + index), index, behind - at_};
  }

 private:
  int64_t register_of(int number) const { return registers_[kRegisters[static_cast<size_t>(number)]]; }
  const uint8_t* at_;
  const greg_t* registers_;
};

inline constexpr int kNone = 0, kF3 = 2;

// Calls body.template operator()<tile>() of a tile by number.
template <typename Body>
void with_tile(int tile, const Body& body) {
  [&]<int... tiles>(std::integer_sequence<int, tiles...>) {
    ((tile == tiles ? body.template operator()<tiles>() : void()), ...);
  }
  (std::make_integer_sequence<int, 8>());
}

// Bytes that were executed; 0: nothing of the unit's.
inline int64_t execute(const Instruction& that) {
  if (!that.is_vex()) return 0;
  static MatrixUnitLoops unit;
  constexpr int64_t kLengthOfRegisters = 5;
  if (that.opcode() == 0x49 && that.names_registers()) {
    if (that.prefix() != kNone) {
      with_tile(that.reg(), [&]<int tile> { unit.zero<tile>(); });
    } else {
      unit.release();
    }
    return kLengthOfRegisters;
  }
  if (that.opcode() == 0x5c && that.prefix() == kF3) {
    with_tile(that.reg(), [&]<int sum> {
      with_tile(that.rm(),
                [&]<int left> { with_tile(that.vvvv(), [&]<int right> { unit.multiply<sum, left, right>(); }); });
    });
    return kLengthOfRegisters;
  }
  const Instruction::Operand memory = that.memory();
  if (that.opcode() == 0x49 && that.prefix() == kNone) {
    TileConfiguration configuration;
    std::memcpy(&configuration, memory.address, sizeof configuration);
    unit.configure(configuration);
    return memory.length;
  }
  if (that.opcode() != 0x4b) return 0;
  char* const start = memory.address - memory.index;
  with_tile(that.reg(), [&]<int tile> {
    that.prefix() == kF3 ? unit.store<tile>(start, memory.index) : unit.load<tile>(start, memory.index);
  });
  return memory.length;
}

inline void handle(int, siginfo_t*, void* context) {
  greg_t* const registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const int64_t length = execute({reinterpret_cast<const uint8_t*>(registers[REG_RIP]), registers});
  registers[REG_RIP] += length;
  if (length == 0) sigaction(SIGILL, &action_before, nullptr);  // and meets it again
}

}  // namespace emulation
#endif

// While it stands; one at a time. Does nothing where the processor has the unit.
class EmulatedMatrixUnit {
 public:
#if defined(__x86_64__)
  EmulatedMatrixUnit() {
    if (fast::matrix_unit_available()) return;
    struct sigaction action = {};
    action.sa_sigaction = emulation::handle;
    action.sa_flags = SA_SIGINFO;
    CHECK(sigaction(SIGILL, &action, &emulation::action_before) == 0, "no handler of illegal instructions");
  }
  ~EmulatedMatrixUnit() {
    if (!fast::matrix_unit_available()) sigaction(SIGILL, &emulation::action_before, nullptr);
  }
#else
  EmulatedMatrixUnit() = default;
#endif
  EmulatedMatrixUnit(const EmulatedMatrixUnit&) = delete;
  EmulatedMatrixUnit& operator=(const EmulatedMatrixUnit&) = delete;
};

}  // namespace shiftron::kernel_testing

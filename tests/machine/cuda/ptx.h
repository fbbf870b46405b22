// Executes PTX, which nvcc compiles a kernel to and the driver turns into machine code (NVIDIA, "PTX ISA" 9.0; code
// that follows a section names its number). Only the instructions that our kernels contain; reading any other is a
// fault, so that none is ignored.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace shiftron::machine::ptx {

enum class Kind : uint8_t { bits, unsigned_integer, signed_integer, floating, bfloat16, predicate };
struct Type {
  Kind kind = Kind::bits;
  uint8_t bytes = 4;
  bool operator==(const Type&) const = default;
};

enum class Space : uint8_t { generic, global, shared, local, parameter };

struct Symbol {
  std::string name;
  Space space = Space::generic;
  size_t bytes = 0;           // 0: of shared memory, what the launch asks for
  size_t offset = 0;          // in the memory of its space in one call of a function
  std::vector<uint8_t> data;  // of global memory
};

// Of the thread.
enum class Special : uint8_t { tid_x, tid_y, tid_z, ntid_x, ntid_y, ntid_z, ctaid_x, ctaid_y, ctaid_z, nctaid_x, nctaid_y,
                               nctaid_z, laneid };

struct Operand {
  enum class What : uint8_t { none, slot, number, symbol, special, sink } what = What::none;
  bool negated = false;            // of a predicate
  int slot = -1;                   // of the registers of a function
  const Symbol* symbol = nullptr;  // its address
  Special special = Special::tid_x;
  int64_t number = 0;  // the bits of an immediate value; or what is added to the address
};

enum class Op : uint8_t {
  move, pack, load, store, to_generic, add, subtract, multiply, multiply_high, multiply_wide, multiply_add,
  multiply_high_add, divide, remainder, minimum, maximum, absolute, negate, conjunction, disjunction, exclusion,
  complement, shift_left, shift_right, funnel_shift, permute, reverse_bits, leading_zeros, highest_bit, bits_set, fused,
  exponential, reciprocal, square_root, compare, select, convert, branch, leave, call, barrier, warp_barrier, earlier_kernels, shuffle,
  vote
};

enum class Comparison : uint8_t { eq, ne, lt, le, gt, ge, equ, neu, ltu, leu, gtu, geu, num, nan };
enum class Rounding : uint8_t { none, nearest, zero, down, up, nearest_integer, zero_integer, down_integer, up_integer };
enum class ShuffleMode : uint8_t { up, down, butterfly, index };
enum class VoteMode : uint8_t { all, any, ballot };

struct Function;

struct Instruction {
  Op op = Op::move;
  Type type, from;  // of the result; of what is converted
  Space space = Space::generic;
  Rounding rounding = Rounding::none;
  Comparison comparison = Comparison::eq;
  ShuffleMode shuffle = ShuffleMode::index;
  VoteMode vote = VoteMode::ballot;
  bool flush = false, saturate = false, approximate = false, carry_in = false, carry_out = false, as_shift = false;
  Operand guard;                           // a predicate, or none
  std::vector<Operand> results, operands;  // of a load or store the address is operands[0]
  int target = -1;                         // instruction
  const Function* callee = nullptr;
  std::string text;  // as it stands there, with its number: equal to no other
};

struct Function {
  std::string name;  // mangled
  bool entry = false;
  std::vector<const Symbol*> parameters;
  const Symbol* returned = nullptr;
  std::vector<const Symbol*> shared;  // the memory of a block that it names
  std::vector<Instruction> code;
  int slots = 0;
  size_t local_bytes = 0, parameter_bytes = 0;  // of a call
  std::map<std::string, std::unique_ptr<Symbol>> symbols;
};

struct Module {
  std::map<std::string, std::unique_ptr<Function>> functions;
  std::map<std::string, std::unique_ptr<Symbol>> symbols;
};

// Throws Error(crash) with the line for whatever it does not know.
Module read(const std::string& text, const std::string& name);

// For one thread, using the emulator's (device_shim.h): blockIdx and its like are taken from there, barriers, shuffles
// and votes meet there, and addresses are the host's. `parameters`: the bytes of each; `shared`: of the launch.
void execute(const Function& kernel, const std::vector<std::vector<std::byte>>& parameters, int64_t shared);

}  // namespace shiftron::machine::ptx

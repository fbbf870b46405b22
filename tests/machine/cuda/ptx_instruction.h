// One instruction of PTX's text.
#pragma once

#include <functional>
#include <string>

#include "cuda/ptx.h"

namespace shiftron::machine::ptx {

struct ReadInstruction {
  Instruction made;           // without its target and its callee
  std::string label, callee;  // their names
};

// `operand`: of a word that names a register, a number or a symbol. Throws Error(crash) for whatever it does not know.
ReadInstruction instruction_of(const std::string& statement, const std::function<Operand(const std::string&)>& operand);

}  // namespace shiftron::machine::ptx

// Large products of bfloat16 by own vectors of float32 (widened_product_cpu.cpp), for processors that multiply no
// bfloat16.
#pragma once

#include "kernels/matrix.h"

namespace shiftron::fast {

// c (+)= a · b of bfloat16 matrices, k > 0, rounded once, to c's type. Operands are widened where they are laid out. An
// element's terms are added one after the other along k to what stands in c first: its bits depend on neither the
// threads nor m nor n. The calling thread keeps some MiB for its next call.
void multiply_widened(const MatrixProduct& product);

}  // namespace shiftron::fast

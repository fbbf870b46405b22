// Large bfloat16 products by our own vectors of float32 (widened_product_cpu.cpp), for processors without bfloat16
// products.
#pragma once

#include "kernels/matrix.h"

namespace shiftron::fast {

// c (+)= a · b of bfloat16 matrices, k > 0, rounded once, to c's type. Operands are widened when they are packed. The
// terms of an element are added one after another along k, starting from the value in c if it is kept: its bits depend
// neither on the thread count nor on m or n. The calling thread keeps a few MiB for its next call.
void multiply_widened(const MatrixProduct& product);

}  // namespace shiftron::fast

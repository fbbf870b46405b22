// How tests control and query the emulated cuBLASLt (blas.cpp), which is linked instead of the library.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <string>

namespace shiftron::machine {

// Sums are cut, and algorithms offered in an order, by this number and the product; of one number and algorithm they
// repeat to the bit, as the library promises. At first SHIFTRON_MACHINE_SEED of the environment, else 0.
void seed_products(uint64_t seed);

// The calling thread's next call of this function of the library does nothing and returns `status`.
void refuse_next_product(const std::string& function, cublasStatus_t status);

// How often algorithms were asked for, and one was checked, in the whole process.
int64_t heuristics_asked();
int64_t algorithms_checked();

// Handles, descriptions, layouts and preferences that nobody destroyed yet, in the whole process.
int64_t living_product_objects();

}  // namespace shiftron::machine

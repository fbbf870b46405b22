// Calls of the loss, the update and the small kernels, and the table of all calls.
#pragma once

#include "kernels/kernel_cases.h"

namespace shiftron::kernel_testing {

void add_cross_entropy_cases(std::vector<KernelCase>& cases, int64_t rows, int64_t vocab, int64_t begin);
void add_combine_case(std::vector<KernelCase>& cases, int64_t shards, int64_t rows);
void add_add_losses_case(std::vector<KernelCase>& cases, int64_t rows);
// Values that bfloat16 does not hold exactly, so that masters in two halves have a rest.
std::vector<double> wide_values(const std::string& name, int64_t count);
// `halves`: float32 masters are split before the call and joined after it; another ledger counts that.
void add_adamw_case(std::vector<KernelCase>& cases, int64_t count, bool halves, bool skip,
                    bool to_unit_interval = false);
// Parameters of these counts, one after another in memory. Every second one has its master in two halves, every third
// one is projected to [0, 1]. One call for all of them, or one call for each.
void add_adamw_list_case(std::vector<KernelCase>& cases, const std::vector<int64_t>& counts, bool one_by_one = false);
// Tensors of these counts, one after another in memory; `of_a_sum` of them are added to each sum.
void add_squares_list_case(std::vector<KernelCase>& cases, const std::vector<int64_t>& counts, int64_t of_a_sum,
                           bool one_by_one = false);
void add_list_cases(std::vector<KernelCase>& cases);
void add_split_master_cases(std::vector<KernelCase>& cases, int64_t count);
void add_small_cases(std::vector<KernelCase>& cases);

const std::vector<KernelCase>& all_cases();

}  // namespace shiftron::kernel_testing

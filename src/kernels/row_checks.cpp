// Checks of what the bodies rely on without checking; the host calls them when it creates the values.
#include "kernels/kernels.h"

namespace shiftron {

void check_row_starts(const int32_t* start, int64_t rows, AttentionShape shape) {
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t sample_begin = row - row % shape.sequence_length;
    const int64_t lowest = row == sample_begin ? sample_begin : start[row - 1];
    CHECK(start[row] >= lowest && start[row] <= row + shape.key_offset, "start ", start[row], " of row ", row,
          " is outside ", lowest, "..", row + shape.key_offset);
  }
}

void check_row_positions(const int32_t* positions, int64_t rows, int64_t table) {
  for (int64_t row = 0; row < rows; ++row) {
    CHECK(positions[row] >= 0 && positions[row] < table, "position ", positions[row], " of row ", row,
          " is outside the table of ", table);
  }
}

}  // namespace shiftron

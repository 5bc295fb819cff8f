// Matrix products, a panel of columns at a time: kRows x kPanel sums stay in registers over the whole depth.
// The operands lie in a core's caches already; what puts them there is the convolutions' own (winograd.h,
// implicit_gemm.h).
#pragma once

#include <cstdint>

namespace hostcuda {

// A matrix whose element (row, column) lies at start[row * row_step + column * column_step].
struct Operand {
  const float* start;
  int64_t row_step, column_step;
};

// sums[row][column] = (add ? sums : 0) + the sum over i in [0, depth) of a(row, i) b[i][column], in the order
// of i. b's rows are b_step floats apart, those of sums sums_step; width is a multiple of kLanes and at most
// kPanel.
void multiply_panel(int rows, int width, int depth, const Operand& a, const float* b, int64_t b_step,
                    float* sums, int64_t sums_step, bool add);

}  // namespace hostcuda

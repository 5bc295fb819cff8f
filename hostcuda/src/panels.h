// The matrix products between Winograd's transforms: for each of the 36 points one product of a few dozen
// rows, made kRows x kPanel sums at a time, which stay in registers over the whole depth.
#pragma once

#include <cstdint>

namespace hostcuda::winograd {

// A matrix whose element (row, column) lies at start[row * row_step + column * column_step].
struct Operand {
  const float* start;
  int64_t row_step, column_step;
};

// sums[row][column] = (add ? sums : 0) + the sum over i in [0, depth) of a(row, i) b[i][column], in the order
// of i. b's rows are b_step floats apart, those of sums sums_step; width is a multiple of kLanes and at most
// kPanel.
void multiply(int rows, int width, int depth, const Operand& a, const float* b, int64_t b_step, float* sums,
              int64_t sums_step, bool add);

}  // namespace hostcuda::winograd

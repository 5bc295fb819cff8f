// Compares what backward() computes with two-sided differences. The operation runs in float32 on the device;
// the projection onto one number, its differences and the comparison are done in double on the host.
#pragma once

#include <functional>
#include <vector>

#include "core/tensor.h"

namespace lockstep::grad {

struct Check {
  // Half the distance of the two points. The operations checked here are polynomials of low degree in each
  // single input, or smooth on a scale of 1, so a large step costs little truncation error and keeps
  // float32's rounding, about 1e-7 * |y| / step, small.
  double step = 1e-2;
  // Of the largest gradient of that input: rounding (1e-5 at step 1e-2), and step^2 / 6 times a third
  // derivative.
  double tolerance = 1e-3;
  uint64_t seed = 1;
  // At most so many elements of every input are checked, spread evenly.
  int64_t elements = 200;
};

// Checks the gradient of every input of `f`, a function of tensors made from `inputs` (values and shapes).
// Fails the running test, naming input and element, where one is off. Every input must be read by `f`.
void check_gradients(const std::function<Tensor(const std::vector<Tensor>&)>& f,
                     const std::vector<std::pair<Shape, std::vector<float>>>& inputs,
                     const Check& check = {});

// Values uniform in [-1, 1] that keep `gap` away from 0, where ReLU has its kink.
std::vector<float> away_from_zero(int64_t n, float gap, uint64_t seed);

// A shuffled set of n values that differ by `gap` at least, so that no maximum is close to another.
std::vector<float> all_apart(int64_t n, float gap, uint64_t seed);

}  // namespace lockstep::grad

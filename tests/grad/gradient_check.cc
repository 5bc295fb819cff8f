#include "tests/grad/gradient_check.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "core/autograd.h"

namespace lockstep::grad {

void check_gradients(const std::function<Tensor(const std::vector<Tensor>&)>& f,
                     const std::vector<std::pair<Shape, std::vector<float>>>& inputs, const Check& check) {
  SCOPED_TRACE(fmt::format("seed {}", check.seed));
  const Device device = make_devices(1)[0];
  const auto tensors = [&](const std::vector<std::pair<Shape, std::vector<float>>>& values) {
    std::vector<Tensor> made;
    for (const auto& [shape, data] : values) {
      made.push_back(Tensor::from_host(data, shape, device));
      made.back().set_requires_grad(true);
    }
    return made;
  };

  const std::vector<Tensor> leaves = tensors(inputs);
  const Tensor output = f(leaves);
  std::mt19937_64 generator(check.seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> weights(static_cast<size_t>(output.size()));
  for (float& weight : weights) weight = uniform(generator);
  backward(output, Tensor::from_host(weights, output.shape(), device));

  const auto projected = [&](const std::vector<std::pair<Shape, std::vector<float>>>& at) {
    const NoGrad no_grad;
    const std::vector<float> y = f(tensors(at)).to_host<float>();
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += static_cast<double>(weights[i]) * static_cast<double>(y[i]);
    return sum;
  };

  for (size_t input = 0; input < inputs.size(); ++input) {
    ASSERT_TRUE(leaves[input].grad().defined()) << "input " << input << " got no gradient";
    const std::vector<float> analytic = leaves[input].grad().to_host<float>();
    double largest = 1e-3;  // gradients that are all tiny are compared with this instead of with themselves
    for (const float value : analytic) largest = std::max(largest, std::abs(static_cast<double>(value)));
    const auto size = static_cast<int64_t>(analytic.size());
    const int64_t stride = std::max<int64_t>(1, size / check.elements);
    for (int64_t element = 0; element < size; element += stride) {
      const auto i = static_cast<size_t>(element);
      auto moved = inputs;
      float& value = moved[input].second[i];
      const float centre = value;
      value = centre + static_cast<float>(check.step);
      const double high = value;
      const double above = projected(moved);
      value = centre - static_cast<float>(check.step);
      const double low = value;
      const double numeric = (above - projected(moved)) / (high - low);
      ASSERT_NEAR(analytic[i], numeric, check.tolerance * largest)
          << "input " << input << ", element " << element << " of " << size;
    }
  }
}

std::vector<float> away_from_zero(int64_t n, float gap, uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) {
    const float raw = uniform(generator);
    value = std::copysign(gap + (1 - gap) * std::abs(raw), raw);
  }
  return values;
}

std::vector<float> all_apart(int64_t n, float gap, uint64_t seed) {
  std::vector<float> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i) values[i] = gap * static_cast<float>(i);
  std::mt19937_64 generator(seed);
  std::shuffle(values.begin(), values.end(), generator);
  return values;
}

}  // namespace lockstep::grad

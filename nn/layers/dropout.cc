#include "nn/layers/dropout.h"

#include <fmt/format.h>

#include "core/autograd.h"
#include "kernels/check.h"
#include "kernels/random.h"

namespace lockstep::nn {

Tensor dropout(const Tensor& x, float probability, uint64_t seed, uint64_t step) {
  const auto masked = [=](const Tensor& values) {
    const DeviceGuard guard(values.device());
    const Tensor kept = Tensor::empty(values.shape(), values.device(), values.dtype());
    for_float_type("dropout", values.dtype(), [&]<typename T>(T) {
      kernels::dropout(values.data<T>(), kept.data<T>(), values.size(), probability, seed, step,
                       values.device().stream());
    });
    return kept;
  };
  return record("dropout", masked(x), {x},
                [masked](const Tensor& dy) { return std::vector<Tensor>{masked(dy)}; });
}

Dropout::Dropout(float probability, uint64_t seed)
    : probability_(probability), seed_(seed), step_(add_counter("step")) {
  if (!(probability >= 0 && probability < 1))
    throw Error(fmt::format("Dropout: probability {}: use at least 0 and less than 1", probability));
}

Tensor Dropout::forward(const Tensor& x) {
  if (!training()) return x;
  // Each replica has a range of its own in the sequences of one seed.
  const auto first = static_cast<uint64_t>(replica()) << 48;
  return dropout(x, probability_, seed_, first + static_cast<uint64_t>(step_++));
}

std::string Dropout::describe() const {
  return fmt::format("Dropout({})", probability_);
}

}  // namespace lockstep::nn

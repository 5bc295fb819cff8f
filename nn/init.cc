#include "nn/init.h"

#include <cmath>

#include "kernels/elementwise.h"
#include "kernels/random.h"

namespace lockstep::nn {

void initialise(const Module& module, Init init, uint64_t seed) {
  uint64_t sequence = 0;
  for (const Parameter& parameter : module.named_parameters()) {
    const Tensor& value = parameter.value;
    const DeviceGuard guard(value.device());
    const cudaStream_t stream = value.device().stream();
    const float fan_in = static_cast<float>(parameter.init.fan_in);
    const float fan_out = static_cast<float>(parameter.init.fan_out);
    ++sequence;
    if (parameter.init.fan_in == 0) {
      kernels::fill(value.data<float>(), parameter.init.constant, value.size(), stream);
    } else if (init == Init::xavier) {
      const float bound = std::sqrt(6.0f / (fan_in + fan_out));
      kernels::random_uniform(value.data<float>(), value.size(), -bound, bound, seed, sequence, stream);
    } else {
      const float stddev = init == Init::normal ? 0.01f : std::sqrt(2.0f / fan_in);
      kernels::random_normal(value.data<float>(), value.size(), 0.0f, stddev, seed, sequence, stream);
    }
    value.mark_overwritten();
  }
  for (const Buffer& buffer : module.named_buffers()) {
    const Device device = buffer.value.device();
    const DeviceGuard guard(device);
    kernels::fill(buffer.value.data<float>(), buffer.start, buffer.value.size(), device.stream());
    buffer.value.mark_overwritten();
  }
}

}  // namespace lockstep::nn

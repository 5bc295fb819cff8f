// Random fills and dropout: one Philox block gives elements 4 g to 4 g + 3, so element i depends on (seed,
// sequence, i) alone.
#include "kernels/random.h"

#include <cmath>

#include "kernels/float_types.h"
#include "kernels/launch.cuh"
#include "kernels/philox.cuh"

namespace lockstep::kernels {

void random_uniform(float* x, int64_t n, float low, float high, uint64_t seed, uint64_t sequence,
                    cudaStream_t stream) {
  const float range = high - low;
  const float below_high = low < high ? std::nextafterf(high, low) : low;
  launch_elements(stream, (n + 3) / 4, [=] __device__(int64_t group) {
    const PhiloxBlock random = philox(seed, sequence, static_cast<uint64_t>(group));
    for (int k = 0; k < 4; ++k) {
      const int64_t i = group * 4 + k;
      const float unit = static_cast<float>(random.word[k] >> 8) * 0x1p-24f;  // [0, 1)
      const float value = fmaf(range, unit, low);  // one rounding, whatever a compiler would contract
      if (i < n) x[i] = value < below_high ? value : below_high;  // the sum may round up to high
    }
  });
}

void random_normal(float* x, int64_t n, float mean, float stddev, uint64_t seed, uint64_t sequence,
                   cudaStream_t stream) {
  launch_elements(stream, (n + 3) / 4, [=] __device__(int64_t group) {
    const PhiloxBlock random = philox(seed, sequence, static_cast<uint64_t>(group));
    for (int pair = 0; pair < 2; ++pair) {
      const float radius_unit = static_cast<float>((random.word[2 * pair] >> 8) + 1) * 0x1p-24f;  // (0, 1]
      const float angle_unit = static_cast<float>(random.word[2 * pair + 1] >> 8) * 0x1p-24f;     // [0, 1)
      const float radius = stddev * sqrtf(-2.0f * logf(radius_unit));
      const float angle = 6.28318531f * angle_unit;
      const int64_t i = group * 4 + 2 * pair;
      if (i < n) x[i] = mean + radius * cosf(angle);
      if (i + 1 < n) x[i + 1] = mean + radius * sinf(angle);
    }
  });
}

template <typename T>
void dropout(const T* x, T* y, int64_t n, float probability, uint64_t seed, uint64_t sequence,
             cudaStream_t stream) {
  const float scale = 1.0f / (1.0f - probability);
  const auto dropped_below = static_cast<uint32_t>(static_cast<double>(probability) * 0x1p32);
  launch_elements(stream, (n + 3) / 4, [=] __device__(int64_t group) {
    const PhiloxBlock random = philox(seed, sequence, static_cast<uint64_t>(group));
    for (int k = 0; k < 4; ++k) {
      const int64_t i = group * 4 + k;
      if (i < n) y[i] = from_float<T>(random.word[k] < dropped_below ? 0.0f : to_float(x[i]) * scale);
    }
  });
}

template void dropout(const float*, float*, int64_t, float, uint64_t, uint64_t, cudaStream_t);
template void dropout(const __nv_bfloat16*, __nv_bfloat16*, int64_t, float, uint64_t, uint64_t, cudaStream_t);

}  // namespace lockstep::kernels

// A batch by index: a block copies rows, turning bytes into normalised floats on the way.
#include "kernels/gather.h"

#include "kernels/launch.cuh"

namespace lockstep::kernels {

template <int kThreads>
__global__ void gather_batch_kernel(const uint8_t* __restrict__ images, const uint8_t* __restrict__ labels,
                                    const int32_t* __restrict__ order, int64_t rows, int pixels, float factor,
                                    float offset, float* __restrict__ x, int32_t* __restrict__ y) {
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const int64_t picked = order[row];
    const uint8_t* source = images + picked * pixels;
    float* target = x + row * pixels;
    for (int64_t p : block_stride<kThreads>(pixels)) target[p] = source[p] * factor + offset;
    if (is_block_leader<kThreads>()) y[row] = labels[picked];
  }
}

void gather_batch(const uint8_t* images, const uint8_t* labels, const int32_t* order, int64_t rows,
                  int pixels, float mean, float stddev, float* x, int32_t* y, cudaStream_t stream) {
  if (rows == 0) return;
  // (v / 255 - mean) / stddev as one multiply-add.
  const float factor = static_cast<float>(1.0 / (255.0 * stddev));
  const float offset = static_cast<float>(-static_cast<double>(mean) / stddev);
  launch_blocks<256>(LOCKSTEP_BLOCK_KERNEL(gather_batch_kernel), blocks_for(rows), stream, images, labels,
                     order, rows, pixels, factor, offset, x, y);
}

}  // namespace lockstep::kernels

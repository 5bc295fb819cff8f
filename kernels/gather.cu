// A batch by index: a block copies rows, turning bytes into normalised floats on the way.
#include "kernels/gather.h"

#include "kernels/launch.cuh"

namespace lockstep::kernels {

template <int kThreads>
__global__ void gather_batch_kernel(const uint8_t* __restrict__ images, const uint8_t* __restrict__ labels,
                                    const int32_t* __restrict__ order, int64_t rows, int pixels,
                                    ByteNormalisation normalise, float* __restrict__ x,
                                    int32_t* __restrict__ y) {
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const int64_t picked = order[row];
    const uint8_t* source = images + picked * pixels;
    float* target = x + row * pixels;
    for (int64_t p : block_stride<kThreads>(pixels)) target[p] = normalise(source[p]);
    if (is_block_leader<kThreads>()) y[row] = labels[picked];
  }
}

void gather_batch(const uint8_t* images, const uint8_t* labels, const int32_t* order, int64_t rows,
                  int pixels, float mean, float stddev, float* x, int32_t* y, cudaStream_t stream) {
  if (rows == 0) return;
  launch_blocks<256>(LOCKSTEP_BLOCK_KERNEL(gather_batch_kernel), blocks_for(rows), stream, images, labels,
                     order, rows, pixels, ByteNormalisation(mean, stddev), x, y);
}

}  // namespace lockstep::kernels

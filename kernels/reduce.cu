// A sum over all elements, by one block: partial sums a thread, then a tree over the block.
#include "kernels/reduce.h"

#include "kernels/launch.cuh"

namespace lockstep::kernels {

template <int kThreads>
__global__ void reduce_sum_kernel(const float* __restrict__ x, int64_t n, float factor,
                                  float* __restrict__ sum) {
  const float total = block_sum<kThreads, 64>(n, [x](int64_t i) { return x[i]; });
  if (is_block_leader<kThreads>()) *sum = total * factor;
}

void reduce_sum(const float* x, int64_t n, float factor, float* sum, cudaStream_t stream) {
  launch_blocks<1024>(LOCKSTEP_BLOCK_KERNEL(reduce_sum_kernel), dim3(1), stream, x, n, factor, sum);
}

}  // namespace lockstep::kernels

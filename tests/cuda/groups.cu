// Cooperative groups: blocks, tiles, lanes that are together, partitions, reductions, scans, and a grid's
// barrier.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cuda_runtime.h>

#include "check.h"

namespace cg = cooperative_groups;

__global__ void tiles(int* ranks, int* sums, int* downs, unsigned* votes) {
  const cg::thread_block block = cg::this_thread_block();
  const auto tile = cg::tiled_partition<8>(block);
  const int i = block.thread_rank();
  ranks[i] = tile.meta_group_rank() * 100 + tile.thread_rank();
  sums[i] = cg::reduce(tile, i, cg::plus<int>());
  downs[i] = tile.shfl_down(i, 2);
  votes[i] = tile.ballot(i % 3 == 0);
  tile.sync();
  if (tile.size() != 8 || tile.meta_group_size() != block.size() / 8) ranks[i] = -1;
}

// One addition for all lanes that are here.
__device__ int add_together(int* counter) {
  const cg::coalesced_group here = cg::coalesced_threads();
  int before = 0;
  if (here.thread_rank() == 0) before = atomicAdd(counter, here.size());
  return here.shfl(before, 0) + here.thread_rank();
}

__global__ void keep_even(const int* in, int* out, int* counter, int* sizes) {
  const int i = threadIdx.x;
  if (in[i] % 2 == 0) {
    out[add_together(counter)] = in[i];
    sizes[i] = cg::coalesced_threads().size();
  }
}

__global__ void partitions(int* sizes, int* prefix) {
  const auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  const int i = threadIdx.x;
  const auto half = cg::binary_partition(warp, i % 4 == 0);
  sizes[i] = half.size();
  const auto label = cg::labeled_partition(warp, i % 5);
  sizes[i] += 100 * label.size();
  prefix[i] = cg::exclusive_scan(warp, i) * 1000 + cg::inclusive_scan(warp, 1);
}

// Each step reads what another block wrote in the step before.
__global__ void ring(int* x, int steps) {
  const cg::grid_group grid = cg::this_grid();
  const int n = gridDim.x, b = blockIdx.x;
  for (int step = 0; step < steps; ++step) {
    int next = 0;
    if (threadIdx.x == 0) next = x[(b + 1) % n] + 1;
    grid.sync();
    if (threadIdx.x == 0) x[b] = next;
    grid.sync();
  }
}

int main() {
  int *a, *b, *c, *d, host[4][64];
  for (int** pointer : {&a, &b, &c, &d}) CHECK_CUDA(cudaMalloc(pointer, 64 * sizeof(int)));
  const auto fetch = [&] {
    int i = 0;
    for (int* pointer : {a, b, c, d})
      CHECK_CUDA(cudaMemcpy(host[i++], pointer, 64 * sizeof(int), cudaMemcpyDeviceToHost));
  };
  tiles<<<1, 64>>>(a, b, c, reinterpret_cast<unsigned*>(d));
  fetch();
  for (int i = 0; i < 64; ++i) {
    CHECK(host[0][i] == i / 8 * 100 + i % 8);
    CHECK(host[1][i] == i / 8 * 64 + 28);
    CHECK(host[2][i] == (i % 8 < 6 ? i + 2 : i));
    int vote = 0;
    for (int j = 0; j < 8; ++j) vote |= ((i / 8 * 8 + j) % 3 == 0) << j;
    CHECK(host[3][i] == vote);
  }

  int values[32], evens = 0;
  for (int i = 0; i < 32; ++i) {
    values[i] = i * 7 % 32;
    evens += values[i] % 2 == 0;
  }
  CHECK_CUDA(cudaMemcpy(a, values, sizeof values, cudaMemcpyHostToDevice));
  CHECK_CUDA(cudaMemset(c, 0, sizeof(int)));
  keep_even<<<1, 32>>>(a, b, c, d);
  fetch();
  CHECK(host[2][0] == evens);
  for (int i = 0, kept = 0; i < 32; ++i)
    if (values[i] % 2 == 0) CHECK(host[1][kept++] == values[i]);

  partitions<<<1, 32>>>(a, b);
  fetch();
  for (int i = 0; i < 32; ++i) {
    CHECK(host[0][i] == (i % 4 == 0 ? 8 : 24) + 100 * (i % 5 < 2 ? 7 : 6));
    CHECK(host[1][i] == i * (i - 1) / 2 * 1000 + i + 1);
  }

  int blocks = 4, steps = 8, start[4] = {10, 20, 30, 40};
  CHECK_CUDA(cudaMemcpy(a, start, sizeof start, cudaMemcpyHostToDevice));
  void* arguments[] = {&a, &steps};
  int resident = 0, processors = 0;
  CHECK_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, ring, 64, 0));
  CHECK_CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
  CHECK(resident * processors >= blocks);
  CHECK_CUDA(cudaLaunchCooperativeKernel((void*)ring, blocks, 64, arguments, 0, nullptr));
  fetch();
  for (int i = 0; i < 4; ++i) CHECK(host[0][i] == start[i] + steps);  // eight steps are twice around
  CHECK(cudaLaunchCooperativeKernel((void*)ring, resident * processors + 1, 64, arguments, 0, nullptr) ==
        cudaErrorCooperativeLaunchTooLarge);
  (void)cudaGetLastError();
  return failures() > 0;
}

// A program whose kernels' costs and faults are known, for profile_test.cc: its argument names the kernel
// that runs. The words in brackets mark the lines that the tests look for.
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "kernels/launch.cuh"

namespace {

using lockstep::kernels::dynamic_shared;
using lockstep::kernels::launch;

constexpr unsigned kFull = 0xffffffffu;
constexpr int kN = 256;  // rows and columns of the matrices
constexpr int kTile = 32;

__global__ void transpose_naive(const float* in, float* out, int n) {
  const unsigned x = blockIdx.x * kTile + threadIdx.x;
  for (unsigned y = blockIdx.y * kTile + threadIdx.y; y < (blockIdx.y + 1) * kTile; y += blockDim.y) {
    const float value = in[y * n + x];  // [naive load]
    out[x * n + y] = value;             // [naive store]
  }
}

template <int kPitch>
__global__ void transpose_tiled(const float* in, float* out, int n) {
  __shared__ float tile[kTile][kPitch];
  const int x = blockIdx.x * kTile + threadIdx.x, y = blockIdx.y * kTile + threadIdx.y;
  for (int i = 0; i < kTile; i += blockDim.y) {
    const float value = in[(y + i) * n + x];     // [tiled load]
    tile[threadIdx.y + i][threadIdx.x] = value;  // [tile store]
  }
  __syncthreads();
  const int to_x = blockIdx.y * kTile + threadIdx.x, to_y = blockIdx.x * kTile + threadIdx.y;
  for (int i = 0; i < kTile; i += blockDim.y) {
    const float value = tile[threadIdx.x][threadIdx.y + i];  // [tile load]
    out[(to_y + i) * n + to_x] = value;                      // [tiled store]
  }
}

// The ladder of reductions: threads that are far apart, words that are far apart, and neither.
__global__ void reduce_divergent(const float* in, float* out) {
  __shared__ float part[kN];
  const unsigned t = threadIdx.x;
  part[t] = in[blockIdx.x * kN + t];
  __syncthreads();
  for (unsigned s = 1; s < blockDim.x; s *= 2) {
    if (t % (2 * s) == 0) part[t] += part[t + s];  // [divergent]
    __syncthreads();
  }
  if (t == 0) out[blockIdx.x] = part[0];
}

__global__ void reduce_strided(const float* in, float* out) {
  __shared__ float part[kN];
  const unsigned t = threadIdx.x;
  part[t] = in[blockIdx.x * kN + t];
  __syncthreads();
  for (unsigned s = 1; s < blockDim.x; s *= 2) {
    const unsigned index = 2 * s * t;
    if (index < blockDim.x) part[index] += part[index + s];  // [strided]
    __syncthreads();
  }
  if (t == 0) out[blockIdx.x] = part[0];
}

__global__ void reduce_sequential(const float* in, float* out) {
  __shared__ float part[kN];
  const unsigned t = threadIdx.x;
  part[t] = in[blockIdx.x * kN + t];
  __syncthreads();
  for (unsigned s = blockDim.x / 2; s > 0; s /= 2) {
    if (t < s) part[t] += part[t + s];  // [sequential]
    __syncthreads();
  }
  if (t == 0) out[blockIdx.x] = part[0];
}

__global__ void reduce_shuffles(const float* in, float* out) {
  __shared__ float part[kN / 32];
  const unsigned t = threadIdx.x;
  float value = in[blockIdx.x * kN + t];
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_down_sync(kFull, value, offset);
  if (t % 32 == 0) part[t / 32] = value;
  __syncthreads();
  if (t != 0) return;
  for (int warp = 1; warp < kN / 32; ++warp) value += part[warp];
  out[blockIdx.x] = value;
}

__global__ void product_naive(const float* a, const float* b, float* c, int n) {
  const int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = 0;
  for (int k = 0; k < n; ++k)
    sum += a[row * n + k] *    // [product a]
           b[k * n + column];  // [product b]
  c[row * n + column] = sum;
}

// Four columns a thread.
__global__ void product_vectorised(const float* a, const float* b, float* c, int n) {
  const int row = blockIdx.y * blockDim.y + threadIdx.y, column = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
  float4 sum = make_float4(0, 0, 0, 0);
  for (int k = 0; k < n; ++k) {
    const float x = a[row * n + k];
    const float4 y = *reinterpret_cast<const float4*>(&b[k * n + column]);  // [vector b]
    sum.x += x * y.x;
    sum.y += x * y.y;
    sum.z += x * y.z;
    sum.w += x * y.w;
  }
  *reinterpret_cast<float4*>(&c[row * n + column]) = sum;  // [vector c]
}

// Races, each with its cure.
template <bool kBarrier>
__global__ void reverse(const float* in, float* out) {
  __shared__ float tile[kN];
  const unsigned t = threadIdx.x;
  tile[t] = in[blockIdx.x * kN + t];  // [reverse store]
  if (kBarrier) __syncthreads();
  out[blockIdx.x * kN + t] = tile[kN - 1 - t];  // [reverse load]
}

// The barrier at the end of a loop's body, between this round's reads and the next one's writes.
template <bool kBarrier>
__global__ void shift_rounds(const float* in, float* out) {
  float* tile = dynamic_shared<float>();
  const unsigned t = threadIdx.x;
  float sum = 0;
  for (int round = 0; round < 4; ++round) {
    tile[t] = in[t] + static_cast<float>(round);  // [round store]
    __syncthreads();
    sum += tile[(t + 33) % kN];  // [round load]
    if (kBarrier) __syncthreads();
  }
  out[t] = sum;
}

template <bool kSync>
__global__ void neighbour_in_warp(const float* in, float* out) {
  __shared__ float tile[kN];
  const unsigned t = threadIdx.x;
  tile[t] = in[t];  // [warp store]
  if (kSync) __syncwarp();
  out[t] = tile[t ^ 1];  // [warp load]
}

// Who has ended is not waited for, and has done all it will do.
__global__ void ended_lane(const float* in, float* out) {
  __shared__ float tile[kN];
  const unsigned t = threadIdx.x;
  tile[t] = in[t];
  if (t % 32 == 31) return;
  __syncwarp();
  out[t] = tile[t + 1];
}

// Lanes meet in two halves: what one half has written the other may not read.
__global__ void halves_of_warp(const float* in, float* out) {
  __shared__ float tile[kN];
  const unsigned t = threadIdx.x, lane = t % 32;
  tile[t] = in[t];  // [half store]
  __syncwarp(lane < 16 ? 0xffffu : 0xffff0000u);
  out[t] = tile[t ^ 16];  // [half load]
}

template <bool kAtomic>
__global__ void count_blocks(int* count) {
  if (threadIdx.x != 0) return;
  if (kAtomic)
    atomicAdd(count, 1);
  else
    *count += 1;  // [count]
}

__global__ void histogram(const float* in, int* bins) {
  __shared__ int local[16];
  if (threadIdx.x < 16) local[threadIdx.x] = 0;
  __syncthreads();
  atomicAdd(&local[static_cast<int>(in[blockIdx.x * kN + threadIdx.x]) & 15], 1);
  __syncthreads();
  if (threadIdx.x < 16) atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
}

// An atomic operation and an ordinary one on the same word.
__global__ void atomic_and_plain(int* count) {
  if (threadIdx.x == 0) *count = 7;            // [plain]
  if (threadIdx.x == 64) atomicAdd(count, 1);  // [atomic]
}

// The last block to come adds what all have left. Without the fence nothing says that it sees it.
template <bool kFence>
__global__ void last_block(const float* in, volatile float* parts, unsigned* tickets, float* out) {
  __shared__ float tile[kN];
  __shared__ bool is_last;
  const unsigned t = threadIdx.x;
  tile[t] = in[blockIdx.x * kN + t];
  for (unsigned s = kN / 2; s > 0; s /= 2) {
    __syncthreads();
    if (t < s) tile[t] += tile[t + s];
  }
  if (t == 0) {
    parts[blockIdx.x] = tile[0];  // [part store]
    if (kFence) __threadfence();
    is_last = atomicInc(tickets, gridDim.x) == gridDim.x - 1;
  }
  __syncthreads();
  if (is_last && t == 0) {
    float sum = 0;
    for (unsigned b = 0; b < gridDim.x; ++b) sum += parts[b];  // [part load]
    *out = sum;
  }
}

// All threads write the same value.
__global__ void raise_flag(const float* in, int* flag) {
  if (in[threadIdx.x] >= 0) *flag = 1;
}

__global__ void too_far(const float* in, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i <= n) out[i] = in[i];  // [too far]
}

// Bytes side by side are no race.
__global__ void bytes(const float* in, unsigned char* out) {
  out[threadIdx.x] = static_cast<unsigned char>(in[threadIdx.x]);
}

// A long loop: more accesses than are kept at a time.
__global__ void long_rows(const float* in, float* out, int n) {
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += in[i];  // [long]
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// A good load and a bad one on one line.
__global__ void two_loads(const float* a, const float* b, float* out) {
  const unsigned t = threadIdx.x;
  out[t] = a[t] + b[t * 64];  // [two loads]
}

float* device_floats(size_t n) {
  float* memory = nullptr;
  cudaMalloc(&memory, n * sizeof(float));
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = static_cast<float>(i % 97);
  cudaMemcpy(memory, values.data(), n * sizeof(float), cudaMemcpyHostToDevice);
  return memory;
}

}  // namespace

int main(int, char** arguments) {
  const std::string name = arguments[1];
  cudaStream_t stream = nullptr;
  float* const a = device_floats(kN * kN);
  float* const b = device_floats(kN * kN);
  float* const c = device_floats(kN * kN);
  int* const ints = reinterpret_cast<int*>(c);
  const dim3 tiles(kN / kTile, kN / kTile), tile(kTile, 8);
  const auto run = [&](const char* kernel, auto start) {
    if (name == kernel) start();
  };
  run("transpose_naive", [&] { launch(transpose_naive, tiles, tile, 0, stream, a, b, kN); });
  run("transpose_tiled", [&] { launch(transpose_tiled<kTile>, tiles, tile, 0, stream, a, b, kN); });
  run("transpose_padded", [&] { launch(transpose_tiled<kTile + 1>, tiles, tile, 0, stream, a, b, kN); });
  run("reduce_divergent", [&] { launch(reduce_divergent, dim3(kN), dim3(kN), 0, stream, a, b); });
  run("reduce_strided", [&] { launch(reduce_strided, dim3(kN), dim3(kN), 0, stream, a, b); });
  run("reduce_sequential", [&] { launch(reduce_sequential, dim3(kN), dim3(kN), 0, stream, a, b); });
  run("reduce_shuffles", [&] { launch(reduce_shuffles, dim3(kN), dim3(kN), 0, stream, a, b); });
  run("product_naive", [&] { launch(product_naive, tiles, dim3(32, 32), 0, stream, a, b, c, kN); });
  run("product_vectorised",
      [&] { launch(product_vectorised, dim3(kN / 128, kN / 8), dim3(32, 8), 0, stream, a, b, c, kN); });
  run("reverse", [&] { launch(reverse<true>, dim3(8), dim3(kN), 0, stream, a, b); });
  run("reverse_race", [&] { launch(reverse<false>, dim3(8), dim3(kN), 0, stream, a, b); });
  run("shift_rounds", [&] { launch(shift_rounds<true>, dim3(1), dim3(kN), kN * 4, stream, a, b); });
  run("shift_rounds_race", [&] { launch(shift_rounds<false>, dim3(1), dim3(kN), kN * 4, stream, a, b); });
  run("warp", [&] { launch(neighbour_in_warp<true>, dim3(1), dim3(kN), 0, stream, a, b); });
  run("warp_race", [&] { launch(neighbour_in_warp<false>, dim3(1), dim3(kN), 0, stream, a, b); });
  run("ended_lane", [&] { launch(ended_lane, dim3(1), dim3(kN), 0, stream, a, b); });
  run("halves_race", [&] { launch(halves_of_warp, dim3(1), dim3(kN), 0, stream, a, b); });
  run("count", [&] { launch(count_blocks<true>, dim3(8), dim3(kN), 0, stream, ints); });
  run("count_race", [&] { launch(count_blocks<false>, dim3(8), dim3(kN), 0, stream, ints); });
  run("histogram", [&] { launch(histogram, dim3(8), dim3(kN), 0, stream, a, ints); });
  run("atomic_and_plain_race", [&] { launch(atomic_and_plain, dim3(1), dim3(kN), 0, stream, ints); });
  auto* const tickets = reinterpret_cast<unsigned*>(device_floats(1));
  run("last_block", [&] { launch(last_block<true>, dim3(8), dim3(kN), 0, stream, a, b, tickets, c); });
  run("last_block_race", [&] { launch(last_block<false>, dim3(8), dim3(kN), 0, stream, a, b, tickets, c); });
  run("raise_flag", [&] { launch(raise_flag, dim3(2), dim3(kN), 0, stream, a, ints); });
  run("too_far", [&] { launch(too_far, dim3(9), dim3(kN), 0, stream, device_floats(2048), b, 2048); });
  run("bytes", [&] { launch(bytes, dim3(1), dim3(kN), 0, stream, a, reinterpret_cast<unsigned char*>(b)); });
  run("long_rows", [&] { launch(long_rows, dim3(1), dim3(64), 0, stream, a, b, 20000); });
  run("two_loads", [&] { launch(two_loads, dim3(1), dim3(kN), 0, stream, a, b, c); });
  run("many", [&] {
    for (int i = 0; i < 10; ++i) launch(transpose_naive, tiles, tile, 0, stream, a, b, kN);
  });
  const cudaError_t status = cudaDeviceSynchronize();
  std::printf("status: %s\n", cudaGetErrorName(status));
  return status == cudaSuccess ? 0 : 1;
}

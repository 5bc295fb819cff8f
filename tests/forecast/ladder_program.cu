// The ladders that others have timed, for forecast_test.cc: `ladder_program NAME SIZE` launches one rung
// once, at the size that was measured. What a rung computes is checked by hand at a small size in the test of
// the profile; here only what it does to memory matters, so the values are zeros. Few of the blocks are run:
// the rest would take hours on a CPU.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "kernels/launch.cuh"
#include "kernels/step_mark.h"

namespace {

using lockstep::kernels::launch;
using lockstep::kernels::note_operations;

constexpr int kTile = 32;

__global__ void copy(const float* in, float* out) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  out[i] = in[i];
}

// Four floats a thread: what DRAM can give.
__global__ void copy_wide(const float4* in, float4* out) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  out[i] = in[i];
}

__global__ void transpose_naive(const float* in, float* out, int n) {
  const int x = blockIdx.x * kTile + threadIdx.x, y = blockIdx.y * kTile + threadIdx.y;
  out[x * n + y] = in[y * n + x];
}

template <int kPitch>
__global__ void transpose_tiled(const float* in, float* out, int n) {
  __shared__ float tile[kTile][kPitch];
  const int x = blockIdx.x * kTile + threadIdx.x, y = blockIdx.y * kTile + threadIdx.y;
  tile[threadIdx.y][threadIdx.x] = in[y * n + x];
  __syncthreads();
  out[(blockIdx.x * kTile + threadIdx.y) * n + blockIdx.y * kTile + threadIdx.x] =
      tile[threadIdx.x][threadIdx.y];
}

// Products c = a b of n x n. Neighbouring threads take neighbouring rows: each load of a is a sector of its
// own.
__global__ void product_naive(const float* a, const float* b, float* c, int n) {
  const int row = blockIdx.x * kTile + threadIdx.x, column = blockIdx.y * kTile + threadIdx.y;
  float sum = 0;
  for (int k = 0; k < n; ++k) sum += a[row * n + k] * b[k * n + column];
  c[row * n + column] = sum;
}

// Neighbouring threads take neighbouring columns.
__global__ void product_coalesced(const float* a, const float* b, float* c, int n) {
  const int row = blockIdx.y * kTile + threadIdx.y, column = blockIdx.x * kTile + threadIdx.x;
  float sum = 0;
  for (int k = 0; k < n; ++k) sum += a[row * n + k] * b[k * n + column];
  c[row * n + column] = sum;
}

// Through tiles of 32 x 32 in shared memory, one element a thread.
__global__ void product_tiled(const float* a, const float* b, float* c, int n) {
  __shared__ float of_a[kTile][kTile], of_b[kTile][kTile];
  const int x = threadIdx.x, y = threadIdx.y;
  const int row = blockIdx.y * kTile + y, column = blockIdx.x * kTile + x;
  float sum = 0;
  for (int first = 0; first < n; first += kTile) {
    of_a[y][x] = a[row * n + first + x];
    of_b[y][x] = b[(first + y) * n + column];
    __syncthreads();
    for (int k = 0; k < kTile; ++k) sum += of_a[y][k] * of_b[k][x];
    __syncthreads();
  }
  c[row * n + column] = sum;
}

// A block of 64 x 64 by 512 threads, each with 8 elements of a column, 8 deep.
__global__ void product_column(const float* a, const float* b, float* c, int n) {
  constexpr int kSide = 64, kDepth = 8, kEach = 8;
  __shared__ float of_a[kSide][kDepth], of_b[kDepth][kSide];
  const int t = threadIdx.x, x = t % kSide, y = t / kSide;
  const int a_row = t / kDepth, a_column = t % kDepth;
  a += blockIdx.y * kSide * n, b += blockIdx.x * kSide;
  float sums[kEach] = {};
  for (int first = 0; first < n; first += kDepth) {
    of_a[a_row][a_column] = a[a_row * n + first + a_column];
    of_b[y][x] = b[(first + y) * n + x];
    __syncthreads();
    for (int k = 0; k < kDepth; ++k) {
      const float right = of_b[k][x];
      for (int i = 0; i < kEach; ++i) sums[i] += of_a[y * kEach + i][k] * right;
    }
    __syncthreads();
  }
  for (int i = 0; i < kEach; ++i)
    c[(blockIdx.y * kSide + y * kEach + i) * n + blockIdx.x * kSide + x] = sums[i];
}

// A block of 128 x 128 by 256 threads, each with 8 x 8 elements.
__global__ void product_square(const float* a, const float* b, float* c, int n) {
  constexpr int kSide = 128, kDepth = 8, kEach = 8, kThreads = 256;
  __shared__ float of_a[kSide][kDepth], of_b[kDepth][kSide];
  const int t = threadIdx.x, x = t % (kSide / kEach), y = t / (kSide / kEach);
  a += blockIdx.y * kSide * n, b += blockIdx.x * kSide;
  float sums[kEach][kEach] = {};
  for (int first = 0; first < n; first += kDepth) {
    for (int i = t; i < kSide * kDepth; i += kThreads) {
      of_a[i / kDepth][i % kDepth] = a[i / kDepth * n + first + i % kDepth];
      of_b[i / kSide][i % kSide] = b[(first + i / kSide) * n + i % kSide];
    }
    __syncthreads();
    for (int k = 0; k < kDepth; ++k) {
      float left[kEach], right[kEach];
      for (int i = 0; i < kEach; ++i) left[i] = of_a[y * kEach + i][k];
      for (int i = 0; i < kEach; ++i) right[i] = of_b[k][x * kEach + i];
      for (int i = 0; i < kEach; ++i)
        for (int j = 0; j < kEach; ++j) sums[i][j] += left[i] * right[j];
    }
    __syncthreads();
  }
  for (int i = 0; i < kEach; ++i)
    for (int j = 0; j < kEach; ++j)
      c[(blockIdx.y * kSide + y * kEach + i) * n + blockIdx.x * kSide + x * kEach + j] = sums[i][j];
}

// The same with 16 bytes a load and store; a's tile lies transposed.
__global__ void product_vectors(const float* a, const float* b, float* c, int n) {
  constexpr int kSide = 128, kDepth = 8, kEach = 8;
  alignas(16) __shared__ float of_a[kDepth][kSide];
  alignas(16) __shared__ float of_b[kDepth][kSide];
  const int t = threadIdx.x, x = t % (kSide / kEach), y = t / (kSide / kEach);
  const int a_row = t / 2, a_column = t % 2 * 4, b_row = t / 32, b_column = t % 32 * 4;
  a += blockIdx.y * kSide * n, b += blockIdx.x * kSide;
  float sums[kEach][kEach] = {};
  for (int first = 0; first < n; first += kDepth) {
    const float4 four = *reinterpret_cast<const float4*>(&a[a_row * n + first + a_column]);
    of_a[a_column][a_row] = four.x;
    of_a[a_column + 1][a_row] = four.y;
    of_a[a_column + 2][a_row] = four.z;
    of_a[a_column + 3][a_row] = four.w;
    *reinterpret_cast<float4*>(&of_b[b_row][b_column]) =
        *reinterpret_cast<const float4*>(&b[(first + b_row) * n + b_column]);
    __syncthreads();
    for (int k = 0; k < kDepth; ++k) {
      float left[kEach], right[kEach];
      for (int i = 0; i < kEach; i += 4) {
        const float4 l = *reinterpret_cast<const float4*>(&of_a[k][y * kEach + i]);
        const float4 r = *reinterpret_cast<const float4*>(&of_b[k][x * kEach + i]);
        left[i] = l.x, left[i + 1] = l.y, left[i + 2] = l.z, left[i + 3] = l.w;
        right[i] = r.x, right[i + 1] = r.y, right[i + 2] = r.z, right[i + 3] = r.w;
      }
      for (int i = 0; i < kEach; ++i)
        for (int j = 0; j < kEach; ++j) sums[i][j] += left[i] * right[j];
    }
    __syncthreads();
  }
  for (int i = 0; i < kEach; ++i)
    for (int j = 0; j < kEach; j += 4) {
      float4 four;
      four.x = sums[i][j], four.y = sums[i][j + 1], four.z = sums[i][j + 2], four.w = sums[i][j + 3];
      *reinterpret_cast<float4*>(
          &c[(blockIdx.y * kSide + y * kEach + i) * n + blockIdx.x * kSide + x * kEach + j]) = four;
    }
}

// Sums of 128 elements a block, in shared memory: Harris's first steps.
__global__ void reduce_divergent(const int* in, int* out) {
  __shared__ int part[128];
  const unsigned t = threadIdx.x;
  part[t] = in[blockIdx.x * blockDim.x + t];
  __syncthreads();
  for (unsigned s = 1; s < blockDim.x; s *= 2) {
    if (t % (2 * s) == 0) part[t] += part[t + s];
    __syncthreads();
  }
  if (t == 0) out[blockIdx.x] = part[0];
}

__global__ void reduce_strided(const int* in, int* out) {
  __shared__ int part[128];
  const unsigned t = threadIdx.x;
  part[t] = in[blockIdx.x * blockDim.x + t];
  __syncthreads();
  for (unsigned s = 1; s < blockDim.x; s *= 2) {
    const unsigned index = 2 * s * t;
    if (index < blockDim.x) part[index] += part[index + s];
    __syncthreads();
  }
  if (t == 0) out[blockIdx.x] = part[0];
}

__global__ void reduce_sequential(const int* in, int* out) {
  __shared__ int part[128];
  const unsigned t = threadIdx.x;
  part[t] = in[blockIdx.x * blockDim.x + t];
  __syncthreads();
  for (unsigned s = blockDim.x / 2; s > 0; s /= 2) {
    if (t < s) part[t] += part[t + s];
    __syncthreads();
  }
  if (t == 0) out[blockIdx.x] = part[0];
}

// The first addition while loading.
__global__ void reduce_first(const int* in, int* out) {
  __shared__ int part[128];
  const unsigned t = threadIdx.x, i = blockIdx.x * blockDim.x * 2 + t;
  part[t] = in[i] + in[i + blockDim.x];
  __syncthreads();
  for (unsigned s = blockDim.x / 2; s > 0; s /= 2) {
    if (t < s) part[t] += part[t + s];
    __syncthreads();
  }
  if (t == 0) out[blockIdx.x] = part[0];
}

// The last warp without barriers of the block.
__global__ void reduce_last_warp(const int* in, int* out) {
  __shared__ int part[128];
  const unsigned t = threadIdx.x, i = blockIdx.x * blockDim.x * 2 + t;
  part[t] = in[i] + in[i + blockDim.x];
  __syncthreads();
  if (t < 64) part[t] += part[t + 64];
  __syncthreads();
  if (t < 32) {
    int sum = part[t] + part[t + 32];
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(0xffffffffu, sum, offset);
    if (t == 0) out[blockIdx.x] = sum;
  }
}

// Each thread adds many elements before.
__global__ void reduce_many(const int* in, int* out, int n) {
  __shared__ int part[128];
  const int t = static_cast<int>(threadIdx.x), step = static_cast<int>(gridDim.x * blockDim.x * 2);
  int sum = 0;
  for (int i = static_cast<int>(blockIdx.x * blockDim.x * 2) + t; i < n; i += step)
    sum += in[i] + in[i + blockDim.x];
  part[t] = sum;
  __syncthreads();
  if (t < 64) part[t] += part[t + 64];
  __syncthreads();
  if (t < 32) {
    sum = part[t] + part[t + 32];
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(0xffffffffu, sum, offset);
    if (t == 0) out[blockIdx.x] = sum;
  }
}

struct Memory {
  float *a = nullptr, *b = nullptr, *c = nullptr;
  const float* in() const { return a; }
  float* out() const { return c; }
};

// Three steps of two copies; the first has one more. What comes behind is no step.
void run_steps(int n, const Memory& memory, cudaStream_t stream) {
  const auto one = [&] { launch(copy, dim3(n * n / 256), dim3(256), 0, stream, memory.in(), memory.out()); };
  for (int step = 0; step < 3; ++step) {
    lockstep::kernels::begin_step();
    if (step == 0) one();
    one();
    one();
    lockstep::kernels::end_step(640);
  }
  for (int i = 0; i < 5; ++i) one();
}

// Two steps, each of which replays a graph of three copies.
void run_graphs(int n, const Memory& memory) {
  cudaStream_t stream;
  LOCKSTEP_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  cudaGraph_t graph;
  LOCKSTEP_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  for (int i = 0; i < 3; ++i)
    launch(copy, dim3(n * n / 256), dim3(256), 0, stream, memory.in(), memory.out());
  LOCKSTEP_CUDA(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t exec;
  LOCKSTEP_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  for (int step = 0; step < 2; ++step) {
    lockstep::kernels::begin_step();
    LOCKSTEP_CUDA(cudaGraphLaunch(exec, stream));
    lockstep::kernels::end_step(640);
  }
}

void run(const std::string& name, int n, const Memory& memory) {
  const cudaStream_t stream = nullptr;
  const auto square = [&](auto kernel) {
    launch(kernel, dim3(n / kTile, n / kTile), dim3(kTile, kTile), 0, stream, memory.in(), memory.out(), n);
  };
  const auto product = [&](auto kernel, int side, dim3 block) {
    note_operations(2.0 * n * n * n);
    launch(kernel, dim3(n / side, n / side), block, 0, stream, memory.in(),
           static_cast<const float*>(memory.b), memory.out(), n);
  };
  const auto reduction = [&](auto kernel, int each) {
    launch(kernel, dim3(n * n / each), dim3(128), 0, stream, reinterpret_cast<const int*>(memory.in()),
           reinterpret_cast<int*>(memory.out()));
  };
  if (name == "copy")
    launch(copy, dim3(n * n / 256), dim3(256), 0, stream, memory.in(), memory.out());
  else if (name == "copy_wide")
    launch(copy_wide, dim3(n * n / 1024), dim3(256), 0, stream, reinterpret_cast<const float4*>(memory.in()),
           reinterpret_cast<float4*>(memory.out()));
  else if (name == "transpose_naive")
    square(transpose_naive);
  else if (name == "transpose_tiled")
    square(transpose_tiled<kTile>);
  else if (name == "transpose_padded")
    square(transpose_tiled<kTile + 1>);
  else if (name == "product_naive")
    product(product_naive, kTile, dim3(kTile, kTile));
  else if (name == "product_coalesced")
    product(product_coalesced, kTile, dim3(kTile, kTile));
  else if (name == "product_tiled")
    product(product_tiled, kTile, dim3(kTile, kTile));
  else if (name == "product_column")
    product(product_column, 64, dim3(512));
  else if (name == "product_square")
    product(product_square, 128, dim3(256));
  else if (name == "product_vectors")
    product(product_vectors, 128, dim3(256));
  else if (name == "reduce_divergent")
    reduction(reduce_divergent, 128);
  else if (name == "reduce_strided")
    reduction(reduce_strided, 128);
  else if (name == "reduce_sequential")
    reduction(reduce_sequential, 128);
  else if (name == "reduce_first")
    reduction(reduce_first, 256);
  else if (name == "reduce_last_warp")
    reduction(reduce_last_warp, 256);
  else if (name == "reduce_many")
    launch(reduce_many, dim3(64), dim3(128), 0, stream, reinterpret_cast<const int*>(memory.in()),
           reinterpret_cast<int*>(memory.out()), n * n);
  else if (name == "steps")
    run_steps(n, memory, stream);
  else if (name == "graphs")
    run_graphs(n, memory);
  else if (name != "nothing")
    throw lockstep::Error("no kernel '" + name + "'");
  LOCKSTEP_CUDA(cudaDeviceSynchronize());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const int n = std::atoi(argv[2]);
  try {
    Memory memory;
    if (std::string(argv[1]) != "nothing")
      for (float** matrix : {&memory.a, &memory.b, &memory.c}) {
        const size_t bytes = sizeof(float) * static_cast<size_t>(n) * static_cast<size_t>(n);
        LOCKSTEP_CUDA(cudaMalloc(matrix, bytes));
        LOCKSTEP_CUDA(cudaMemset(*matrix, 0, bytes));
      }
    run(argv[1], n, memory);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}

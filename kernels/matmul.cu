// Matrix products: cuBLAS, or the tiled product written here. The tiled kernel shows the two ideas that make
// a matrix product fast: a block stages tiles of a and b in shared memory, so that each value is read from
// device memory once a tile, and a thread keeps 4 x 4 results in registers, so that each value read from
// shared memory is used four times.
#include "kernels/matmul.h"

#include <cuda_bf16.h>

#include <limits>
#include <string>
#include <type_traits>

#include "kernels/float_types.h"
#include "kernels/launch.cuh"

namespace lockstep::kernels {
namespace {

constexpr int kThreadsAcross = 16;                  // a block has 16 x 16 threads
constexpr int kPerThread = 4;                       // each owns 4 x 4 results
constexpr int kTile = kThreadsAcross * kPerThread;  // so a block owns 64 x 64
constexpr int kDepth = 16;                          // and takes 16 steps of k at a time

// A matrix as op() sees it: element (row, column) of the possibly transposed operand, zero outside.
template <typename T>
struct Operand {
  const T* data;
  bool transposed;
  int64_t rows, columns;

  __device__ float operator()(int64_t row, int64_t column) const {
    if (row >= rows || column >= columns) return 0.0f;
    return to_float(transposed ? data[column * rows + row] : data[row * columns + column]);
  }
};

// Loads a kRows x kColumns tile whose first element is (row, column). Neighbouring threads read neighbouring
// addresses, whichever way the operand is stored.
template <typename T, int kRows, int kPitch>
__device__ void load_tile(const Operand<T>& from, int64_t row, int64_t column, float (&tile)[kRows][kPitch]) {
  constexpr int kThreads = kThreadsAcross * kThreadsAcross;
  constexpr int kColumns = kPitch - 1;
  const int thread = static_cast<int>(threadIdx.y) * kThreadsAcross + static_cast<int>(threadIdx.x);
  for (int i = thread; i < kRows * kColumns; i += kThreads) {
    const int r = from.transposed ? i % kRows : i / kColumns;
    const int c = from.transposed ? i / kRows : i % kColumns;
    tile[r][c] = from(row + r, column + c);
  }
}

template <typename T>
__global__ void matmul_tiled_kernel(Operand<T> a, Operand<T> b, float beta, float* c) {
  // One column more than needed, so that a column's elements lie in different banks.
  __shared__ float a_tile[kTile][kDepth + 1];
  __shared__ float b_tile[kDepth][kTile + 1];
  const int64_t first_row = static_cast<int64_t>(blockIdx.x) * kTile;
  const int64_t first_column = static_cast<int64_t>(blockIdx.y) * kTile;
  const int x = static_cast<int>(threadIdx.x);
  const int y = static_cast<int>(threadIdx.y);

  float sum[kPerThread][kPerThread] = {};
  for (int64_t depth = 0; depth < a.columns; depth += kDepth) {
    load_tile(a, first_row, depth, a_tile);
    load_tile(b, depth, first_column, b_tile);
    __syncthreads();  // the tiles are complete
    for (int k = 0; k < kDepth; ++k)
      for (int i = 0; i < kPerThread; ++i)
        for (int j = 0; j < kPerThread; ++j)
          sum[i][j] += a_tile[y + i * kThreadsAcross][k] * b_tile[k][x + j * kThreadsAcross];
    __syncthreads();  // nobody reads the tiles any more
  }

  for (int i = 0; i < kPerThread; ++i)
    for (int j = 0; j < kPerThread; ++j) {
      const int64_t row = first_row + y + i * kThreadsAcross;
      const int64_t column = first_column + x + j * kThreadsAcross;
      if (row >= a.rows || column >= b.columns) continue;
      float& result = c[row * b.columns + column];
      result = beta == 0.0f ? sum[i][j] : sum[i][j] + beta * result;  // with beta = 0, c may hold NaN
    }
}

template <typename T>
void matmul_own(const MathContext& context, const Operand<T>& a, const Operand<T>& b, float beta, float* c) {
  const auto tiles = [](int64_t n) { return static_cast<unsigned>((n + kTile - 1) / kTile); };
  launch(matmul_tiled_kernel<T>, dim3(tiles(a.rows), tiles(b.columns)), dim3(kThreadsAcross, kThreadsAcross),
         0, context.stream, a, b, beta, c);
}

// cuBLAS is column-major: a row-major matrix is its transpose there, so c' = op(b)' op(a)' is computed.
template <typename T>
void matmul_library(const MathContext& context, const Operand<T>& a, const Operand<T>& b, float beta,
                    float* c) {
  const auto leading = [](const Operand<T>& o) {
    return static_cast<int>(o.transposed ? o.rows : o.columns);
  };
  const auto operation = [](const Operand<T>& o) { return o.transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
  const float one = 1.0f;
  constexpr cudaDataType kType = std::is_same_v<T, float> ? CUDA_R_32F : CUDA_R_16BF;
  LOCKSTEP_CUBLAS(cublasGemmEx(context.cublas, operation(b), operation(a), static_cast<int>(b.columns),
                               static_cast<int>(a.rows), static_cast<int>(a.columns), &one, b.data, kType,
                               leading(b), a.data, kType, leading(a), &beta, c, CUDA_R_32F,
                               static_cast<int>(b.columns), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

}  // namespace

template <typename T>
void matmul(const MathContext& context, bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k,
            const T* a, const T* b, float beta, float* c) {
  constexpr int64_t kLargest = std::numeric_limits<int>::max();
  if (m < 0 || n < 0 || k < 0 || m > kLargest || n > kLargest || k > kLargest)
    throw Error("matmul: m, n, k are " + std::to_string(m) + ", " + std::to_string(n) + ", " +
                std::to_string(k) + "; each must lie between 0 and " + std::to_string(kLargest));
  if (m == 0 || n == 0) return;
  const Operand<T> left{a, transpose_a, m, k};
  const Operand<T> right{b, transpose_b, k, n};
  // cuBLAS wants leading dimensions of at least 1, which an empty sum has not.
  if (context.math == Math::own || k == 0)
    matmul_own(context, left, right, beta, c);
  else
    matmul_library(context, left, right, beta, c);
}

template void matmul(const MathContext&, bool, bool, int64_t, int64_t, int64_t, const float*, const float*,
                     float, float*);
template void matmul(const MathContext&, bool, bool, int64_t, int64_t, int64_t, const __nv_bfloat16*,
                     const __nv_bfloat16*, float, float*);

}  // namespace lockstep::kernels

// Functions of device code: votes, matches, reductions of a warp, atomics with scopes, vectors, rounding,
// half precision.
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>

#include "check.h"

__global__ void warp_functions(unsigned* out) {
  const unsigned all = 0xffffffffu;
  const int i = threadIdx.x;
  out[i] = __match_any_sync(all, i % 4);
  int same;
  out[32 + i] = __match_all_sync(all, i / 64, &same) + same;
  out[64 + i] = __reduce_add_sync(all, unsigned(i)) + __reduce_max_sync(all, unsigned(i));
  out[96 + i] = i < 16 ? __activemask() : 0;
}

__global__ void scopes(int* x, unsigned long long* y) {
  atomicAdd_block(&x[0], 1);
  atomicAdd_system(&x[1], 2);
  atomicMax_system(&x[2], int(threadIdx.x));
  atomicCAS_block(&x[3], 0, 7);
  atomicAdd(y, 1ull);
}

__global__ void vectors(float4* x) {
  float4 v = x[threadIdx.x];
  const int2 s = make_int2(1, 2);
  v = make_float4(v.w, v.z, v.y + s.x, v.x + s.y);
  x[threadIdx.x] = v;
}

__global__ void rounding(const float* x, float* down, float* up, int n) {
  for (int i = threadIdx.x; i + 1 < n; i += blockDim.x) {
    down[i] = __fadd_rd(x[i], __fmul_rd(x[i], x[i + 1]));
    up[i] = __fadd_ru(x[i], __fmul_ru(x[i], x[i + 1]));
    down[n + i] = __fdiv_rd(x[i], x[i + 1]);
    up[n + i] = __fdiv_ru(x[i], x[i + 1]);
    down[2 * n + i] = __fsqrt_rd(fabsf(x[i]));
    up[2 * n + i] = __fsqrt_ru(fabsf(x[i]));
  }
}

__global__ void halves(const half2* x, half2* y, float* sum) {
  const half2 v = __hfma2(x[threadIdx.x], __float2half2_rn(2.0f), __float2half2_rn(1.0f));
  y[threadIdx.x] = v;
  atomicAdd(sum, __low2float(v) + __high2float(v));
}

int main() {
  unsigned *u, host[128];
  CHECK_CUDA(cudaMalloc(&u, sizeof host));
  warp_functions<<<1, 32>>>(u);
  CHECK_CUDA(cudaMemcpy(host, u, sizeof host, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 32; ++i) {
    CHECK(host[i] == 0x11111111u << i % 4);
    CHECK(host[32 + i] == 0);  // all bits and one: it wraps
    CHECK(host[64 + i] == 496 + 31);
    if (i < 16) CHECK((host[96 + i] >> i & 1) == 1 && host[96 + i] >> 16 == 0);
  }

  int *x, counts[4] = {};
  unsigned long long *y, total = 0;
  CHECK_CUDA(cudaMalloc(&x, sizeof counts));
  CHECK_CUDA(cudaMalloc(&y, sizeof total));
  CHECK_CUDA(cudaMemset(x, 0, sizeof counts));
  CHECK_CUDA(cudaMemset(y, 0, sizeof total));
  scopes<<<10, 50>>>(x, y);
  CHECK_CUDA(cudaMemcpy(counts, x, sizeof counts, cudaMemcpyDeviceToHost));
  CHECK_CUDA(cudaMemcpy(&total, y, sizeof total, cudaMemcpyDeviceToHost));
  CHECK(counts[0] == 500 && counts[1] == 1000 && counts[2] == 49 && counts[3] == 7 && total == 500);

  float4 *v, four[2] = {{1, 2, 3, 4}, {5, 6, 7, 8}};
  CHECK_CUDA(cudaMalloc(&v, sizeof four));
  CHECK_CUDA(cudaMemcpy(v, four, sizeof four, cudaMemcpyHostToDevice));
  vectors<<<1, 2>>>(v);
  CHECK_CUDA(cudaMemcpy(four, v, sizeof four, cudaMemcpyDeviceToHost));
  CHECK(four[1].x == 8 && four[1].y == 7 && four[1].z == 7 && four[1].w == 7);

  // Between the two bounds lies the exact value, and they are neighbours (of one operation) or a few steps
  // apart.
  constexpr int n = 200;
  static float in[n], down[3 * n], up[3 * n];
  unsigned state = 1;
  for (float& value : in) {
    state = state * 1664525u + 1013904223u;
    value = (int(state >> 8) - (1 << 23)) / 123457.0f;
  }
  float *a, *b, *c;
  for (float** pointer : {&a, &b, &c}) CHECK_CUDA(cudaMalloc(pointer, 3 * n * sizeof(float)));
  CHECK_CUDA(cudaMemcpy(a, in, sizeof in, cudaMemcpyHostToDevice));
  rounding<<<1, 64>>>(a, b, c, n);
  CHECK_CUDA(cudaMemcpy(down, b, sizeof down, cudaMemcpyDeviceToHost));
  CHECK_CUDA(cudaMemcpy(up, c, sizeof up, cudaMemcpyDeviceToHost));
  for (int i = 0; i + 1 < n; ++i) {
    const double exact = double(in[i]) + double(in[i]) * in[i + 1];
    CHECK(down[i] <= exact && exact <= up[i] && down[i] < up[i]);
    const double quotient = double(in[i]) / in[i + 1];
    CHECK(down[n + i] <= quotient && quotient <= up[n + i] && nextafterf(down[n + i], INFINITY) >= up[n + i]);
    const double root = sqrt(fabs(double(in[i])));
    CHECK(down[2 * n + i] <= root && root <= up[2 * n + i] &&
          nextafterf(down[2 * n + i], INFINITY) >= up[2 * n + i]);
  }

  half2 *h, pairs[32];
  float *sum, result = 0;
  for (int i = 0; i < 32; ++i) pairs[i] = __floats2half2_rn(i, 0.1f * i);
  CHECK_CUDA(cudaMalloc(&h, 2 * sizeof pairs));
  CHECK_CUDA(cudaMalloc(&sum, sizeof(float)));
  CHECK_CUDA(cudaMemset(sum, 0, sizeof(float)));
  CHECK_CUDA(cudaMemcpy(h, pairs, sizeof pairs, cudaMemcpyHostToDevice));
  halves<<<1, 32>>>(h, h + 32, sum);
  CHECK_CUDA(cudaMemcpy(pairs, h + 32, sizeof pairs, cudaMemcpyDeviceToHost));
  CHECK_CUDA(cudaMemcpy(&result, sum, sizeof result, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 32; ++i) {
    CHECK(__low2float(pairs[i]) == 2 * i + 1);
    // Within half a unit in the last place of a half, at most 2^-11 of the value, after two roundings.
    CHECK(fabsf(__high2float(pairs[i]) - (0.2f * i + 1)) <= (0.2f * i + 1) / 1024);
  }
  CHECK(fabsf(result - (2 * 496 + 32 + 0.2f * 496 + 32)) < 0.5f);
  return failures() > 0;
}

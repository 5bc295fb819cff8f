// Matrix products, row-major.
#pragma once

#include <cstdint>

#include "kernels/math_context.h"

namespace lockstep::kernels {

// c[m, n] = op(a) op(b) + beta c, where op(a) is [m, k] (stored [k, m] if transpose_a) and op(b) is [k, n]
// (stored [n, k] if transpose_b). Any of m, n, k may be 0; k = 0 gives beta c. T is float or __nv_bfloat16;
// sums are float32.
// Math::library calls cuBLAS, Math::own the tiled kernel of this folder.
template <typename T>
void matmul(const MathContext& context, bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k,
            const T* a, const T* b, float beta, float* c);

}  // namespace lockstep::kernels

// What this processor's instructions are good for, as oneDNN sees it.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

namespace hostcuda::processor {

inline bool has_instructions(dnnl::cpu_isa wanted) {
  const auto bits = static_cast<unsigned>(wanted);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & bits) == bits;
}

// Matrix units for bfloat16: some ten times as fast as float.
inline bool has_bfloat16_tiles() {
  return has_instructions(dnnl::cpu_isa::avx512_core_amx);
}

// Whether products of bfloat16 are faster than those of float. Without AVX-512's bfloat16, oneDNN refuses, or
// emulates it at half the speed of float. Intel's processors have the instruction, but it takes four times as
// long as a float one for twice the products (measured: 82 and 166 GFLOP/s); AMD's takes as long as a float
// one.
inline bool has_fast_bfloat16() {
  __builtin_cpu_init();
  return has_bfloat16_tiles() ||
         (has_instructions(dnnl::cpu_isa::avx512_core_bf16) && !__builtin_cpu_is("intel"));
}

}  // namespace hostcuda::processor

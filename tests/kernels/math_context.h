// A MathContext for tests: its own stream, with the libraries' handles bound to it.
#pragma once

#include "kernels/check.h"
#include "kernels/math_context.h"
#include "kernels/scratch.h"

namespace lockstep::test {

class TestMath {
 public:
  explicit TestMath(kernels::Math math)
      : context_{.math = math, .cublas = nullptr, .cudnn = nullptr, .stream = nullptr} {
    LOCKSTEP_CUDA(cudaStreamCreate(&context_.stream));
    LOCKSTEP_CUDA(cudaMalloc(&context_.tickets, kernels::kTickets * sizeof(unsigned)));
    LOCKSTEP_CUDA(cudaMemset(context_.tickets, 0, kernels::kTickets * sizeof(unsigned)));
    LOCKSTEP_CUBLAS(cublasCreate(&context_.cublas));
    LOCKSTEP_CUBLAS(cublasSetStream(context_.cublas, context_.stream));
    LOCKSTEP_CUDNN(cudnnCreate(&context_.cudnn));
    LOCKSTEP_CUDNN(cudnnSetStream(context_.cudnn, context_.stream));
  }
  TestMath(const TestMath&) = delete;
  TestMath& operator=(const TestMath&) = delete;
  ~TestMath() {
    cudnnDestroy(context_.cudnn);
    cublasDestroy(context_.cublas);
    cudaStreamDestroy(context_.stream);
    cudaFree(context_.tickets);
  }
  operator const kernels::MathContext&() const { return context_; }

 private:
  kernels::MathContext context_;
};

}  // namespace lockstep::test

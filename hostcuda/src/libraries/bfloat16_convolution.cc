#include "hostcuda/src/libraries/bfloat16_convolution.h"

#include <vector>

#include "hostcuda/src/libraries/bfloat16.h"

namespace hostcuda {
namespace {

const Convolution& float_convolution(ConvolutionProblem problem) {
  problem.arithmetic = Arithmetic::float32;
  return Convolution::get(problem);
}

}  // namespace

Bfloat16Convolution::Bfloat16Convolution(const ConvolutionProblem& p)
    : Convolution(p), float_convolution_(float_convolution(p)) {}

void Bfloat16Convolution::compute(float alpha, ConvolutionData data, void*, float beta) const {
  struct Operand {
    void*& address;
    size_t count;
    std::vector<float>& wide;
  };
  thread_local std::vector<float> wide_x, wide_w, wide_y;
  thread_local std::vector<std::byte> workspace;
  auto* const result = static_cast<__nv_bfloat16*>(data.result(problem.pass));
  for (const Operand& operand :
       {Operand{data.x, problem.x_count(), wide_x}, Operand{data.w, problem.w_count(), wide_w},
        Operand{data.y, problem.y_count(), wide_y}}) {
    if (operand.wide.size() < operand.count) operand.wide.resize(operand.count);
    if (operand.address != result || beta != 0)
      widen(static_cast<const __nv_bfloat16*>(operand.address), operand.wide.data(), operand.count);
    operand.address = operand.wide.data();
  }
  if (workspace.size() < float_convolution_.workspace_bytes())
    workspace.resize(float_convolution_.workspace_bytes());
  float_convolution_.run(alpha, data, workspace.data(), beta);
  narrow(static_cast<const float*>(data.result(problem.pass)), result, problem.result_count());
}

}  // namespace hostcuda

#include "hostcuda/src/libraries/convolution.h"

#include <map>
#include <memory>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

#include "hostcuda/src/libraries/bfloat16_convolution.h"
#include "hostcuda/src/libraries/onednn_convolution.h"
#include "hostcuda/src/libraries/onednn_operands.h"
#include "hostcuda/src/libraries/onednn_rehearsal.h"

namespace hostcuda {
namespace {

std::unique_ptr<const Convolution> make(ConvolutionProblem problem) {
  if (problem.arithmetic == Arithmetic::bfloat16 && !onednn::multiplies_bfloat16(problem))
    problem.arithmetic = Arithmetic::bfloat16_through_float;
  if (problem.arithmetic == Arithmetic::bfloat16_through_float)
    return std::make_unique<Bfloat16Convolution>(problem);
  return std::make_unique<onednn::OnednnConvolution>(problem);
}

}  // namespace

const Convolution& Convolution::get(const ConvolutionProblem& problem) {
  static std::recursive_mutex mutex;  // one convolution may be made of another
  // Never destroyed: a worker may still run one while the process ends.
  static auto& known = *new std::map<ConvolutionProblem, std::unique_ptr<const Convolution>>;
  const std::lock_guard lock(mutex);
  const auto found = known.find(problem);
  if (found != known.end()) return *found->second;
  const Convolution& made = *known.emplace(problem, make(problem)).first->second;
  if (made.problem.arithmetic == Arithmetic::bfloat16_through_float)
    return made;  // a float one was rehearsed
  const size_t element = problem.element_bytes();
  std::vector<std::byte> x(problem.x_count() * element), w(problem.w_count() * element),
      y(problem.y_count() * element), workspace(made.workspace_bytes());
  onednn::rehearse([&] { made.run(1, {x.data(), w.data(), y.data()}, workspace.data(), 0); });
  return made;
}

void Convolution::run(float alpha, ConvolutionData data, void* workspace, float beta) const {
  using onednn::check_read;
  using onednn::check_write;
  const size_t element = problem.element_bytes();
  const auto touch = [&](void* address, size_t count) {
    address == data.result(problem.pass) ? check_write(address, count * element)
                                         : check_read(address, count * element);
  };
  touch(data.x, problem.x_count());
  touch(data.w, problem.w_count());
  touch(data.y, problem.y_count());
  check_write(workspace, workspace_bytes());
  compute(alpha, data, workspace, beta);
}

}  // namespace hostcuda

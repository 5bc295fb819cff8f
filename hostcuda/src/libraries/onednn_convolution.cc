#include "hostcuda/src/libraries/onednn_convolution.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "hostcuda/src/libraries/onednn.h"
#include "hostcuda/src/runtime/processor.h"

namespace hostcuda::onednn {
namespace {

using dnnl::memory;
constexpr size_t kAlignment = 64;

size_t aligned(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

memory::data_type element(const ConvolutionProblem& p) {
  return p.arithmetic == Arithmetic::float32 ? memory::data_type::f32 : memory::data_type::bf16;
}

// A gradient of weights is a sum over the batch: float until it is whole.
memory::data_type weights_element(const ConvolutionProblem& p) {
  return p.pass == Pass::backward_filter ? memory::data_type::f32 : element(p);
}

ConvolutionOperands describe(const ConvolutionProblem& p) {
  using tag = memory::format_tag;
  const tag layout = p.activations == Layout::nhwc ? tag::nhwc : tag::nchw;
  return {memory::desc({p.n, p.c, p.h, p.w}, element(p), layout),
          memory::desc({p.k, p.c, p.kernel_h, p.kernel_w}, weights_element(p), tag::any),
          memory::desc({p.n, p.k, p.out_h, p.out_w}, element(p), layout),
          memory::desc({p.k, p.c, p.kernel_h, p.kernel_w}, element(p), tag::any),
          {p.stride_h, p.stride_w},
          {p.padding_h, p.padding_w}};
}

}  // namespace

bool multiplies_bfloat16(const ConvolutionProblem& problem) {
  if (!processor::has_fast_bfloat16()) return false;
  const ThreadScope threads(problem.threads);
  const ConvolutionOperands operands = describe(problem);
  try {
    if (problem.pass == Pass::forward) return !is_reference(forward(operands, caller_gives_scratch()));
    if (problem.pass == Pass::backward_data)
      return !is_reference(backward_data(operands, caller_gives_scratch()));
    return !is_reference(backward_weights(operands, caller_gives_scratch()));
  } catch (const dnnl::error&) {
    return false;
  }
}

struct OnednnConvolution::Prepared {
  memory::desc x, w, y;   // as the caller has them
  memory::desc packed_w;  // as oneDNN wants the weights
  memory::desc scratch;
  dnnl::primitive pass;
  std::optional<dnnl::reorder> reorder;  // of the weights: before the pass, or after it for their gradient
};

namespace {

// The memory objects of a prepared convolution for one thread: a call only sets their addresses.
struct Operands {
  memory x, w, y, packed_w, scratch;
  std::unordered_map<int, memory> arguments;

  template <typename Prepared>
  Operands(const Prepared& p, Pass pass)
      : x(p.x, cpu(), DNNL_MEMORY_NONE),
        w(p.w, cpu(), DNNL_MEMORY_NONE),
        y(p.y, cpu(), DNNL_MEMORY_NONE),
        packed_w(p.packed_w, cpu(), DNNL_MEMORY_NONE),
        scratch(p.scratch, cpu(), DNNL_MEMORY_NONE) {
    arguments = {
        {pass == Pass::backward_data ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, x},
        {pass == Pass::backward_filter ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, p.reorder ? packed_w : w},
        {pass == Pass::forward ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, y},
        {DNNL_ARG_SCRATCHPAD, scratch}};
  }
};

// result = alpha computed + beta result.
void blend(float alpha, const float* computed, float beta, float* result, size_t count) {
  if (beta == 0)
    for (size_t i = 0; i < count; ++i) result[i] = alpha * computed[i];
  else
    for (size_t i = 0; i < count; ++i) result[i] = alpha * computed[i] + beta * result[i];
}

}  // namespace

OnednnConvolution::~OnednnConvolution() = default;

OnednnConvolution::OnednnConvolution(const ConvolutionProblem& p)
    : Convolution(p), prepared_([&] {
        auto prepared = std::make_unique<Prepared>();
        const ThreadScope threads(p.threads);
        const ConvolutionOperands operands = describe(p);
        const dnnl::primitive_attr attributes = caller_gives_scratch();
        prepared->x = operands.x;
        prepared->y = operands.y;
        prepared->w =
            memory::desc({p.k, p.c, p.kernel_h, p.kernel_w}, element(p),
                         p.filter == Layout::nhwc ? memory::format_tag::ohwi : memory::format_tag::oihw);
        if (p.pass == Pass::forward) {
          const auto description = forward(operands, attributes);
          prepared->packed_w = description.weights_desc();
          prepared->scratch = description.scratchpad_desc();
          prepared->pass = dnnl::convolution_forward(description);
        } else if (p.pass == Pass::backward_data) {
          const auto description = backward_data(operands, attributes);
          prepared->packed_w = description.weights_desc();
          prepared->scratch = description.scratchpad_desc();
          prepared->pass = dnnl::convolution_backward_data(description);
        } else {
          const auto description = backward_weights(operands, attributes);
          prepared->packed_w = description.diff_weights_desc();
          prepared->scratch = description.scratchpad_desc();
          prepared->pass = dnnl::convolution_backward_weights(description);
        }
        if (prepared->packed_w != prepared->w) {
          const bool gradient = p.pass == Pass::backward_filter;
          prepared->reorder.emplace(
              dnnl::reorder::primitive_desc(cpu(), gradient ? prepared->packed_w : prepared->w, cpu(),
                                            gradient ? prepared->w : prepared->packed_w));
        }
        return prepared;
      }()) {}

size_t OnednnConvolution::workspace_bytes() const {
  const size_t packed = prepared_->reorder ? aligned(prepared_->packed_w.get_size()) : 0;
  const size_t scratch = aligned(prepared_->scratch.get_size());
  return packed + scratch == 0 ? 0 : packed + scratch + kAlignment;
}

void OnednnConvolution::compute(float alpha, ConvolutionData data, void* workspace, float beta) const {
  const Prepared& p = *prepared_;
  void* const destination = data.result(problem.pass);

  // The rare call that scales or adds computes beside the result first.
  thread_local std::vector<float> beside;
  const size_t count = problem.result_count();
  const bool direct = alpha == 1 && beta == 0;
  if (!direct) {
    if (beside.size() < count) beside.resize(count);
    data.result(problem.pass) = beside.data();
  }

  const ThreadScope threads(problem.threads);
  thread_local dnnl::stream stream(cpu());
  thread_local std::unordered_map<const Convolution*, Operands> bound;
  Operands& operands = bound.try_emplace(this, p, problem.pass).first->second;
  const auto start =
      reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(workspace) + kAlignment - 1) & ~(kAlignment - 1));
  operands.x.set_data_handle(data.x);
  operands.w.set_data_handle(data.w);
  operands.y.set_data_handle(data.y);
  char* scratch = start;
  if (p.reorder) {
    operands.packed_w.set_data_handle(start);
    scratch += aligned(p.packed_w.get_size());
  }
  operands.scratch.set_data_handle(scratch);

  const bool gradient = problem.pass == Pass::backward_filter;
  if (p.reorder && !gradient) p.reorder->execute(stream, operands.w, operands.packed_w);
  p.pass.execute(stream, operands.arguments);
  if (p.reorder && gradient) p.reorder->execute(stream, operands.packed_w, operands.w);
  stream.wait();

  if (!direct) blend(alpha, beside.data(), beta, static_cast<float*>(destination), count);
}

}  // namespace hostcuda::onednn

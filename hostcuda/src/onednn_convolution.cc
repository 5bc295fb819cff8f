#include "onednn_convolution.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "onednn.h"
#include "onednn_operands.h"
#include "onednn_rehearsal.h"

namespace hostcuda::onednn {
namespace {

using dnnl::memory;
constexpr size_t kAlignment = 64;

size_t aligned(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

ConvolutionOperands describe(const ConvolutionProblem& p) {
  using tag = memory::format_tag;
  const auto type = memory::data_type::f32;
  const tag layout = p.activations == Layout::nhwc ? tag::nhwc : tag::nchw;
  return {memory::desc({p.n, p.c, p.h, p.w}, type, layout),
          memory::desc({p.k, p.c, p.kernel_h, p.kernel_w}, type, tag::any),
          memory::desc({p.n, p.k, p.out_h, p.out_w}, type, layout),
          {p.stride_h, p.stride_w},
          {p.padding_h, p.padding_w}};
}

}  // namespace

struct Convolution::Prepared {
  ConvolutionProblem problem;
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
  explicit Operands(const Prepared& p)
      : x(p.x, cpu(), DNNL_MEMORY_NONE),
        w(p.w, cpu(), DNNL_MEMORY_NONE),
        y(p.y, cpu(), DNNL_MEMORY_NONE),
        packed_w(p.packed_w, cpu(), DNNL_MEMORY_NONE),
        scratch(p.scratch, cpu(), DNNL_MEMORY_NONE) {
    const Pass pass = p.problem.pass;
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

Convolution::~Convolution() = default;

Convolution::Convolution(const ConvolutionProblem& problem)
    : prepared_([&] {
        auto p = std::make_unique<Prepared>();
        const ThreadScope threads(problem.threads);
        const ConvolutionOperands operands = describe(problem);
        dnnl::primitive_attr attributes;
        attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
        p->problem = problem;
        p->x = operands.x;
        p->y = operands.y;
        p->w = memory::desc(
            {problem.k, problem.c, problem.kernel_h, problem.kernel_w}, memory::data_type::f32,
            problem.filter == Layout::nhwc ? memory::format_tag::ohwi : memory::format_tag::oihw);
        if (problem.pass == Pass::forward) {
          const auto description = forward(operands, attributes);
          p->packed_w = description.weights_desc();
          p->scratch = description.scratchpad_desc();
          p->pass = dnnl::convolution_forward(description);
        } else if (problem.pass == Pass::backward_data) {
          const auto description = backward_data(operands, attributes);
          p->packed_w = description.weights_desc();
          p->scratch = description.scratchpad_desc();
          p->pass = dnnl::convolution_backward_data(description);
        } else {
          const auto description = backward_weights(operands, attributes);
          p->packed_w = description.diff_weights_desc();
          p->scratch = description.scratchpad_desc();
          p->pass = dnnl::convolution_backward_weights(description);
        }
        if (p->packed_w != p->w) {
          const bool gradient = problem.pass == Pass::backward_filter;
          p->reorder.emplace(dnnl::reorder::primitive_desc(cpu(), gradient ? p->packed_w : p->w, cpu(),
                                                           gradient ? p->w : p->packed_w));
        }
        return p;
      }()) {}

const Convolution& Convolution::get(const ConvolutionProblem& problem) {
  static std::mutex mutex;
  // Never destroyed: a worker may still run one while the process ends.
  static auto& known = *new std::map<ConvolutionProblem, std::unique_ptr<const Convolution>>;
  const std::lock_guard lock(mutex);
  const auto found = known.find(problem);
  if (found != known.end()) return *found->second;
  const Convolution& made =
      *known.emplace(problem, std::unique_ptr<const Convolution>(new Convolution(problem))).first->second;
  const Prepared& p = *made.prepared_;
  std::vector<std::byte> x(p.x.get_size()), w(p.w.get_size()), y(p.y.get_size()),
      workspace(made.workspace_bytes());
  rehearse([&] { made.run(1, x.data(), w.data(), y.data(), workspace.data(), 0); });
  return made;
}

size_t Convolution::workspace_bytes() const {
  const size_t packed = prepared_->reorder ? aligned(prepared_->packed_w.get_size()) : 0;
  const size_t scratch = aligned(prepared_->scratch.get_size());
  // The caller's workspace may start at any address.
  return packed + scratch == 0 ? 0 : packed + scratch + kAlignment;
}

void Convolution::run(float alpha, void* x, void* w, void* y, void* workspace, float beta) const {
  const Prepared& p = *prepared_;
  const Pass pass = p.problem.pass;
  const memory::desc& result_desc = pass == Pass::forward ? p.y : pass == Pass::backward_data ? p.x : p.w;
  void*& result = pass == Pass::forward ? y : pass == Pass::backward_data ? x : w;
  void* const destination = result;
  if (pass != Pass::backward_data) check_read(x, p.x.get_size());
  if (pass != Pass::backward_filter) check_read(w, p.w.get_size());
  if (pass != Pass::forward) check_read(y, p.y.get_size());
  check_write(destination, result_desc.get_size());
  check_write(workspace, workspace_bytes());

  // The rare call that scales or adds computes beside the result first.
  thread_local std::vector<float> beside;
  const size_t count = result_desc.get_size() / sizeof(float);
  const bool direct = alpha == 1 && beta == 0;
  if (!direct) {
    if (beside.size() < count) beside.resize(count);
    result = beside.data();
  }

  const ThreadScope threads(p.problem.threads);
  thread_local dnnl::stream stream(cpu());
  thread_local std::unordered_map<const Convolution*, Operands> bound;
  Operands& operands = bound.try_emplace(this, p).first->second;
  const auto start =
      reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(workspace) + kAlignment - 1) & ~(kAlignment - 1));
  operands.x.set_data_handle(x);
  operands.w.set_data_handle(w);
  operands.y.set_data_handle(y);
  char* scratch = start;
  if (p.reorder) {
    operands.packed_w.set_data_handle(start);
    scratch += aligned(p.packed_w.get_size());
  }
  operands.scratch.set_data_handle(scratch);

  if (p.reorder && pass != Pass::backward_filter) p.reorder->execute(stream, operands.w, operands.packed_w);
  p.pass.execute(stream, operands.arguments);
  if (p.reorder && pass == Pass::backward_filter) p.reorder->execute(stream, operands.packed_w, operands.w);
  stream.wait();

  if (!direct) blend(alpha, beside.data(), beta, static_cast<float*>(destination), count);
}

}  // namespace hostcuda::onednn

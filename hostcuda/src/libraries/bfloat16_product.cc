// oneDNN is row-major: a column-major matrix is its transpose in row-major order, so the result is computed
// as op(B)' op(A)'.
#include "hostcuda/src/libraries/bfloat16_product.h"

#include <map>
#include <memory>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>
#include <vector>

#include "hostcuda/src/libraries/bfloat16.h"
#include "hostcuda/src/libraries/onednn.h"
#include "hostcuda/src/runtime/processor.h"

namespace hostcuda {
namespace {

using dnnl::memory;

struct Prepared {
  memory::desc left, right, result, scratch;
  dnnl::matmul product;
};

// Empty where oneDNN would emulate it.
std::unique_ptr<const Prepared> prepare(const Bfloat16Product& p) {
  if (!processor::has_fast_bfloat16()) return nullptr;
  const auto strides = [](bool transposed, int64_t leading) {
    return transposed ? memory::dims{1, leading} : memory::dims{leading, 1};
  };
  const auto type = memory::data_type::bf16;
  auto made = std::make_unique<Prepared>();
  made->left = memory::desc({p.n, p.k}, type, strides(p.transpose_b, p.ldb));
  made->right = memory::desc({p.k, p.m}, type, strides(p.transpose_a, p.lda));
  made->result = memory::desc({p.n, p.m}, memory::data_type::f32, memory::format_tag::ab);
  try {
    const auto description = onednn::matmul(made->left, made->right, made->result);
    if (onednn::is_reference(description)) return nullptr;
    made->scratch = description.scratchpad_desc();
    made->product = dnnl::matmul(description);
  } catch (const dnnl::error&) {
    return nullptr;
  }
  return made;
}

// The one for this shape, made at the first call and kept for the life of the process.
const Prepared* find(const Bfloat16Product& p) {
  static std::mutex mutex;
  static auto& known = *new std::map<Bfloat16Product, std::unique_ptr<const Prepared>>;
  const std::lock_guard lock(mutex);
  const auto found = known.find(p);
  return (found != known.end() ? found : known.emplace(p, prepare(p)).first)->second.get();
}

void multiply_in_bfloat16(const Prepared& p, const __nv_bfloat16* a, const __nv_bfloat16* b, float* result) {
  struct Operands {
    memory left, right, result, scratch;
    std::unordered_map<int, memory> arguments;
    explicit Operands(const Prepared& made)
        : left(made.left, onednn::cpu(), DNNL_MEMORY_NONE),
          right(made.right, onednn::cpu(), DNNL_MEMORY_NONE),
          result(made.result, onednn::cpu(), DNNL_MEMORY_NONE),
          scratch(made.scratch, onednn::cpu(), DNNL_MEMORY_NONE),
          arguments{{DNNL_ARG_SRC, left},
                    {DNNL_ARG_WEIGHTS, right},
                    {DNNL_ARG_DST, result},
                    {DNNL_ARG_SCRATCHPAD, scratch}} {}
  };
  thread_local dnnl::stream stream(onednn::cpu());
  thread_local std::unordered_map<const Prepared*, Operands> bound;
  thread_local std::vector<std::byte> workspace;
  Operands& operands = bound.try_emplace(&p, p).first->second;
  if (workspace.size() < p.scratch.get_size()) workspace.resize(p.scratch.get_size());
  operands.left.set_data_handle(const_cast<__nv_bfloat16*>(b));
  operands.right.set_data_handle(const_cast<__nv_bfloat16*>(a));
  operands.result.set_data_handle(result);
  operands.scratch.set_data_handle(workspace.data());
  p.product.execute(stream, operands.arguments);
  stream.wait();
}

// Dense floats: the columns follow each other.
const float* widen_columns(const __nv_bfloat16* matrix, int64_t rows, int64_t columns, int64_t leading,
                           std::vector<float>& wide) {
  const size_t count = static_cast<size_t>(rows * columns);
  if (wide.size() < count) wide.resize(count);
  for (int64_t column = 0; column < columns; ++column)
    widen(matrix + column * leading, wide.data() + column * rows, static_cast<size_t>(rows));
  return wide.data();
}

void multiply_in_float(const Bfloat16Product& p, const __nv_bfloat16* a, const __nv_bfloat16* b,
                       float* result) {
  thread_local std::vector<float> wide_a, wide_b;
  const int64_t a_rows = p.transpose_a ? p.k : p.m, b_rows = p.transpose_b ? p.n : p.k;
  const float* const right = widen_columns(a, a_rows, p.m + p.k - a_rows, p.lda, wide_a);
  const float* const left = widen_columns(b, b_rows, p.n + p.k - b_rows, p.ldb, wide_b);
  dnnl_sgemm(p.transpose_b ? 'T' : 'N', p.transpose_a ? 'T' : 'N', p.n, p.m, p.k, 1, left, b_rows, right,
             a_rows, 0, result, p.m);
}

}  // namespace

void multiply(const Bfloat16Product& p, const __nv_bfloat16* a, const __nv_bfloat16* b, float* result) {
  const onednn::ThreadScope threads(p.threads);
  if (const Prepared* const prepared = find(p))
    multiply_in_bfloat16(*prepared, a, b, result);
  else
    multiply_in_float(p, a, b, result);
}

}  // namespace hostcuda

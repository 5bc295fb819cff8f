// cuDNN's convolution calls: what they accept, their algorithms and workspaces. The work is enqueued on the
// handle's stream: a convolution of our own, where it covers the shape (winograd.h, implicit_gemm.h), or one
// of oneDNN.
//
// What NVIDIA's documentation restricts for NHWC filters is restricted here: the tensors are packed NHWC too;
// forward has IMPLICIT_GEMM and IMPLICIT_PRECOMP_GEMM, both backward passes have ALGO_0 and ALGO_1, in
// float32 (cuDNN API reference, "cudnnConvolutionForward" and "cudnnConvolutionBackwardFilter", supported
// algorithms for wDesc or dwDesc in CUDNN_TENSOR_NHWC). It names no multiple that float32 channel counts must
// have, so 1, 6 or 50 channels are accepted. Those algorithms are here for NCHW as well. WINOGRAD_NONFUSED is
// here for NHWC, and only where it is the fastest; NVIDIA has it for NCHW filters. Tensors that are not
// packed, groups, dilation and flipped filters are not covered.
#include <cstdlib>
#include <cstring>
#include <functional>
#include <oneapi/dnnl/dnnl.hpp>
#include <utility>

#include "hostcuda/src/libraries/convolution.h"
#include "hostcuda/src/libraries/cudnn_descriptors.h"
#include "hostcuda/src/libraries/cudnn_handle.h"
#include "hostcuda/src/libraries/implicit_gemm.h"
#include "hostcuda/src/libraries/onednn.h"
#include "hostcuda/src/libraries/winograd.h"
#include "hostcuda/src/runtime/processor.h"
#include "hostcuda/src/runtime/share.h"
#include "hostcuda/src/runtime/tally.h"

namespace {

namespace implicit_gemm = hostcuda::implicit_gemm;
namespace winograd = hostcuda::winograd;
using hostcuda::Arithmetic;
using hostcuda::Convolution;
using hostcuda::ConvolutionProblem;
using hostcuda::Layout;
using hostcuda::Pass;

bool is_packed(const cudnnTensorStruct& t, Layout layout) {
  const bool nhwc = layout == Layout::nhwc;
  const auto matches = [](int size, int stride, int packed) { return size == 1 || stride == packed; };
  return matches(t.n, t.n_stride, t.c * t.h * t.w) && matches(t.c, t.c_stride, nhwc ? 1 : t.h * t.w) &&
         matches(t.h, t.h_stride, nhwc ? t.w * t.c : t.w) && matches(t.w, t.w_stride, nhwc ? t.c : 1);
}

// Rows or columns of the output; 0 or less: the filter does not fit.
int output_size(int input, int padding, int kernel, int dilation, int stride) {
  const int room = input + 2 * padding - ((kernel - 1) * dilation + 1);
  return room < 0 ? 0 : room / stride + 1;
}

cudnnStatus_t describe(Pass pass, const cudnnTensorStruct* x, const cudnnFilterStruct* w,
                       const cudnnConvolutionStruct* convolution, const cudnnTensorStruct* y,
                       ConvolutionProblem* problem, bool scaled = false) {
  if (x == nullptr || w == nullptr || convolution == nullptr || y == nullptr || x->n == 0 || w->k == 0 ||
      y->n == 0 || convolution->stride_h == 0)
    return CUDNN_STATUS_BAD_PARAM;
  const cudnnConvolutionStruct& o = *convolution;
  if (x->n != y->n || x->c != w->c * o.groups || y->c != w->k ||
      y->h != output_size(x->h, o.padding_h, w->h, o.dilation_h, o.stride_h) ||
      y->w != output_size(x->w, o.padding_w, w->w, o.dilation_w, o.stride_w))
    return CUDNN_STATUS_BAD_PARAM;
  if (x->type != y->type || x->type != w->type) return CUDNN_STATUS_BAD_PARAM;
  const bool bfloat16 = x->type == CUDNN_DATA_BFLOAT16;
  if ((x->type != CUDNN_DATA_FLOAT && !bfloat16) || o.compute_type != CUDNN_DATA_FLOAT || o.groups != 1 ||
      o.dilation_h != 1 || o.dilation_w != 1 || o.mode != CUDNN_CROSS_CORRELATION)
    return CUDNN_STATUS_NOT_SUPPORTED;
  const Layout filter = w->format == CUDNN_TENSOR_NHWC ? Layout::nhwc : Layout::nchw;
  Layout activations;
  if (is_packed(*x, Layout::nhwc) && is_packed(*y, Layout::nhwc))
    activations = Layout::nhwc;
  else if (filter == Layout::nchw && is_packed(*x, Layout::nchw) && is_packed(*y, Layout::nchw))
    activations = Layout::nchw;
  else
    return CUDNN_STATUS_NOT_SUPPORTED;
  const Arithmetic arithmetic = !bfloat16 ? Arithmetic::float32
                                : scaled  ? Arithmetic::bfloat16_through_float
                                          : Arithmetic::bfloat16;
  *problem = {pass, arithmetic,  activations, filter,     x->n,       x->c,
              x->h, x->w,        w->k,        w->h,       w->w,       y->h,
              y->w, o.padding_h, o.padding_w, o.stride_h, o.stride_w, hostcuda::onednn::call_threads()};
  return CUDNN_STATUS_SUCCESS;
}

// The best algorithm comes first. The code behind the other two is the same.
template <typename Algorithm>
struct Algorithms {
  Algorithm winograd, library[2];
};

constexpr Algorithms<cudnnConvolutionFwdAlgo_t> kForward = {
    CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED,
    {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM}};
constexpr Algorithms<cudnnConvolutionBwdDataAlgo_t> kBackwardData = {
    CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED,
    {CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, CUDNN_CONVOLUTION_BWD_DATA_ALGO_0}};
constexpr Algorithms<cudnnConvolutionBwdFilterAlgo_t> kBackwardFilter = {
    CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED,
    {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0}};

// Our own convolutions multiply floats always, and are the fastest where they are there, but for bfloat16 on
// some processors: Winograd's saves more than is gained by anything but matrix units.
bool has_winograd(const ConvolutionProblem& problem) {
  const bool beaten = problem.arithmetic != Arithmetic::float32 && hostcuda::processor::has_bfloat16_tiles();
  return winograd::supports(problem) && !beaten;
}

bool has_implicit_gemm(const ConvolutionProblem& problem) {
  const bool beaten = problem.arithmetic != Arithmetic::float32 && hostcuda::processor::has_fast_bfloat16();
  return implicit_gemm::supports(problem) && !beaten;
}

enum class Method { winograd, library, none };

template <typename Algorithm>
Method method(const Algorithms<Algorithm>& known, Algorithm algorithm) {
  if (algorithm == known.winograd) return Method::winograd;
  return algorithm == known.library[0] || algorithm == known.library[1] ? Method::library : Method::none;
}

// What computes a problem, and the workspace that it needs.
struct Implementation {
  size_t workspace_bytes;
  std::function<cudaError_t(hostcuda::Device&, float alpha, const hostcuda::ConvolutionData&, void* workspace,
                            float beta)>
      run;
};

// Whichever is faster for the problem of our own product and oneDNN's.
cudnnStatus_t find_library(const ConvolutionProblem& problem, Implementation* found) {
  if (has_implicit_gemm(problem)) {
    *found = {implicit_gemm::workspace_bytes(problem),
              [problem](hostcuda::Device& device, float alpha, const hostcuda::ConvolutionData& data,
                        void* workspace, float beta) {
                return implicit_gemm::run(device, problem, alpha, data, workspace, beta);
              }};
    return CUDNN_STATUS_SUCCESS;
  }
  try {
    const Convolution& convolution = Convolution::get(problem);
    *found = {convolution.workspace_bytes(),
              [&convolution](hostcuda::Device&, float alpha, const hostcuda::ConvolutionData& data,
                             void* workspace, float beta) {
                convolution.run(alpha, data, workspace, beta);
                return cudaSuccess;
              }};
  } catch (const dnnl::error& error) {
    return error.status == dnnl_unimplemented || error.status == dnnl_invalid_arguments
               ? CUDNN_STATUS_NOT_SUPPORTED
               : CUDNN_STATUS_INTERNAL_ERROR;
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t find(Method method, const ConvolutionProblem& problem, Implementation* found) {
  if (method == Method::library) return find_library(problem, found);
  if (method == Method::none || !has_winograd(problem)) return CUDNN_STATUS_NOT_SUPPORTED;
  *found = {
      winograd::workspace_bytes(problem),
      [problem](hostcuda::Device& device, float alpha, const hostcuda::ConvolutionData& data, void* workspace,
                float beta) { return winograd::run(device, problem, alpha, data, workspace, beta); }};
  return CUDNN_STATUS_SUCCESS;
}

// HOSTCUDA_CUDNN_REFUSES=3007: every question for algorithms is answered with this status, one of "not
// supported", so that a program can be tested with a cuDNN that has less. run:3007: questions are answered,
// and every convolution then declines.
cudnnStatus_t asked_to_answer(bool running) {
  const char* text = std::getenv("HOSTCUDA_CUDNN_REFUSES");
  if (text == nullptr || (std::strncmp(text, "run:", 4) == 0) != running) return CUDNN_STATUS_SUCCESS;
  const int code = std::atoi(running ? text + 4 : text);
  return code == 9 || (code >= 3000 && code < 4000) ? static_cast<cudnnStatus_t>(code) : CUDNN_STATUS_SUCCESS;
}

template <typename Algorithm, typename Perf>
cudnnStatus_t list_algorithms(const Algorithms<Algorithm>& known, cudnnHandle_t handle, Pass pass,
                              const cudnnTensorStruct* x, const cudnnFilterStruct* w,
                              const cudnnConvolutionStruct* convolution, const cudnnTensorStruct* y,
                              int requested, int* returned, Perf* results) {
  if (handle == nullptr || returned == nullptr || results == nullptr || requested < 1)
    return CUDNN_STATUS_BAD_PARAM;
  if (const cudnnStatus_t answer = asked_to_answer(false); answer != CUDNN_STATUS_SUCCESS) return answer;
  ConvolutionProblem problem;
  const cudnnStatus_t status = describe(pass, x, w, convolution, y, &problem);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  int count = 0;
  Implementation found;
  const auto answer = [&](Algorithm algorithm) {
    if (count < requested)
      results[count++] = {algorithm,           CUDNN_STATUS_SUCCESS, -1.0f,    found.workspace_bytes,
                          CUDNN_DETERMINISTIC, convolution->math,    {0, 0, 0}};
  };
  if (find(Method::winograd, problem, &found) == CUDNN_STATUS_SUCCESS) answer(known.winograd);
  const cudnnStatus_t library = find(Method::library, problem, &found);
  if (library != CUDNN_STATUS_SUCCESS && count == 0) return library;
  if (library == CUDNN_STATUS_SUCCESS)
    for (const Algorithm algorithm : known.library) answer(algorithm);
  *returned = count;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t workspace_size(Method method, cudnnHandle_t handle, Pass pass, const cudnnTensorStruct* x,
                             const cudnnFilterStruct* w, const cudnnConvolutionStruct* convolution,
                             const cudnnTensorStruct* y, size_t* bytes) {
  if (handle == nullptr || bytes == nullptr) return CUDNN_STATUS_BAD_PARAM;
  ConvolutionProblem problem;
  const cudnnStatus_t status = describe(pass, x, w, convolution, y, &problem);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  Implementation found;
  const cudnnStatus_t answer = find(method, problem, &found);
  if (answer == CUDNN_STATUS_SUCCESS) *bytes = found.workspace_bytes;
  return answer;
}

struct Tensors {
  const cudnnTensorStruct* x_descriptor;
  const void* x;
  const cudnnFilterStruct* w_descriptor;
  const void* w;
  const cudnnTensorStruct* y_descriptor;
  const void* y;
};

// As the matrix product that it is: of pixels by channels in the forward pass.
void describe_to_forecast(const ConvolutionProblem& p, cudnnMathType_t math) {
  hostcuda::Operation operation;
  operation.kind = hostcuda::Operation::Kind::convolution;
  operation.arithmetics = p.arithmetic != Arithmetic::float32 ? hostcuda::Arithmetics::bf16
                          : math == CUDNN_FMA_MATH            ? hostcuda::Arithmetics::fp32
                                                              : hostcuda::Arithmetics::tf32;
  const double pixels = static_cast<double>(p.n) * p.out_h * p.out_w;
  const double window = static_cast<double>(p.c) * p.kernel_h * p.kernel_w;
  double sizes[3] = {pixels, static_cast<double>(p.k), window};
  if (p.pass == Pass::backward_data) std::swap(sizes[1], sizes[2]);
  if (p.pass == Pass::backward_filter) std::swap(sizes[0], sizes[2]);
  operation.rows = sizes[0], operation.columns = sizes[1], operation.depth = sizes[2];
  operation.bytes =
      static_cast<double>(p.element_bytes()) * static_cast<double>(p.x_count() + p.w_count() + p.y_count());
  hostcuda::describe_call(operation);
}

cudnnStatus_t run(const char* name, Method method, cudnnHandle_t handle, Pass pass, const void* alpha,
                  const Tensors& t, const cudnnConvolutionStruct* convolution, void* workspace, size_t bytes,
                  const void* beta) {
  if (handle == nullptr || alpha == nullptr || beta == nullptr || t.x == nullptr || t.w == nullptr ||
      t.y == nullptr)
    return CUDNN_STATUS_BAD_PARAM;
  ConvolutionProblem problem;
  const float scale = *static_cast<const float*>(alpha), keep = *static_cast<const float*>(beta);
  cudnnStatus_t status = describe(pass, t.x_descriptor, t.w_descriptor, convolution, t.y_descriptor, &problem,
                                  scale != 1 || keep != 0);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  if (status = asked_to_answer(true); status != CUDNN_STATUS_SUCCESS) return status;
  Implementation found;
  status = find(method, problem, &found);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  if (bytes < found.workspace_bytes) return CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT;
  if (workspace == nullptr && found.workspace_bytes > 0) return CUDNN_STATUS_BAD_PARAM;
  const hostcuda::ConvolutionData data{const_cast<void*>(t.x), const_cast<void*>(t.w),
                                       const_cast<void*>(t.y)};
  const auto call = [compute = std::move(found.run), scale, keep, data, workspace](hostcuda::Device& device) {
    return compute(device, scale, data, workspace, keep);
  };
  describe_to_forecast(problem, convolution->math);
  return hostcuda::enqueue_shared_call(name, call, handle->stream) == cudaSuccess
             ? CUDNN_STATUS_SUCCESS
             : CUDNN_STATUS_EXECUTION_FAILED_CUDART;
}

}  // namespace

extern "C" {

cudnnStatus_t cudnnGetConvolution2dForwardOutputDim(const cudnnConvolutionDescriptor_t convolution,
                                                    const cudnnTensorDescriptor_t x,
                                                    const cudnnFilterDescriptor_t w, int* n, int* c, int* h,
                                                    int* width) {
  if (convolution == nullptr || x == nullptr || w == nullptr || convolution->stride_h == 0 ||
      x->c != w->c * convolution->groups)
    return CUDNN_STATUS_BAD_PARAM;
  const int out_h =
      output_size(x->h, convolution->padding_h, w->h, convolution->dilation_h, convolution->stride_h);
  const int out_w =
      output_size(x->w, convolution->padding_w, w->w, convolution->dilation_w, convolution->stride_w);
  if (out_h <= 0 || out_w <= 0) return CUDNN_STATUS_BAD_PARAM;
  *n = x->n;
  *c = w->k;
  *h = out_h;
  *width = out_w;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t handle, const cudnnTensorDescriptor_t x,
                                                     const cudnnFilterDescriptor_t w,
                                                     const cudnnConvolutionDescriptor_t convolution,
                                                     const cudnnTensorDescriptor_t y, const int requested,
                                                     int* returned, cudnnConvolutionFwdAlgoPerf_t* results) {
  return list_algorithms(kForward, handle, Pass::forward, x, w, convolution, y, requested, returned, results);
}

cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(
    cudnnHandle_t handle, const cudnnFilterDescriptor_t w, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t convolution, const cudnnTensorDescriptor_t dx, const int requested,
    int* returned, cudnnConvolutionBwdDataAlgoPerf_t* results) {
  return list_algorithms(kBackwardData, handle, Pass::backward_data, dx, w, convolution, dy, requested,
                         returned, results);
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t convolution, const cudnnFilterDescriptor_t dw, const int requested,
    int* returned, cudnnConvolutionBwdFilterAlgoPerf_t* results) {
  return list_algorithms(kBackwardFilter, handle, Pass::backward_filter, x, dw, convolution, dy, requested,
                         returned, results);
}

cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t handle, const cudnnTensorDescriptor_t x,
                                                      const cudnnFilterDescriptor_t w,
                                                      const cudnnConvolutionDescriptor_t convolution,
                                                      const cudnnTensorDescriptor_t y,
                                                      cudnnConvolutionFwdAlgo_t algorithm, size_t* bytes) {
  return workspace_size(method(kForward, algorithm), handle, Pass::forward, x, w, convolution, y, bytes);
}

cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(
    cudnnHandle_t handle, const cudnnFilterDescriptor_t w, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t convolution, const cudnnTensorDescriptor_t dx,
    cudnnConvolutionBwdDataAlgo_t algorithm, size_t* bytes) {
  return workspace_size(method(kBackwardData, algorithm), handle, Pass::backward_data, dx, w, convolution, dy,
                        bytes);
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t convolution, const cudnnFilterDescriptor_t dw,
    cudnnConvolutionBwdFilterAlgo_t algorithm, size_t* bytes) {
  return workspace_size(method(kBackwardFilter, algorithm), handle, Pass::backward_filter, x, dw, convolution,
                        dy, bytes);
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha,
                                      const cudnnTensorDescriptor_t x_descriptor, const void* x,
                                      const cudnnFilterDescriptor_t w_descriptor, const void* w,
                                      const cudnnConvolutionDescriptor_t convolution,
                                      cudnnConvolutionFwdAlgo_t algorithm, void* workspace, size_t bytes,
                                      const void* beta, const cudnnTensorDescriptor_t y_descriptor, void* y) {
  return run("cudnnConvolutionForward", method(kForward, algorithm), handle, Pass::forward, alpha,
             {x_descriptor, x, w_descriptor, w, y_descriptor, y}, convolution, workspace, bytes, beta);
}

cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void* alpha,
                                           const cudnnFilterDescriptor_t w_descriptor, const void* w,
                                           const cudnnTensorDescriptor_t dy_descriptor, const void* dy,
                                           const cudnnConvolutionDescriptor_t convolution,
                                           cudnnConvolutionBwdDataAlgo_t algorithm, void* workspace,
                                           size_t bytes, const void* beta,
                                           const cudnnTensorDescriptor_t dx_descriptor, void* dx) {
  return run("cudnnConvolutionBackwardData", method(kBackwardData, algorithm), handle, Pass::backward_data,
             alpha, {dx_descriptor, dx, w_descriptor, w, dy_descriptor, dy}, convolution, workspace, bytes,
             beta);
}

cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void* alpha,
                                             const cudnnTensorDescriptor_t x_descriptor, const void* x,
                                             const cudnnTensorDescriptor_t dy_descriptor, const void* dy,
                                             const cudnnConvolutionDescriptor_t convolution,
                                             cudnnConvolutionBwdFilterAlgo_t algorithm, void* workspace,
                                             size_t bytes, const void* beta,
                                             const cudnnFilterDescriptor_t dw_descriptor, void* dw) {
  return run("cudnnConvolutionBackwardFilter", method(kBackwardFilter, algorithm), handle,
             Pass::backward_filter, alpha, {x_descriptor, x, dw_descriptor, dw, dy_descriptor, dy},
             convolution, workspace, bytes, beta);
}

}  // extern "C"

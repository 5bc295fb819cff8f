// cuDNN's convolution calls: what they accept, their algorithms and workspaces. The work is a Convolution of
// oneDNN, enqueued on the handle's stream.
//
// What NVIDIA's documentation restricts for NHWC filters is restricted here: the tensors are packed NHWC too;
// forward has IMPLICIT_GEMM and IMPLICIT_PRECOMP_GEMM, both backward passes have ALGO_0 and ALGO_1, in
// float32 (cuDNN API reference, "cudnnConvolutionForward" and "cudnnConvolutionBackwardFilter", supported
// algorithms for wDesc or dwDesc in CUDNN_TENSOR_NHWC). It names no multiple that float32 channel counts must
// have, so 1, 6 or 50 channels are accepted. Those algorithms are the only ones here, for NCHW as well;
// tensors that are not packed, groups, dilation and flipped filters are not covered.
#include <oneapi/dnnl/dnnl.hpp>

#include "convolution.h"
#include "cudnn_descriptors.h"
#include "cudnn_handle.h"
#include "hostcuda/launch.h"
#include "onednn.h"

namespace {

using hostcuda::Arithmetic;
using hostcuda::Convolution;
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

cudnnStatus_t find(Pass pass, const cudnnTensorStruct* x, const cudnnFilterStruct* w,
                   const cudnnConvolutionStruct* convolution, const cudnnTensorStruct* y,
                   const Convolution** found, bool scaled = false) {
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
  try {
    *found = &Convolution::get({pass, arithmetic, activations, filter, x->n, x->c, x->h, x->w, w->k, w->h,
                                w->w, y->h, y->w, o.padding_h, o.padding_w, o.stride_h, o.stride_w,
                                hostcuda::onednn::call_threads()});
  } catch (const dnnl::error& error) {
    return error.status == dnnl_unimplemented || error.status == dnnl_invalid_arguments
               ? CUDNN_STATUS_NOT_SUPPORTED
               : CUDNN_STATUS_INTERNAL_ERROR;
  }
  return CUDNN_STATUS_SUCCESS;
}

// The best algorithm comes first; the code behind them is the same.
constexpr cudnnConvolutionFwdAlgo_t kForward[] = {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM,
                                                  CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM};
constexpr cudnnConvolutionBwdDataAlgo_t kBackwardData[] = {CUDNN_CONVOLUTION_BWD_DATA_ALGO_1,
                                                           CUDNN_CONVOLUTION_BWD_DATA_ALGO_0};
constexpr cudnnConvolutionBwdFilterAlgo_t kBackwardFilter[] = {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1,
                                                               CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0};

template <typename Algorithm>
cudnnStatus_t check_algorithm(const Algorithm (&known)[2], Algorithm algorithm) {
  return algorithm == known[0] || algorithm == known[1] ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}

template <typename Algorithm, typename Perf>
cudnnStatus_t list_algorithms(const Algorithm (&known)[2], cudnnHandle_t handle, Pass pass,
                              const cudnnTensorStruct* x, const cudnnFilterStruct* w,
                              const cudnnConvolutionStruct* convolution, const cudnnTensorStruct* y,
                              int requested, int* returned, Perf* results) {
  if (handle == nullptr || returned == nullptr || results == nullptr || requested < 1)
    return CUDNN_STATUS_BAD_PARAM;
  const Convolution* found = nullptr;
  const cudnnStatus_t status = find(pass, x, w, convolution, y, &found);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  *returned = requested < 2 ? 1 : 2;
  for (int i = 0; i < *returned; ++i)
    results[i] = {known[i],
                  CUDNN_STATUS_SUCCESS,
                  -1.0f,
                  found->workspace_bytes(),
                  CUDNN_DETERMINISTIC,
                  convolution->math,
                  {0, 0, 0}};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t workspace_size(cudnnStatus_t algorithm, cudnnHandle_t handle, Pass pass,
                             const cudnnTensorStruct* x, const cudnnFilterStruct* w,
                             const cudnnConvolutionStruct* convolution, const cudnnTensorStruct* y,
                             size_t* bytes) {
  if (handle == nullptr || bytes == nullptr) return CUDNN_STATUS_BAD_PARAM;
  const Convolution* found = nullptr;
  const cudnnStatus_t status = find(pass, x, w, convolution, y, &found);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  if (algorithm != CUDNN_STATUS_SUCCESS) return algorithm;
  *bytes = found->workspace_bytes();
  return CUDNN_STATUS_SUCCESS;
}

struct Tensors {
  const cudnnTensorStruct* x_descriptor;
  const void* x;
  const cudnnFilterStruct* w_descriptor;
  const void* w;
  const cudnnTensorStruct* y_descriptor;
  const void* y;
};

cudnnStatus_t run(const char* name, cudnnStatus_t algorithm, cudnnHandle_t handle, Pass pass,
                  const void* alpha, const Tensors& t, const cudnnConvolutionStruct* convolution,
                  void* workspace, size_t bytes, const void* beta) {
  if (handle == nullptr || alpha == nullptr || beta == nullptr || t.x == nullptr || t.w == nullptr ||
      t.y == nullptr)
    return CUDNN_STATUS_BAD_PARAM;
  const float scale = *static_cast<const float*>(alpha), keep = *static_cast<const float*>(beta);
  const Convolution* found = nullptr;
  const cudnnStatus_t status = find(pass, t.x_descriptor, t.w_descriptor, convolution, t.y_descriptor, &found,
                                    scale != 1 || keep != 0);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  if (algorithm != CUDNN_STATUS_SUCCESS) return algorithm;
  if (bytes < found->workspace_bytes()) return CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT;
  if (workspace == nullptr && found->workspace_bytes() > 0) return CUDNN_STATUS_BAD_PARAM;
  const hostcuda::ConvolutionData data{const_cast<void*>(t.x), const_cast<void*>(t.w),
                                       const_cast<void*>(t.y)};
  const auto call = [found, scale, keep, data, workspace] { found->run(scale, data, workspace, keep); };
  return hostcuda::enqueue_call(name, call, handle->stream) == cudaSuccess
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
  return workspace_size(check_algorithm(kForward, algorithm), handle, Pass::forward, x, w, convolution, y,
                        bytes);
}

cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(
    cudnnHandle_t handle, const cudnnFilterDescriptor_t w, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t convolution, const cudnnTensorDescriptor_t dx,
    cudnnConvolutionBwdDataAlgo_t algorithm, size_t* bytes) {
  return workspace_size(check_algorithm(kBackwardData, algorithm), handle, Pass::backward_data, dx, w,
                        convolution, dy, bytes);
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t convolution, const cudnnFilterDescriptor_t dw,
    cudnnConvolutionBwdFilterAlgo_t algorithm, size_t* bytes) {
  return workspace_size(check_algorithm(kBackwardFilter, algorithm), handle, Pass::backward_filter, x, dw,
                        convolution, dy, bytes);
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha,
                                      const cudnnTensorDescriptor_t x_descriptor, const void* x,
                                      const cudnnFilterDescriptor_t w_descriptor, const void* w,
                                      const cudnnConvolutionDescriptor_t convolution,
                                      cudnnConvolutionFwdAlgo_t algorithm, void* workspace, size_t bytes,
                                      const void* beta, const cudnnTensorDescriptor_t y_descriptor, void* y) {
  return run("cudnnConvolutionForward", check_algorithm(kForward, algorithm), handle, Pass::forward, alpha,
             {x_descriptor, x, w_descriptor, w, y_descriptor, y}, convolution, workspace, bytes, beta);
}

cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void* alpha,
                                           const cudnnFilterDescriptor_t w_descriptor, const void* w,
                                           const cudnnTensorDescriptor_t dy_descriptor, const void* dy,
                                           const cudnnConvolutionDescriptor_t convolution,
                                           cudnnConvolutionBwdDataAlgo_t algorithm, void* workspace,
                                           size_t bytes, const void* beta,
                                           const cudnnTensorDescriptor_t dx_descriptor, void* dx) {
  return run("cudnnConvolutionBackwardData", check_algorithm(kBackwardData, algorithm), handle,
             Pass::backward_data, alpha, {dx_descriptor, dx, w_descriptor, w, dy_descriptor, dy}, convolution,
             workspace, bytes, beta);
}

cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void* alpha,
                                             const cudnnTensorDescriptor_t x_descriptor, const void* x,
                                             const cudnnTensorDescriptor_t dy_descriptor, const void* dy,
                                             const cudnnConvolutionDescriptor_t convolution,
                                             cudnnConvolutionBwdFilterAlgo_t algorithm, void* workspace,
                                             size_t bytes, const void* beta,
                                             const cudnnFilterDescriptor_t dw_descriptor, void* dw) {
  return run("cudnnConvolutionBackwardFilter", check_algorithm(kBackwardFilter, algorithm), handle,
             Pass::backward_filter, alpha, {x_descriptor, x, dw_descriptor, dw, dy_descriptor, dy},
             convolution, workspace, bytes, beta);
}

}  // extern "C"

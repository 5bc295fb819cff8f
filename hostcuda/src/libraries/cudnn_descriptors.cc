// cuDNN's descriptors: made, set, read and destroyed. A descriptor describes any tensor; what can be computed
// with it is decided where it is used.
#include "hostcuda/src/libraries/cudnn_descriptors.h"

#include <new>

namespace {

template <typename T>
cudnnStatus_t create(T** descriptor) {
  if (descriptor == nullptr) return CUDNN_STATUS_BAD_PARAM;
  *descriptor = new (std::nothrow) T;
  return *descriptor == nullptr ? CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED : CUDNN_STATUS_SUCCESS;
}

template <typename T>
cudnnStatus_t destroy(T* descriptor) {
  delete descriptor;
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* descriptor) {
  return create(descriptor);
}
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t descriptor) {
  return destroy(descriptor);
}
cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* descriptor) {
  return create(descriptor);
}
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t descriptor) {
  return destroy(descriptor);
}
cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* descriptor) {
  return create(descriptor);
}
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t descriptor) {
  return destroy(descriptor);
}

cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t descriptor, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w) {
  if (format == CUDNN_TENSOR_NHWC)
    return cudnnSetTensor4dDescriptorEx(descriptor, type, n, c, h, w, h * w * c, 1, w * c, c);
  if (format == CUDNN_TENSOR_NCHW)
    return cudnnSetTensor4dDescriptorEx(descriptor, type, n, c, h, w, c * h * w, h * w, w, 1);
  return CUDNN_STATUS_NOT_SUPPORTED;
}

cudnnStatus_t cudnnSetTensor4dDescriptorEx(cudnnTensorDescriptor_t descriptor, cudnnDataType_t type, int n,
                                           int c, int h, int w, int n_stride, int c_stride, int h_stride,
                                           int w_stride) {
  if (descriptor == nullptr || n <= 0 || c <= 0 || h <= 0 || w <= 0) return CUDNN_STATUS_BAD_PARAM;
  *descriptor = {type, n, c, h, w, n_stride, c_stride, h_stride, w_stride};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetTensor4dDescriptor(const cudnnTensorDescriptor_t descriptor, cudnnDataType_t* type,
                                         int* n, int* c, int* h, int* w, int* n_stride, int* c_stride,
                                         int* h_stride, int* w_stride) {
  if (descriptor == nullptr) return CUDNN_STATUS_BAD_PARAM;
  *type = descriptor->type;
  *n = descriptor->n;
  *c = descriptor->c;
  *h = descriptor->h;
  *w = descriptor->w;
  *n_stride = descriptor->n_stride;
  *c_stride = descriptor->c_stride;
  *h_stride = descriptor->h_stride;
  *w_stride = descriptor->w_stride;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t descriptor, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w) {
  if (descriptor == nullptr || k <= 0 || c <= 0 || h <= 0 || w <= 0) return CUDNN_STATUS_BAD_PARAM;
  if (format != CUDNN_TENSOR_NCHW && format != CUDNN_TENSOR_NHWC) return CUDNN_STATUS_NOT_SUPPORTED;
  *descriptor = {type, format, k, c, h, w};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetFilter4dDescriptor(const cudnnFilterDescriptor_t descriptor, cudnnDataType_t* type,
                                         cudnnTensorFormat_t* format, int* k, int* c, int* h, int* w) {
  if (descriptor == nullptr) return CUDNN_STATUS_BAD_PARAM;
  *type = descriptor->type;
  *format = descriptor->format;
  *k = descriptor->k;
  *c = descriptor->c;
  *h = descriptor->h;
  *w = descriptor->w;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t descriptor, int pad_h, int pad_w,
                                              int u, int v, int dilation_h, int dilation_w,
                                              cudnnConvolutionMode_t mode, cudnnDataType_t compute_type) {
  if (descriptor == nullptr || pad_h < 0 || pad_w < 0 || u <= 0 || v <= 0 || dilation_h <= 0 ||
      dilation_w <= 0 || (mode != CUDNN_CONVOLUTION && mode != CUDNN_CROSS_CORRELATION))
    return CUDNN_STATUS_BAD_PARAM;
  descriptor->padding_h = pad_h;
  descriptor->padding_w = pad_w;
  descriptor->stride_h = u;
  descriptor->stride_w = v;
  descriptor->dilation_h = dilation_h;
  descriptor->dilation_w = dilation_w;
  descriptor->mode = mode;
  descriptor->compute_type = compute_type;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t descriptor, cudnnMathType_t math) {
  if (descriptor == nullptr) return CUDNN_STATUS_BAD_PARAM;
  descriptor->math = math;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionMathType(cudnnConvolutionDescriptor_t descriptor, cudnnMathType_t* math) {
  if (descriptor == nullptr || math == nullptr) return CUDNN_STATUS_BAD_PARAM;
  *math = descriptor->math;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t descriptor, int groups) {
  if (descriptor == nullptr || groups <= 0) return CUDNN_STATUS_BAD_PARAM;
  descriptor->groups = groups;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionGroupCount(cudnnConvolutionDescriptor_t descriptor, int* groups) {
  if (descriptor == nullptr || groups == nullptr) return CUDNN_STATUS_BAD_PARAM;
  *groups = descriptor->groups;
  return CUDNN_STATUS_SUCCESS;
}

}  // extern "C"

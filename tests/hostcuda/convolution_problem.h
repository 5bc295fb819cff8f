// A convolution of the cuDNN tests: its shape, its descriptors in any element type, and plain loops in double
// that say what comes out.
#pragma once

#include <cudnn.h>

#include <cstddef>
#include <ostream>
#include <vector>

#include "kernels/check.h"
#include "tests/hostcuda/library_test.h"

enum class Pass { forward, backward_data, backward_filter };
constexpr Pass kPasses[] = {Pass::forward, Pass::backward_data, Pass::backward_filter};

struct Shape {
  int n, c, h, w;
  int k, kernel_h, kernel_w;
  int padding, stride;
  cudnnTensorFormat_t format = CUDNN_TENSOR_NHWC;

  int out_h() const { return (h + 2 * padding - kernel_h) / stride + 1; }
  int out_w() const { return (w + 2 * padding - kernel_w) / stride + 1; }
  // Where an element lies; d1 is the channel.
  size_t at(int d0, int d1, int d2, int d3, int size1, int size2, int size3) const {
    const int index = format == CUDNN_TENSOR_NHWC ? ((d0 * size2 + d2) * size3 + d3) * size1 + d1
                                                  : ((d0 * size1 + d1) * size2 + d2) * size3 + d3;
    return static_cast<size_t>(index);
  }
  size_t x_size() const { return static_cast<size_t>(n) * c * h * w; }
  size_t w_size() const { return static_cast<size_t>(k) * c * kernel_h * kernel_w; }
  size_t y_size() const { return static_cast<size_t>(n) * k * out_h() * out_w(); }
  size_t size_of(Pass pass) const {
    return pass == Pass::forward ? y_size() : pass == Pass::backward_data ? x_size() : w_size();
  }
};

inline std::ostream& operator<<(std::ostream& out, const Shape& s) {
  return out << s.n << " x " << s.c << " @ " << s.h << "x" << s.w << " -> " << s.k << ", kernel "
             << s.kernel_h << "x" << s.kernel_w << ", padding " << s.padding << ", stride " << s.stride
             << ", format " << s.format;
}

// The oracle: every pass is the same sum over (image, output pixel, tap, channels), collected elsewhere.
inline std::vector<Sum> convolve(const Shape& s, Pass pass, const std::vector<float>& x,
                                 const std::vector<float>& w, const std::vector<float>& y, double alpha,
                                 double beta, const std::vector<float>& before) {
  std::vector<Sum> result(s.size_of(pass));
  for (int image = 0; image < s.n; ++image)
    for (int row = 0; row < s.out_h(); ++row)
      for (int column = 0; column < s.out_w(); ++column)
        for (int r = 0; r < s.kernel_h; ++r)
          for (int q = 0; q < s.kernel_w; ++q) {
            const int from_row = row * s.stride - s.padding + r,
                      from_column = column * s.stride - s.padding + q;
            if (from_row < 0 || from_row >= s.h || from_column < 0 || from_column >= s.w) continue;
            for (int out = 0; out < s.k; ++out)
              for (int in = 0; in < s.c; ++in) {
                const size_t xi = s.at(image, in, from_row, from_column, s.c, s.h, s.w);
                const size_t wi = s.at(out, in, r, q, s.c, s.kernel_h, s.kernel_w);
                const size_t yi = s.at(image, out, row, column, s.k, s.out_h(), s.out_w());
                if (pass == Pass::forward) result[yi].add(alpha * x[xi] * w[wi]);
                if (pass == Pass::backward_data) result[xi].add(alpha * y[yi] * w[wi]);
                if (pass == Pass::backward_filter) result[wi].add(alpha * x[xi] * y[yi]);
              }
          }
  if (beta != 0)
    for (size_t i = 0; i < result.size(); ++i) result[i].add(beta * before[i]);
  return result;
}

// Winograd's transforms amplify rounding: with random values and the points 0, +-5/8, +-3/2, infinity the
// root mean square of an error grows 8.2 times over that of direct products (the largest row sum of squares
// of the matrices' entries, over 3, in both directions). A sum of n terms of random sign has an error of
// about eps sqrt(n) times its partial sums, which are sqrt(n) terms large: eps times the sum of magnitudes. 8
// more for the largest of many thousands of errors.
constexpr double kWinogradTolerance = 8 * 8.2;

// A handle and the descriptors of one shape.
class Problem {
 public:
  explicit Problem(const Shape& s, cudnnDataType_t type = CUDNN_DATA_FLOAT,
                   cudnnMathType_t math = CUDNN_FMA_MATH) {  // no TF32
    LOCKSTEP_CUDNN(cudnnCreate(&handle));
    LOCKSTEP_CUDNN(cudnnCreateTensorDescriptor(&x));
    LOCKSTEP_CUDNN(cudnnCreateTensorDescriptor(&y));
    LOCKSTEP_CUDNN(cudnnCreateFilterDescriptor(&w));
    LOCKSTEP_CUDNN(cudnnCreateConvolutionDescriptor(&convolution));
    LOCKSTEP_CUDNN(cudnnSetTensor4dDescriptor(x, s.format, type, s.n, s.c, s.h, s.w));
    LOCKSTEP_CUDNN(cudnnSetFilter4dDescriptor(w, type, s.format, s.k, s.c, s.kernel_h, s.kernel_w));
    LOCKSTEP_CUDNN(cudnnSetConvolution2dDescriptor(convolution, s.padding, s.padding, s.stride, s.stride, 1,
                                                   1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
    LOCKSTEP_CUDNN(cudnnSetConvolutionMathType(convolution, math));
    LOCKSTEP_CUDNN(cudnnSetTensor4dDescriptor(y, s.format, type, s.n, s.k, s.out_h(), s.out_w()));
  }
  ~Problem() {
    cudnnDestroyConvolutionDescriptor(convolution);
    cudnnDestroyFilterDescriptor(w);
    cudnnDestroyTensorDescriptor(y);
    cudnnDestroyTensorDescriptor(x);
    cudnnDestroy(handle);
  }
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  // What the calls below use: at first what every shape has.
  cudnnConvolutionFwdAlgo_t forward = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
  cudnnConvolutionBwdDataAlgo_t backward_data = CUDNN_CONVOLUTION_BWD_DATA_ALGO_1;
  cudnnConvolutionBwdFilterAlgo_t backward_filter = CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1;

  // Takes the first algorithm that is reported for each pass; tells whether all three repeat bit for bit.
  bool take_best() {
    int count = 0;
    cudnnConvolutionFwdAlgoPerf_t f;
    cudnnConvolutionBwdDataAlgoPerf_t d;
    cudnnConvolutionBwdFilterAlgoPerf_t g;
    LOCKSTEP_CUDNN(cudnnGetConvolutionForwardAlgorithm_v7(handle, x, w, convolution, y, 1, &count, &f));
    LOCKSTEP_CUDNN(cudnnGetConvolutionBackwardDataAlgorithm_v7(handle, w, y, convolution, x, 1, &count, &d));
    LOCKSTEP_CUDNN(
        cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle, x, y, convolution, w, 1, &count, &g));
    forward = f.algo;
    backward_data = d.algo;
    backward_filter = g.algo;
    return f.determinism == CUDNN_DETERMINISTIC && d.determinism == CUDNN_DETERMINISTIC &&
           g.determinism == CUDNN_DETERMINISTIC;
  }

  size_t workspace_bytes(Pass pass) const {
    size_t bytes = 0;
    if (pass == Pass::forward)
      LOCKSTEP_CUDNN(cudnnGetConvolutionForwardWorkspaceSize(handle, x, w, convolution, y, forward, &bytes));
    if (pass == Pass::backward_data)
      LOCKSTEP_CUDNN(
          cudnnGetConvolutionBackwardDataWorkspaceSize(handle, w, y, convolution, x, backward_data, &bytes));
    if (pass == Pass::backward_filter)
      LOCKSTEP_CUDNN(cudnnGetConvolutionBackwardFilterWorkspaceSize(handle, x, y, convolution, w,
                                                                    backward_filter, &bytes));
    return bytes;
  }

  cudnnStatus_t run(Pass pass, float alpha, void* x_data, void* w_data, void* y_data, float beta,
                    void* workspace, size_t bytes) const {
    if (pass == Pass::forward)
      return cudnnConvolutionForward(handle, &alpha, x, x_data, w, w_data, convolution, forward, workspace,
                                     bytes, &beta, y, y_data);
    if (pass == Pass::backward_data)
      return cudnnConvolutionBackwardData(handle, &alpha, w, w_data, y, y_data, convolution, backward_data,
                                          workspace, bytes, &beta, x, x_data);
    return cudnnConvolutionBackwardFilter(handle, &alpha, x, x_data, y, y_data, convolution, backward_filter,
                                          workspace, bytes, &beta, w, w_data);
  }

  cudnnHandle_t handle = nullptr;
  cudnnTensorDescriptor_t x = nullptr, y = nullptr;
  cudnnFilterDescriptor_t w = nullptr;
  cudnnConvolutionDescriptor_t convolution = nullptr;
};

// A convolution's three passes on oneDNN, prepared once for each shape and number of threads. Activations
// keep the caller's layout; the weights are reordered, in the caller's workspace, into the layout that oneDNN
// chooses: with the weights in the caller's own [out, kh, kw, in] it has no vectorised code at all.
#pragma once

#include <compare>
#include <cstddef>
#include <memory>

namespace hostcuda::onednn {

enum class Pass { forward, backward_data, backward_filter };
enum class Layout { nchw, nhwc };

struct ConvolutionProblem {
  Pass pass;
  Layout activations, filter;
  int n, c, h, w;             // input: images, channels, rows, columns
  int k, kernel_h, kernel_w;  // output channels and the filter's size
  int out_h, out_w;
  int padding_h, padding_w, stride_h, stride_w;
  int threads;

  auto operator<=>(const ConvolutionProblem&) const = default;
};

class Convolution {
 public:
  // The one for this problem, made at the first call and kept for the life of the process. Throws dnnl::error
  // where oneDNN has no code for it.
  static const Convolution& get(const ConvolutionProblem& problem);

  size_t workspace_bytes() const;

  // result = alpha pass(inputs) + beta result, on the calling thread; x, w and y are the input, weights and
  // output or their gradients, and the pass says which of them is the result. beta = 0 never reads it.
  void run(float alpha, void* x, void* w, void* y, void* workspace, float beta) const;

  ~Convolution();
  Convolution(const Convolution&) = delete;
  Convolution& operator=(const Convolution&) = delete;

 private:
  struct Prepared;
  explicit Convolution(const ConvolutionProblem& problem);
  const std::unique_ptr<const Prepared> prepared_;
};

}  // namespace hostcuda::onednn

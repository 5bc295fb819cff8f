// A convolution's three passes, prepared once for each shape, arithmetic and number of threads. Who computes
// one is chosen by `Convolution::get` alone.
#pragma once

#include <compare>
#include <cstddef>

namespace hostcuda {

enum class Pass { forward, backward_data, backward_filter };
enum class Layout { nchw, nhwc };

// What the operands' elements are, and what they are multiplied in. Sums are float32 always.
enum class Arithmetic { float32, bfloat16, bfloat16_through_float };

struct ConvolutionProblem {
  Pass pass;
  Arithmetic arithmetic;
  Layout activations, filter;
  int n, c, h, w;             // input: images, channels, rows, columns
  int k, kernel_h, kernel_w;  // output channels and the filter's size
  int out_h, out_w;
  int padding_h, padding_w, stride_h, stride_w;
  int threads;

  size_t x_count() const { return count(n, c, h, w); }
  size_t w_count() const { return count(k, c, kernel_h, kernel_w); }
  size_t y_count() const { return count(n, k, out_h, out_w); }
  size_t result_count() const {
    return pass == Pass::forward ? y_count() : pass == Pass::backward_data ? x_count() : w_count();
  }
  size_t element_bytes() const { return arithmetic == Arithmetic::float32 ? 4 : 2; }

  auto operator<=>(const ConvolutionProblem&) const = default;

 private:
  static size_t count(int a, int b, int c, int d) {
    return static_cast<size_t>(a) * static_cast<size_t>(b) * static_cast<size_t>(c) * static_cast<size_t>(d);
  }
};

// An input, the weights and an output, or their gradients. The pass says which of them is the result.
struct ConvolutionData {
  void *x, *w, *y;

  void*& result(Pass pass) { return pass == Pass::forward ? y : pass == Pass::backward_data ? x : w; }
};

class Convolution {
 public:
  // The one for this problem, made and rehearsed at the first call and kept for the life of the process.
  // Throws dnnl::error where there is no code for it.
  static const Convolution& get(const ConvolutionProblem& problem);

  virtual ~Convolution() = default;
  Convolution(const Convolution&) = delete;
  Convolution& operator=(const Convolution&) = delete;

  // The workspace may start at any address.
  virtual size_t workspace_bytes() const = 0;

  // result = alpha pass(inputs) + beta result, on the calling thread. beta = 0 never reads the result. With
  // Arithmetic::bfloat16 alpha is 1 and beta 0.
  void run(float alpha, ConvolutionData data, void* workspace, float beta) const;

 protected:
  explicit Convolution(const ConvolutionProblem& p) : problem(p) {}
  // The same, of operands that may be touched.
  virtual void compute(float alpha, ConvolutionData data, void* workspace, float beta) const = 0;

  const ConvolutionProblem problem;
};

}  // namespace hostcuda

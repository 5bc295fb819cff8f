// The operations that layers are made of, as functions of tensors: each runs its kernels on the input's
// device and records how to go back. Activations are NHWC; a row is one image. They are float32 or bfloat16:
// what an operation makes has the type of its input, and is computed in float32. linear and conv2d alone
// choose: their output is bfloat16 where the device's precision is bf16, else float32, and their input is
// cast to that. Parameters, statistics and losses are float32 (a weight may be bfloat16, a norm's or a bias
// may not); a gradient has the type of what it is the gradient of.
//
// Backward reads what forward read, where it lies: who overwrites an input, a weight, the output of an
// activation or the running mean of a batch norm in evaluation before it gets an error (core/autograd.h).
#pragma once

#include "core/tensor.h"
#include "nn/batch_statistics.h"

namespace lockstep::nn {

// x in another floating-point type, rounded to the nearest; x itself where it has that type.
Tensor cast(const Tensor& x, DType to);

// y[rows, out] = x[rows, in] w^T + b, with w: [out, in] and b: [out] or undefined for none.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias);

// x: [batch, height, width, in], weight: [out, kh, kw, in], bias: [out] or undefined for none; y: [batch,
// height', width', out] with height' = (height + 2 padding - kh) / stride + 1. Throws where the kernel is
// larger than the padded image.
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, int stride = 1, int padding = 0);

// Square windows over x: [batch, height, width, channels].
Tensor max_pool2d(const Tensor& x, int kernel, int stride, int padding = 0);
Tensor avg_pool2d(const Tensor& x, int kernel, int stride, int padding = 0);

// x: [batch, height, width, channels] to [batch, out_height, out_width, channels]; the windows are PyTorch's.
Tensor adaptive_avg_pool2d(const Tensor& x, int out_height, int out_width);

enum class Activation { none, relu };

// What normalises channels: all [channels]. The running statistics are changed in place.
struct BatchNormState {
  Tensor weight, bias, running_mean, running_var;
};

// activation((x - mean) / sqrt(variance + 1e-5) * weight + bias [+ addend]) for each channel of x: [batch,
// height, width, channels]; addend has the shape of x, and is cast
// to its type. In training the statistics are those of x over all but
// the channel, and the running ones move towards them by 0.1 (with the unbiased variance); an empty batch
// leaves them alone, and one value a channel is an error. Otherwise the running statistics normalise. With
// `replicas`, statistics in training are those of the x of all replicas together, and so are the gradients of
// x; those of weight and bias are this replica's part.
Tensor batch_norm(const Tensor& x, const BatchNormState& state, bool training,
                  Activation activation = Activation::none, const Tensor& addend = {},
                  const std::shared_ptr<ReplicaStatistics>& replicas = {});

// Elements set to 0 with `probability`, in [0, 1), by (seed, step, index), and the others divided by 1 -
// probability.
Tensor dropout(const Tensor& x, float probability, uint64_t seed, uint64_t step);

// Of two tensors of one shape; float32 where only one of them is.
Tensor add(const Tensor& a, const Tensor& b);

Tensor relu(const Tensor& x);
Tensor sigmoid(const Tensor& x);

// [batch, ...] -> [batch, everything else], a view.
Tensor flatten(const Tensor& x);

enum class Reduction { sum, mean };

// The cross-entropy of logits [rows, classes] and labels [rows] (int32, in [0, classes)), summed
// over the rows or averaged; one element. A label that is no class makes it NaN, and Tensor::item() of that
// throws, naming the label. An empty batch gives 0, and zero gradients. `label_smoothing` in
// [0, 1] moves that share of the target from the label to all classes alike (kernels/softmax.h); throws for
// others.
Tensor cross_entropy(const Tensor& logits, const Tensor& labels, Reduction reduction,
                     float label_smoothing = 0);

}  // namespace lockstep::nn

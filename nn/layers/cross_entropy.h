// The loss of a classifier.
#pragma once

#include "core/tensor.h"

namespace lockstep::nn {

enum class Reduction { sum, mean };

// The cross-entropy of logits [rows, classes] and labels [rows] (int32, in [0, classes)), summed
// over the rows or averaged; one element. A label that is no class makes it NaN, and Tensor::item() of that
// throws, naming the label. An empty batch gives 0, and zero gradients. `label_smoothing` in
// [0, 1] moves that share of the target from the label to all classes alike (kernels/softmax.h); throws for
// others.
Tensor cross_entropy(const Tensor& logits, const Tensor& labels, Reduction reduction,
                     float label_smoothing = 0);

}  // namespace lockstep::nn

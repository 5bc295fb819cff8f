// Softmax and cross-entropy in one pass over the logits, and the count of right answers.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/label_fault.h"

namespace lockstep::kernels {

// For every row r of logits [rows, classes] with label labels[r] in [0, classes):
//   target[c]     = (1 - smoothing) * (c == label) + smoothing / classes
//   row_loss[r]   = log(sum_c exp(logits[r, c])) - sum_c target[c] * logits[r, c], by the row's own maximum
//   dlogits[r, c] = (softmax(logits[r])[c] - target[c]) * gradient_scale
// smoothing in [0, 1] is label smoothing as in Szegedy et al., Rethinking the Inception Architecture, 2016,
// and in PyTorch. dlogits may be null when only the loss is wanted. A row whose label is not in [0, classes)
// has NaN for its loss and its gradient, and is noted in *fault.
// With `total`, *sum = factor * the sum of the rows' losses, in an order that depends on their number alone;
// for 1 to kMostRowsInTotal rows.
struct LossTotal {
  float* sum = nullptr;
  float factor = 1;
  unsigned* tickets = nullptr;  // kernels/scratch.h
};
inline constexpr int64_t kMostRowsInTotal = 8192;

template <typename T>
void softmax_cross_entropy(const T* logits, const int32_t* labels, int64_t rows, int classes, float smoothing,
                           float gradient_scale, float* row_loss, float* dlogits, LabelFault* fault,
                           cudaStream_t stream, const LossTotal& total = {});

// *correct += number of rows whose largest logit (the first of equal ones) is at the label. A row whose label
// is not in [0, classes) is noted in *fault. With `loss`, *loss.sum += *loss.value, which is logged beside
// it.
struct LoggedLoss {
  const float* value = nullptr;
  float* sum = nullptr;
};

template <typename T>
void count_correct(const T* logits, const int32_t* labels, int64_t rows, int classes, int32_t* correct,
                   LabelFault* fault, cudaStream_t stream, const LoggedLoss& loss = {});

}  // namespace lockstep::kernels

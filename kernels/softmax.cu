// Softmax and cross-entropy: a block takes a row, finds its maximum, sums the exponentials (kept in dlogits
// until the sum is known), and writes loss and gradient. A row of 10 or of 1000 classes is work for one warp.
// Only distances from the maximum are added up: beside a large logit the logarithm of the sum would be lost.
#include "kernels/softmax.h"

#include <limits>

#include "kernels/exp.cuh"
#include "kernels/float_types.h"
#include "kernels/launch.cuh"
#include "kernels/row_sums.cuh"

namespace lockstep::kernels {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

__device__ inline bool is_class(int label, int classes) {
  return label >= 0 && label < classes;
}

__device__ inline void note(LabelFault* fault, int64_t row, int label, int classes) {
  const unsigned long long found = static_cast<unsigned long long>(row) << 32 | static_cast<unsigned>(label);
  if (found < atomicMin(&fault->first, found)) atomicExch(&fault->classes, static_cast<unsigned>(classes));
}

template <int kThreads, typename T>
__global__ void softmax_cross_entropy_kernel(const T* __restrict__ logits, const int32_t* __restrict__ labels,
                                             int64_t rows, int classes, float smoothing, float gradient_scale,
                                             float* row_loss, float* __restrict__ dlogits, LabelFault* fault,
                                             LossTotal total) {
  const float everywhere = smoothing / static_cast<float>(classes);  // every class's part of the target
  const float target_elsewhere = gradient_scale * everywhere;
  const float target_at_label = gradient_scale * ((1.0f - smoothing) + everywhere);
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* z = logits + row * classes;
    float* dz = dlogits == nullptr ? nullptr : dlogits + row * classes;
    const int label = labels[row];
    const bool known = is_class(label, classes);
    if (!known && is_block_leader<kThreads>()) note(fault, row, label, classes);

    const float largest = block_max<kThreads>(classes, [=](int64_t c) { return to_float(z[c]); });
    float sum;
    if (dz == nullptr) {
      sum = block_sum<kThreads>(classes, [=](int64_t c) { return exp_polynomial(to_float(z[c]) - largest); });
    } else {
      for (int64_t c : block_stride<kThreads>(classes)) dz[c] = exp_polynomial(to_float(z[c]) - largest);
      sum = block_sum<kThreads>(classes, [=](int64_t c) { return dz[c]; });
      const float factor = known ? gradient_scale / sum : kNaN;
      for (int64_t c : block_stride<kThreads>(classes)) {
        const float target = c == label ? target_at_label : target_elsewhere;
        dz[c] = dz[c] * factor - target;
      }
    }
    const float distance = known ? largest - to_float(z[label]) : kNaN;
    if (smoothing == 0.0f) {
      if (is_block_leader<kThreads>()) row_loss[row] = logf(sum) + distance;
    } else {
      const float below =
          block_sum<kThreads>(classes, [=](int64_t c) { return everywhere * (largest - to_float(z[c])); });
      if (is_block_leader<kThreads>()) row_loss[row] = logf(sum) + (1.0f - smoothing) * distance + below;
    }
  }
  if (total.sum == nullptr || !is_last_block<kThreads>(total.tickets, gridDim.x)) return;
  const float whole = block_sum<kThreads, 64>(rows, [row_loss](int64_t row) { return row_loss[row]; });
  if (is_block_leader<kThreads>()) *total.sum = whole * total.factor;
}

template <typename T>
void softmax_cross_entropy(const T* logits, const int32_t* labels, int64_t rows, int classes, float smoothing,
                           float gradient_scale, float* row_loss, float* dlogits, LabelFault* fault,
                           cudaStream_t stream, const LossTotal& total) {
  if (rows == 0) return;
  launch_blocks<32>([](auto threads) { return softmax_cross_entropy_kernel<threads(), T>; }, blocks_for(rows),
                    stream, logits, labels, rows, classes, smoothing, gradient_scale, row_loss, dlogits,
                    fault, total);
}

// A thread takes a row; a block adds its count once.
template <int kThreads, typename T>
__global__ void count_correct_kernel(const T* __restrict__ logits, const int32_t* __restrict__ labels,
                                     int64_t rows, int classes, int32_t* __restrict__ correct,
                                     LabelFault* fault, LoggedLoss loss) {
  if (loss.sum != nullptr && blockIdx.x == 0 && is_block_leader<kThreads>()) *loss.sum += *loss.value;
  constexpr int64_t kRows = 256;
  const int64_t begin = blockIdx.x * kRows;
  const int64_t count = begin + kRows < rows ? kRows : rows - begin;
  int right = 0;
  for (int64_t i : block_stride<kThreads>(count)) {
    const T* z = logits + (begin + i) * classes;
    float best = to_float(z[0]);
    int where = 0;
    for (int c = 1; c < classes; ++c) {
      const float v = to_float(z[c]);
      where = v > best ? c : where;
      best = v > best ? v : best;
    }
    const int label = labels[begin + i];
    if (!is_class(label, classes)) note(fault, begin + i, label, classes);
    right += where == label;
  }
  right = block_sum<kThreads>(right);
  if (is_block_leader<kThreads>() && right > 0) atomicAdd(correct, right);
}

template <typename T>
void count_correct(const T* logits, const int32_t* labels, int64_t rows, int classes, int32_t* correct,
                   LabelFault* fault, cudaStream_t stream, const LoggedLoss& loss) {
  if (rows == 0) return;
  launch_blocks<256>([](auto threads) { return count_correct_kernel<threads(), T>; },
                     dim3(static_cast<unsigned>((rows + 255) / 256)), stream, logits, labels, rows, classes,
                     correct, fault, loss);
}

#define LOCKSTEP_INSTANTIATE(T)                                                                             \
  template void softmax_cross_entropy(const T*, const int32_t*, int64_t, int, float, float, float*, float*, \
                                      LabelFault*, cudaStream_t, const LossTotal&);                         \
  template void count_correct(const T*, const int32_t*, int64_t, int, int32_t*, LabelFault*, cudaStream_t,  \
                              const LoggedLoss&)
LOCKSTEP_INSTANTIATE(float);
LOCKSTEP_INSTANTIATE(__nv_bfloat16);
#undef LOCKSTEP_INSTANTIATE

}  // namespace lockstep::kernels

#include "nn/layers/cross_entropy.h"

#include "core/autograd.h"
#include "kernels/elementwise.h"
#include "kernels/reduce.h"
#include "kernels/softmax.h"
#include "nn/operation.h"

namespace lockstep::nn {

Tensor cross_entropy(const Tensor& logits, const Tensor& labels, Reduction reduction, float label_smoothing) {
  check_rank("cross_entropy", logits, 2);
  if (logits.dim(1) == 0)
    throw Error(fmt::format("cross_entropy: logits of shape {} have no classes", to_string(logits.shape())));
  if (labels.dtype() != DType::int32)
    throw Error(fmt::format("cross_entropy: labels of type {}: use int32, the number of each row's class",
                            name_of(labels.dtype())));
  const int64_t rows = logits.dim(0);
  if (labels.shape() != Shape{rows})
    throw Error(fmt::format("cross_entropy: logits of shape {} but labels of shape {}",
                            to_string(logits.shape()), to_string(labels.shape())));
  check_device("cross_entropy", logits, labels, "labels");
  if (!(label_smoothing >= 0 && label_smoothing <= 1))
    throw Error(fmt::format("cross_entropy: a label smoothing of {}: use 0 to 1", label_smoothing));
  const Device device = logits.device();
  const DeviceGuard guard(device);
  const float factor = reduction == Reduction::mean && rows > 0 ? 1.0f / static_cast<float>(rows) : 1.0f;
  const Tensor row_loss = Tensor::empty({rows}, device), loss = Tensor::empty({1}, device);
  const bool summed = rows > 0 && rows <= kernels::kMostRowsInTotal;
  const kernels::LossTotal total{summed ? loss.data<float>() : nullptr, factor, device.tickets()};
  // The gradient is made together with the loss: the row is in registers anyway.
  const Tensor dlogits = logits.requires_grad() ? Tensor::empty(logits.shape(), device) : Tensor();
  for_float_type("cross_entropy", logits.dtype(), [&]<typename T>(T) {
    kernels::softmax_cross_entropy(
        logits.data<T>(), labels.data<int32_t>(), rows, static_cast<int>(logits.dim(1)), label_smoothing,
        factor, row_loss.data<float>(), dlogits.defined() ? dlogits.data<float>() : nullptr,
        device.label_fault(), device.stream(), total);
  });
  if (!summed) {
    const Tensor scratch = workspace(device, kernels::reduce_sum_workspace_bytes(rows));
    kernels::reduce_sum(row_loss.data<float>(), rows, factor, loss.data<float>(), sum_scratch(scratch),
                        device.stream());
  }
  return record("cross_entropy", loss, {logits}, [dlogits, type = logits.dtype()](const Tensor& dloss) {
    if (is_unit_gradient(dloss) && type == DType::float32) return std::vector<Tensor>{dlogits};
    const DeviceGuard here(dlogits.device());
    const Tensor dx = Tensor::empty(dlogits.shape(), dlogits.device(), type);
    for_float_type("cross_entropy", type, [&]<typename T>(T) {
      kernels::scale_by(dlogits.data<float>(), dloss.data<float>(), dx.data<T>(), dlogits.size(),
                        dlogits.device().stream());
    });
    return std::vector<Tensor>{dx};
  });
}

}  // namespace lockstep::nn

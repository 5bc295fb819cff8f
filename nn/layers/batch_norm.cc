// By the statistics of the input, of the inputs of all replicas together, or by the running ones.
#include "nn/layers/batch_norm.h"

#include <numeric>

#include "core/autograd.h"
#include "kernels/norm/batch_norm.h"
#include "nn/layers/cast.h"
#include "nn/operation.h"

namespace lockstep::nn {

namespace {

template <typename T>
T* data_or_null(const Tensor& tensor) {
  return tensor.defined() ? tensor.data<T>() : nullptr;
}

// The statistics of the x of all ranks: each fills its own slot, so that the sum of the slots holds all.
// Returns how many rows that are.
int64_t statistics_of_all(const kernels::BatchNormShape& shape, const Tensor& x, const BatchNormState& state,
                          const Tensor& mean, const Tensor& inverse, collective::Group& group) {
  const Device device = x.device();
  const std::vector<int64_t> rows = group.all_gather(shape.rows);
  const Tensor slots = Tensor::zeros({static_cast<int64_t>(rows.size()), 2, shape.channels}, device);
  {
    const Tensor own = slots.slice(group.rank(), group.rank() + 1);
    const Tensor scratch = workspace(device, batch_norm_workspace_bytes(shape));
    for_float_type("batch_norm", x.dtype(), [&]<typename T>(T) {
      batch_norm_shard_statistics(shape, x.data<T>(), own.data<float>(), sum_scratch(scratch),
                                  device.stream());
    });
  }
  group.all_reduce(slots);
  kernels::batch_norm_merge_statistics(shape.channels, {}, rows, slots.data<float>(), mean.data<float>(),
                                       inverse.data<float>(), state.running_mean.data<float>(),
                                       state.running_var.data<float>(), device.stream());
  return std::accumulate(rows.begin(), rows.end(), int64_t{0});
}

}  // namespace

Tensor batch_norm(const Tensor& x, const BatchNormState& state, bool training, Activation activation,
                  const Tensor& added, const std::shared_ptr<collective::Group>& group) {
  check_rank("batch_norm", x, 4);
  const int64_t channels = x.dim(3);
  if (state.weight.shape() != Shape{channels})
    throw Error(fmt::format("batch_norm: input {} has {} channels, the norm {}", to_string(x.shape()),
                            channels, state.weight.size()));
  check_device("batch_norm", x, state.weight, "norm");
  Tensor addend;
  if (added.defined()) {
    if (added.shape() != x.shape())
      throw Error(fmt::format("batch_norm: {} cannot be added to {}", to_string(added.shape()),
                              to_string(x.shape())));
    check_device("batch_norm", x, added, "addend");
    addend = cast(added, x.dtype());
  }
  const Device device = x.device();
  const DeviceGuard guard(device);
  const kernels::BatchNormShape shape{x.dim(0) * x.dim(1) * x.dim(2), static_cast<int>(channels)};
  const kernels::BatchNormSettings settings;
  const Tensor inverse = Tensor::empty({channels}, device);
  const bool together = training && group;
  int64_t rows_of_all = shape.rows;
  Tensor mean = state.running_mean;
  if (together) {
    mean = Tensor::empty({channels}, device);
    rows_of_all = statistics_of_all(shape, x, state, mean, inverse, *group);
  } else if (training) {
    mean = Tensor::empty({channels}, device);
    const Tensor scratch = workspace(device, batch_norm_workspace_bytes(shape));
    for_float_type("batch_norm", x.dtype(), [&]<typename T>(T) {
      batch_norm_statistics(shape, settings, x.data<T>(), mean.data<float>(), inverse.data<float>(),
                            state.running_mean.data<float>(), state.running_var.data<float>(),
                            sum_scratch(scratch), device.stream());
    });
  } else {
    kernels::batch_norm_inverse_stddev(state.running_var.data<float>(), settings.epsilon, shape.channels,
                                       inverse.data<float>(), device.stream());
  }
  if (training && rows_of_all > 0) {
    state.running_mean.mark_overwritten();
    state.running_var.mark_overwritten();
  }
  const bool relu = activation == Activation::relu;
  const Tensor y = Tensor::empty(x.shape(), device, x.dtype());
  for_float_type("batch_norm", x.dtype(), [&]<typename T>(T) {
    batch_norm_normalise(shape, x.data<T>(), mean.data<float>(), inverse.data<float>(),
                         state.weight.data<float>(), state.bias.data<float>(), data_or_null<T>(addend), relu,
                         y.data<T>(), device.stream());
  });

  // In evaluation the input's gradient is a multiple of dy, and only the weight's reads input and mean.
  const bool wants_input = training || state.weight.requires_grad();
  const auto mode = training ? kernels::BatchNormMode::batch : kernels::BatchNormMode::running;
  return record(
      "batch_norm", y, {x, state.weight, state.bias, addend},
      [x = x.detach(), y = relu ? y : Tensor(), mean, inverse, weight = state.weight.detach(), shape, mode,
       rows_of_all, parameters = std::pair(state.weight, state.bias), group = together ? group : nullptr,
       want_addend = addend.defined() && addend.requires_grad()](const Tensor& dy) {
        const Device on = x.device();
        const DeviceGuard here(on);
        const Tensor dweight = gradient_memory(parameters.first, DType::float32);
        const Tensor dbias = gradient_memory(parameters.second, DType::float32);
        for_float_type("batch_norm", x.dtype(), [&]<typename T>(T) {
          const Tensor scratch = workspace(on, batch_norm_workspace_bytes(shape));
          batch_norm_gradient_sums(shape, x.data<T>(), data_or_null<T>(y), dy.data<T>(), mean.data<float>(),
                                   inverse.data<float>(), dweight.data<float>(), dbias.data<float>(),
                                   sum_scratch(scratch), on.stream());
        });
        Tensor dweight_of_all = dweight, dbias_of_all = dbias;
        if (group) {
          const Tensor sums = Tensor::empty({2, shape.channels}, on);
          dweight_of_all = sums.slice(0, 1).reshape(weight.shape());
          dbias_of_all = sums.slice(1, 2).reshape(weight.shape());
          dweight_of_all.copy_from(dweight);
          dbias_of_all.copy_from(dbias);
          group->all_reduce(sums);
        }
        const Tensor dx = Tensor::empty(x.shape(), on, x.dtype());
        // Without a ReLU the addend's gradient is dy itself.
        const Tensor masked = want_addend && y.defined() ? Tensor::empty(x.shape(), on, x.dtype()) : Tensor();
        for_float_type("batch_norm", x.dtype(), [&]<typename T>(T) {
          batch_norm_input_gradient(shape, mode, rows_of_all, x.data<T>(), data_or_null<T>(y), dy.data<T>(),
                                    mean.data<float>(), inverse.data<float>(), weight.data<float>(),
                                    dweight_of_all.data<float>(), dbias_of_all.data<float>(), dx.data<T>(),
                                    data_or_null<T>(masked), on.stream());
        });
        const Tensor daddend = masked.defined() ? masked : dy;
        return std::vector<Tensor>{dx, dweight, dbias, want_addend ? daddend : Tensor()};
      },
      {{"input", wants_input ? x : Tensor()},
       {"running mean", !training && wants_input ? mean : Tensor()},
       {"weight", x.requires_grad() ? state.weight : Tensor()},
       {"output", relu ? y : Tensor()}});
}

BatchNorm2d::BatchNorm2d(int64_t channels, const Device& device, Activation activation)
    : activation_(activation),
      weight_(add_parameter("weight", {channels}, device, {.constant = 1})),
      bias_(add_parameter("bias", {channels}, device)),
      running_mean_(add_buffer("running_mean", {channels}, device, 0)),
      running_var_(add_buffer("running_var", {channels}, device, 1)) {}

Tensor BatchNorm2d::forward(const Tensor& x, const Tensor& addend) {
  return batch_norm(x, {weight_, bias_, running_mean_, running_var_}, training(), activation_, addend,
                    group());
}

std::vector<Tensor> BatchNorm2d::combine_own_buffers(const std::vector<std::vector<Tensor>>& replicas,
                                                     const std::vector<int64_t>& rows) const {
  const Device device = running_mean_.device();
  const DeviceGuard guard(device);
  const int64_t channels = running_mean_.size();
  const auto count = static_cast<int64_t>(replicas.size());
  const Tensor statistics = Tensor::empty({count, 2, channels}, device);
  for (int64_t r = 0; r < count; ++r)
    for (int64_t b = 0; b < 2; ++b)  // the running mean, then the running variance
      statistics.reshape({count * 2, channels})
          .slice(2 * r + b, 2 * r + b + 1)
          .reshape({channels})
          .copy_from(replicas[static_cast<size_t>(r)][static_cast<size_t>(b)]);
  const Tensor mean = running_mean_.copy_to(device), variance = running_var_.copy_to(device);
  kernels::batch_norm_combine_running(static_cast<int>(channels), rows, statistics.data<float>(),
                                      mean.data<float>(), variance.data<float>(), device.stream());
  return {mean, variance};
}

std::string BatchNorm2d::describe() const {
  return fmt::format("BatchNorm2d({}{})", weight_.dim(0), activation_ == Activation::relu ? ", ReLU" : "");
}

}  // namespace lockstep::nn

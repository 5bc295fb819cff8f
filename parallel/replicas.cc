#include "parallel/replicas.h"

#include <fmt/format.h>

#include <bit>
#include <cstdint>

#include "core/autograd.h"
#include "kernels/check.h"
#include "kernels/sgd.h"

namespace lockstep::parallel {
namespace {

void check_replicas(const std::vector<std::vector<Tensor>>& device_params,
                    const std::vector<Device>& devices) {
  if (device_params.size() != devices.size())
    throw Error(fmt::format("train_batch: {} replicas for {} devices", device_params.size(), devices.size()));
  for (size_t i = 0; i < devices.size(); ++i) {
    if (device_params[i].size() != device_params[0].size())
      throw Error(fmt::format("train_batch: replica {} has {} parameters but replica 0 has {}", i,
                              device_params[i].size(), device_params[0].size()));
    check_distinct("train_batch", device_params[i]);
    for (size_t p = 0; p < device_params[i].size(); ++p)
      if (device_params[i][p].device() != devices[i])
        throw Error(fmt::format("train_batch: parameter {} of replica {} is on device {}, not on device {}",
                                p, i, device_params[i][p].device().index(), devices[i].index()));
  }
}

// w -= lr / rows * gradient for every parameter of one replica, which then has no gradients.
void sgd(const std::vector<Tensor>& params, float lr, int64_t rows) {
  for (const Tensor& param : params) {
    const Device device = param.device();
    const DeviceGuard guard(device);
    kernels::sgd_step(lr, 1.0f / static_cast<float>(rows), param.data<float>(), param.grad().data<float>(),
                      param.size(), device.stream());
    param.mark_overwritten();
    param.set_grad(Tensor());
  }
}

}  // namespace

std::vector<Tensor> get_params(const std::vector<Tensor>& params, const Device& device) {
  check_distinct("get_params", params);
  std::vector<Tensor> replica;
  for (const Tensor& param : params) replica.push_back(param.copy_to(device).set_requires_grad(true));
  return replica;
}

std::vector<Tensor> train_batch(const Tensor& x, const Tensor& y,
                                const std::vector<std::vector<Tensor>>& device_params,
                                const std::vector<Device>& devices, float lr, const Network& net,
                                const Loss& loss, collective::Algorithm algorithm) {
  check_replicas(device_params, devices);
  if (x.dim(0) == 0) throw Error("train_batch: the batch has no rows");
  const auto [x_shards, y_shards] = split_batch(x, y, devices);

  // The loss of every shard, on its own device.
  std::vector<Tensor> losses(devices.size());
  for (size_t i = 0; i < devices.size(); ++i)
    if (x_shards[i].dim(0) > 0) losses[i] = loss(net(x_shards[i], device_params[i]), y_shards[i]);

  // Back through every replica, each on its own device.
  for (const Tensor& l : losses)
    if (l.defined()) backward(l);

  // Sum every parameter's gradients over all replicas, into all replicas.
  for (size_t p = 0; p < device_params[0].size(); ++p) {
    std::vector<Tensor> gradients;
    for (size_t i = 0; i < devices.size(); ++i) {
      const Tensor& param = device_params[i][p];
      if (!param.grad().defined()) param.set_grad(Tensor::zeros(param.shape(), devices[i], param.dtype()));
      gradients.push_back(param.grad());
    }
    collective::allreduce(gradients, algorithm);
  }

  // All replicas take the same step; the sum is divided once, by the rows of the whole batch.
  for (const std::vector<Tensor>& params : device_params) sgd(params, lr, x.dim(0));
  return losses;
}

std::optional<std::string> first_difference(const std::vector<std::vector<Tensor>>& device_params,
                                            const std::vector<std::string>& names) {
  for (size_t p = 0; p < names.size(); ++p) {
    std::vector<float> first;
    for (size_t replica = 0; replica < device_params.size(); ++replica) {
      const std::vector<float> values = device_params[replica].at(p).to_host<float>();
      if (replica == 0) first = values;
      if (values.size() != first.size())
        return fmt::format("{}: replica 0 has {} elements, replica {} has {}", names[p], first.size(),
                           replica, values.size());
      for (size_t i = 0; i < values.size(); ++i) {
        const auto want = std::bit_cast<uint32_t>(first[i]), got = std::bit_cast<uint32_t>(values[i]);
        if (got != want)
          return fmt::format("{}[{}]: replica 0 has {:#010x} ({}), replica {} has {:#010x} ({})", names[p], i,
                             want, first[i], replica, got, values[i]);
      }
    }
  }
  return std::nullopt;
}

}  // namespace lockstep::parallel

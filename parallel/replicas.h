// Training on several devices, in the words of the chapter "Training on Multiple GPUs" (Dive into Deep
// Learning): every device holds a replica of all parameters and works on its shard of each batch; gradients
// are summed over the replicas, and all replicas take the same step, so they stay equal bit for bit.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "parallel/collective/allreduce.h"
#include "parallel/shards.h"

namespace lockstep::parallel {

// A replica: deep copies of `params` on `device` (also when they are there already) that require gradients.
// Throws where a tensor is listed twice: its copies would be two.
std::vector<Tensor> get_params(const std::vector<Tensor>& params, const Device& device);

// The network as a function of its input and its parameters, and the loss as one of the network's output and
// the labels: one element, the sum over the rows (not their mean).
using Network = std::function<Tensor(const Tensor& x, const std::vector<Tensor>& params)>;
using Loss = std::function<Tensor(const Tensor& y_hat, const Tensor& y)>;

// One step of gradient descent on the batch (x, y). device_params[i] is the replica on devices[i]. The
// gradient is that of the sum of the loss over all rows, divided once by their number, so the step does not
// depend on the number of devices. Returns the loss of each shard, on its device; undefined for an empty one,
// which counts as a gradient of zeros.
std::vector<Tensor> train_batch(const Tensor& x, const Tensor& y,
                                const std::vector<std::vector<Tensor>>& device_params,
                                const std::vector<Device>& devices, float lr, const Network& net,
                                const Loss& loss, collective::Algorithm algorithm = collective::ring);

// Compares all replicas with the first one, bit by bit, and describes the first difference: "fc1.weight[17]:
// replica 0 has 0x3f800000 (1), replica 2 has 0x3f800001 (1.0000001)". Nothing where all are equal. names[i]
// is that of parameter i. Waits for the devices.
std::optional<std::string> first_difference(const std::vector<std::vector<Tensor>>& device_params,
                                            const std::vector<std::string>& names);

}  // namespace lockstep::parallel

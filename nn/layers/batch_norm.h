// Batch normalisation, with what usually follows it.
#pragma once

#include "nn/module.h"
#include "parallel/collective/group.h"

namespace lockstep::nn {

enum class Activation { none, relu };

// What normalises channels: all [channels]. The running statistics are changed in place.
struct BatchNormState {
  Tensor weight, bias, running_mean, running_var;
};

// activation((x - mean) / sqrt(variance + 1e-5) * weight + bias [+ addend]) for each channel of x: [batch,
// height, width, channels]; addend has the shape of x, and is cast to its type. In training the statistics
// are those of x over all but the channel, and the running ones move towards them by 0.1 (with the unbiased
// variance); an empty batch leaves them alone, and one value per channel is an error. Otherwise the running
// statistics normalise. With a group, statistics in training are those of the x of all its ranks together,
// and so are the gradients of x; those of weight and bias are this rank's part.
Tensor batch_norm(const Tensor& x, const BatchNormState& state, bool training,
                  Activation activation = Activation::none, const Tensor& addend = {},
                  const std::shared_ptr<collective::Group>& group = {});

// Normalises every channel: by the statistics of the batch in training, else by the running ones. The
// activation, and the addition of another tensor before it, cost no pass of their own. The batch is that of
// all replicas where the module has a group (Module::set_group).
class BatchNorm2d : public Module {
 public:
  BatchNorm2d(int64_t channels, const Device& device, Activation activation = Activation::none);
  Tensor forward(const Tensor& x) override { return forward(x, Tensor()); }
  // activation(norm(x) + addend), where there is one; addend has the shape of x.
  Tensor forward(const Tensor& x, const Tensor& addend);
  std::string describe() const override;

 protected:
  // Mean and variance over the rows that all replicas have seen.
  std::vector<Tensor> combine_own_buffers(const std::vector<std::vector<Tensor>>& replicas,
                                          const std::vector<int64_t>& rows) const override;

 private:
  Activation activation_;
  Tensor& weight_;  // all four: [channels]
  Tensor& bias_;
  Tensor running_mean_, running_var_;
};

}  // namespace lockstep::nn

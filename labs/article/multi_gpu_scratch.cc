// Training on several devices from scratch: sections 2 to 6 of the PyTorch article, in its order and under
// its names. Where the article is wrong, the comment says what is right; README.md, beside this file, says
// why.
#include <fmt/format.h>

#include "core/autograd.h"
#include "kernels/check.h"
#include "labs/article/d2l.h"
#include "nn/init.h"
#include "nn/layers.h"

using namespace lockstep;

namespace {

// A replica of the parameters on a device: copies (not `clone()`s, which are no leaves, and not `to()`, which
// may be the same tensor) that want gradients.
std::vector<Tensor> get_params(const std::vector<Tensor>& params, const Device& device) {
  std::vector<Tensor> new_params;
  for (const Tensor& p : params) new_params.push_back(p.copy_to(device).set_requires_grad(true));
  return new_params;
}

// The sum over all devices, written into the memory of every one of them (not put in its place in a list).
void allreduce(const std::vector<Tensor>& data) {
  // Add up the gradients of all devices on the first one ...
  for (size_t i = 1; i < data.size(); ++i)
    data[0].copy_from(nn::add(data[0], data[i].copy_to(data[0].device())));
  // ... and send the result to all others.
  for (size_t i = 1; i < data.size(); ++i) data[i].copy_from(data[0]);
}

// Rows, in order, in as many shards as there are devices; their sizes differ by one at most.
std::vector<Tensor> scatter(const Tensor& rows, const std::vector<Device>& devices) {
  const auto n = rows.dim(0), k = static_cast<int64_t>(devices.size());
  std::vector<Tensor> shards;
  for (int64_t i = 0; i < k; ++i)
    shards.push_back(rows.slice(i * n / k, (i + 1) * n / k).copy_to(devices[static_cast<size_t>(i)]));
  return shards;
}

std::pair<std::vector<Tensor>, std::vector<Tensor>> split_batch(const Tensor& x, const Tensor& y,
                                                                const std::vector<Device>& devices) {
  if (x.dim(0) != y.dim(0))
    throw Error(fmt::format("split_batch: x has {} rows but y has {}", x.dim(0), y.dim(0)));
  return {scatter(x, devices), scatter(y, devices)};
}

// net(x, params): a module has parameters of its own, so these are put in their place for the call
// (PyTorch: torch.func.functional_call).
Tensor call(nn::Module& net, const Tensor& x, const std::vector<Tensor>& params) {
  net.set_parameters(params);
  return net(x);
}

// The sum over the rows of a shard, not their mean: only the whole batch is divided by its size, in sgd.
Tensor loss(const Tensor& y_hat, const Tensor& y) {
  return nn::cross_entropy(y_hat, y, nn::Reduction::sum);
}

// One step on a batch; returns its summed loss.
double train_batch(const Tensor& x, const Tensor& y, nn::Module& net,
                   const std::vector<std::vector<Tensor>>& device_params, const std::vector<Device>& devices,
                   float lr) {
  const auto [x_shards, y_shards] = split_batch(x, y, devices);

  // The loss of each shard, on its own device.
  std::vector<Tensor> ls;
  for (size_t i = 0; i < devices.size(); ++i)
    ls.push_back(loss(call(net, x_shards[i], device_params[i]), y_shards[i]));

  // Back, on each device.
  for (const Tensor& l : ls) backward(l);

  // Sum the gradients of each parameter over all devices.
  for (size_t i = 0; i < device_params[0].size(); ++i) {
    std::vector<Tensor> gradients;
    for (const auto& params : device_params) gradients.push_back(params[i].grad());
    allreduce(gradients);
  }

  // Update every replica, all its parameters, with the size of the whole batch.
  for (const auto& params : device_params) d2l::sgd(params, lr, x.dim(0));

  double sum = 0;
  for (const Tensor& l : ls) sum += l.item();  // waits for each device, as the chapter's loop does
  return sum;
}

void train(const d2l::Arguments& arguments) {
  const std::vector<Device> devices = make_devices(arguments.devices);
  auto [train_iter, test_iter] = d2l::load_data_fashion_mnist(arguments, devices[0]);
  fmt::print("{}\n", device_summary(devices));

  // The article's LeNet: 44,426 parameters.
  nn::Sequential net;
  net.add(std::make_shared<nn::Conv2d>(1, 6, 5, devices[0])).add(std::make_shared<nn::ReLU>());
  net.add(std::make_shared<nn::MaxPool2d>(2));
  net.add(std::make_shared<nn::Conv2d>(6, 16, 5, devices[0])).add(std::make_shared<nn::ReLU>());
  net.add(std::make_shared<nn::MaxPool2d>(2));
  net.add(std::make_shared<nn::Flatten>());
  net.add(std::make_shared<nn::Linear>(16 * 4 * 4, 120, devices[0])).add(std::make_shared<nn::ReLU>());
  net.add(std::make_shared<nn::Linear>(120, 84, devices[0])).add(std::make_shared<nn::ReLU>());
  net.add(std::make_shared<nn::Linear>(84, 10, devices[0]));
  nn::initialise(net, nn::Init::kaiming, 0);
  const std::vector<Tensor> params = net.parameters();

  std::vector<std::vector<Tensor>> device_params;
  for (const Device& device : devices) device_params.push_back(get_params(params, device));

  for (int64_t epoch = 1; epoch <= arguments.epochs; ++epoch) {
    const d2l::Timer timer;
    double sum = 0;
    for (const auto& [x, y] : train_iter.epoch(epoch))
      sum += train_batch(x, y, net, device_params, devices, arguments.lr);
    const double seconds = timer.seconds();
    // The article never looks at its test images. All replicas are equal: the first one answers.
    const auto first = [&](const Tensor& x) { return call(net, x, device_params[0]); };
    const double accuracy = d2l::evaluate_accuracy(first, test_iter);
    d2l::print_epoch(epoch, sum / static_cast<double>(train_iter.rows()), accuracy, seconds);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return d2l::main("multi_gpu_scratch",
                   "LeNet on several devices, from scratch: the PyTorch article's program.",
                   {.devices = 2, .batch_size = 256, .lr = 0.1F}, argc, argv, train);
}

// Training on several devices from scratch: sections 2 to 6 of the PyTorch article. Its functions are those
// of Lockstep: get_params, split_batch and train_batch are in parallel/replicas.cc and parallel/shards.cc,
// and the allreduce that it writes, all gradients to the first device and the sum back to all, is `star` in
// parallel/collective/star.cc. README.md, beside this file, says where the article is wrong, and what is
// right.
#include <fmt/format.h>

#include "labs/article/d2l.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "parallel/replicas.h"

using namespace lockstep;

namespace {

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

  const auto network = [&net](const Tensor& x, const std::vector<Tensor>& p) { return call(net, x, p); };

  std::vector<std::vector<Tensor>> device_params;
  for (const Device& device : devices) device_params.push_back(parallel::get_params(params, device));

  for (int64_t epoch = 1; epoch <= arguments.epochs; ++epoch) {
    const d2l::Timer timer;
    double sum = 0;
    for (const auto& [x, y] : train_iter.epoch(epoch))
      for (const Tensor& l :
           parallel::train_batch(x, y, device_params, devices, arguments.lr, network, loss, collective::star))
        if (l.defined()) sum += l.item();  // waits for each device, as the chapter's loop does
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

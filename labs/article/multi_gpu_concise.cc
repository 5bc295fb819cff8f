// Training on several devices, the concise way: the PaddlePaddle article, and sections 7 and 8 of the PyTorch
// one, which stop before they train. Their names and their order; README.md, beside this file, tells what is
// wrong with them as printed.
#include <fmt/format.h>

#include "core/autograd.h"
#include "labs/article/d2l.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "nn/sgd.h"
#include "parallel/data_parallel.h"
#include "parallel/replica_optimizers.h"

using namespace lockstep;

namespace {

std::shared_ptr<nn::Module> resnet_block(int64_t in_channels, int64_t out_channels, int num_residuals,
                                         const Device& device, bool first_block = false) {
  auto blk = std::make_shared<nn::Sequential>();
  for (int i = 0; i < num_residuals; ++i)
    if (i == 0 && !first_block)  // use_1x1conv=True: half the size and other channels cannot be added to x
      blk->add(std::make_shared<nn::Residual>(
          in_channels, out_channels, device,
          nn::ResidualOptions{.stride = 2, .shortcut = nn::Shortcut::projection}));
    else
      blk->add(std::make_shared<nn::Residual>(out_channels, out_channels, device));
  return blk;
}

// A 3x3 convolution and no pooling at the start: 28 x 28 pixels are too few for ImageNet's 7x7 with stride 2.
std::shared_ptr<nn::Module> resnet18(int64_t num_classes, int64_t in_channels, const Device& device) {
  auto net = std::make_shared<nn::Sequential>();
  net->add("conv1", std::make_shared<nn::Conv2d>(in_channels, 64, 3, device, nn::Window{1, 1}));
  net->add("bn1", std::make_shared<nn::BatchNorm2d>(64, device, nn::Activation::relu));
  net->add("resnet_block1", resnet_block(64, 64, 2, device, true));
  net->add("resnet_block2", resnet_block(64, 128, 2, device));
  net->add("resnet_block3", resnet_block(128, 256, 2, device));
  net->add("resnet_block4", resnet_block(256, 512, 2, device));
  net->add("global_avg_pool", std::make_shared<nn::AdaptiveAvgPool2d>(1, 1));
  net->add("flatten", std::make_shared<nn::Flatten>());
  net->add("fc", std::make_shared<nn::Linear>(512, num_classes, device));
  return net;
}

void train(const d2l::Arguments& arguments) {
  const std::vector<Device> devices = make_devices(arguments.devices);
  auto [train_iter, test_iter] = d2l::load_data_fashion_mnist(arguments, devices[0]);

  // One replica per device; the first one's parameters and buffers are copied into the others.
  parallel::DataParallel net(
      [](const Device& device) {
        auto replica = resnet18(10, 1, device);
        nn::initialise(*replica, nn::Init::normal, 0);  // N(0, 0.01^2): the batch norms make up for it
        return replica;
      },
      devices);
  fmt::print("{}\n{} parameters a device\n", device_summary(devices), net.module().parameter_count());

  // The loss is a mean over the whole batch, whose gradients are summed over the devices: nothing is left to
  // divide. The learning rate is what the caller gives; no device multiplies it.
  parallel::ReplicaOptimizers trainer(net, [](std::vector<Tensor> params) {
    return std::make_unique<nn::Sgd>(std::move(params), nn::SgdOptions{});
  });

  for (int64_t epoch = 1; epoch <= arguments.epochs; ++epoch) {
    const d2l::Timer timer;
    double sum = 0;
    net.train();
    for (const auto& [img, label] : train_iter.epoch(epoch)) {
      net.zero_grad();
      const Tensor l = nn::cross_entropy(net(img), label, nn::Reduction::mean);
      backward(l);
      trainer.step(arguments.lr);
      sum += l.item() * static_cast<double>(label.dim(0));
    }
    const double seconds = timer.seconds();
    // Each replica's batch norms have seen their own shards; for the test images they must agree.
    net.combine_buffers();
    net.eval();
    const double accuracy = d2l::evaluate_accuracy([&](const Tensor& x) { return net(x); }, test_iter);
    d2l::print_epoch(epoch, sum / static_cast<double>(train_iter.rows()), accuracy, seconds);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return d2l::main("multi_gpu_concise",
                   "ResNet-18 on several devices, with DataParallel: both articles' program.",
                   {.devices = 2, .batch_size = 256, .lr = 0.1F}, argc, argv, train);
}

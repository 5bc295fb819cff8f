#include "nn/models/lenet.h"

#include "nn/layers.h"

namespace lockstep::nn {
namespace {

std::shared_ptr<Sequential> article(const Device& device) {
  auto net = std::make_shared<Sequential>();
  net->add("conv1", std::make_shared<Conv2d>(1, 6, 5, device));
  net->add("relu1", std::make_shared<ReLU>());
  net->add("pool1", std::make_shared<MaxPool2d>(2));
  net->add("conv2", std::make_shared<Conv2d>(6, 16, 5, device));
  net->add("relu2", std::make_shared<ReLU>());
  net->add("pool2", std::make_shared<MaxPool2d>(2));
  net->add("flatten", std::make_shared<Flatten>());
  net->add("fc1", std::make_shared<Linear>(256, 120, device));
  net->add("relu3", std::make_shared<ReLU>());
  net->add("fc2", std::make_shared<Linear>(120, 84, device));
  net->add("relu4", std::make_shared<ReLU>());
  net->add("fc3", std::make_shared<Linear>(84, 10, device));
  return net;
}

std::shared_ptr<Sequential> chapter(const Device& device) {
  auto net = std::make_shared<Sequential>();
  net->add("conv1", std::make_shared<Conv2d>(1, 20, 3, device));
  net->add("relu1", std::make_shared<ReLU>());
  net->add("pool1", std::make_shared<AvgPool2d>(2));
  net->add("conv2", std::make_shared<Conv2d>(20, 50, 5, device));
  net->add("relu2", std::make_shared<ReLU>());
  net->add("pool2", std::make_shared<AvgPool2d>(2));
  net->add("flatten", std::make_shared<Flatten>());
  net->add("fc1", std::make_shared<Linear>(800, 128, device));
  net->add("relu3", std::make_shared<ReLU>());
  net->add("fc2", std::make_shared<Linear>(128, 10, device));
  return net;
}

std::shared_ptr<Sequential> classic(const Device& device) {
  auto net = std::make_shared<Sequential>();
  net->add("conv1", std::make_shared<Conv2d>(1, 6, 5, device, Window{.stride = 1, .padding = 2}));
  net->add("sigmoid1", std::make_shared<Sigmoid>());
  net->add("pool1", std::make_shared<AvgPool2d>(2));
  net->add("conv2", std::make_shared<Conv2d>(6, 16, 5, device));
  net->add("sigmoid2", std::make_shared<Sigmoid>());
  net->add("pool2", std::make_shared<AvgPool2d>(2));
  net->add("flatten", std::make_shared<Flatten>());
  net->add("fc1", std::make_shared<Linear>(400, 120, device));
  net->add("sigmoid3", std::make_shared<Sigmoid>());
  net->add("fc2", std::make_shared<Linear>(120, 84, device));
  net->add("sigmoid4", std::make_shared<Sigmoid>());
  net->add("fc3", std::make_shared<Linear>(84, 10, device));
  return net;
}

}  // namespace

std::shared_ptr<Sequential> lenet(LeNet variant, const Device& device) {
  switch (variant) {
    case LeNet::article:
      return article(device);
    case LeNet::chapter:
      return chapter(device);
    case LeNet::classic:
      break;
  }
  return classic(device);
}

}  // namespace lockstep::nn

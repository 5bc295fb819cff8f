#include "nn/models/lenet.h"

#include "nn/layers.h"

namespace lockstep::nn {
namespace {

std::shared_ptr<Sequential> article(const Device& device) {
  auto net = std::make_shared<Sequential>();
  net->add<Conv2d>("conv1", 1, 6, 5, device);
  net->add<ReLU>("relu1");
  net->add<MaxPool2d>("pool1", 2);
  net->add<Conv2d>("conv2", 6, 16, 5, device);
  net->add<ReLU>("relu2");
  net->add<MaxPool2d>("pool2", 2);
  net->add<Flatten>("flatten");
  net->add<Linear>("fc1", 256, 120, device);
  net->add<ReLU>("relu3");
  net->add<Linear>("fc2", 120, 84, device);
  net->add<ReLU>("relu4");
  net->add<Linear>("fc3", 84, 10, device);
  return net;
}

std::shared_ptr<Sequential> chapter(const Device& device) {
  auto net = std::make_shared<Sequential>();
  net->add<Conv2d>("conv1", 1, 20, 3, device);
  net->add<ReLU>("relu1");
  net->add<AvgPool2d>("pool1", 2);
  net->add<Conv2d>("conv2", 20, 50, 5, device);
  net->add<ReLU>("relu2");
  net->add<AvgPool2d>("pool2", 2);
  net->add<Flatten>("flatten");
  net->add<Linear>("fc1", 800, 128, device);
  net->add<ReLU>("relu3");
  net->add<Linear>("fc2", 128, 10, device);
  return net;
}

std::shared_ptr<Sequential> classic(const Device& device) {
  auto net = std::make_shared<Sequential>();
  net->add<Conv2d>("conv1", 1, 6, 5, device, Window{.stride = 1, .padding = 2});
  net->add<Sigmoid>("sigmoid1");
  net->add<AvgPool2d>("pool1", 2);
  net->add<Conv2d>("conv2", 6, 16, 5, device);
  net->add<Sigmoid>("sigmoid2");
  net->add<AvgPool2d>("pool2", 2);
  net->add<Flatten>("flatten");
  net->add<Linear>("fc1", 400, 120, device);
  net->add<Sigmoid>("sigmoid3");
  net->add<Linear>("fc2", 120, 84, device);
  net->add<Sigmoid>("sigmoid4");
  net->add<Linear>("fc3", 84, 10, device);
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

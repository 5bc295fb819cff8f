#include "nn/models/resnet.h"

#include "nn/layers.h"

namespace lockstep::nn {
namespace {

// Two residual blocks; the first one changes the number of channels and halves the image, or neither.
std::shared_ptr<Sequential> stage(int64_t in, int64_t out, const Device& device, ResNetVariant variant) {
  const bool chapter = variant == ResNetVariant::chapter;
  const ResidualOptions plain{.bias = chapter ? Bias::learned : Bias::none};
  ResidualOptions first = plain;
  if (in != out) {
    first.stride = 2;
    first.shortcut = chapter ? Shortcut::projection : Shortcut::normed_projection;
  }
  auto blocks = std::make_shared<Sequential>();
  blocks->add(std::make_shared<Residual>(in, out, device, first));
  blocks->add(std::make_shared<Residual>(out, out, device, plain));
  return blocks;
}

}  // namespace

std::shared_ptr<Sequential> resnet18(int64_t num_classes, int64_t in_channels, const Device& device,
                                     ResNetStem stem, ResNetVariant variant) {
  const Bias bias = variant == ResNetVariant::chapter ? Bias::learned : Bias::none;
  auto net = std::make_shared<Sequential>();
  if (stem == ResNetStem::small)
    net->add<Conv2d>("conv1", in_channels, 64, 3, device, Window{1, 1}, bias);
  else
    net->add<Conv2d>("conv1", in_channels, 64, 7, device, Window{2, 3}, bias);
  net->add<BatchNorm2d>("bn1", 64, device, Activation::relu);
  if (stem == ResNetStem::imagenet) net->add<MaxPool2d>("pool1", 3, Window{2, 1});
  net->add("resnet_block1", stage(64, 64, device, variant));
  net->add("resnet_block2", stage(64, 128, device, variant));
  net->add("resnet_block3", stage(128, 256, device, variant));
  net->add("resnet_block4", stage(256, 512, device, variant));
  net->add<AdaptiveAvgPool2d>("global_avg_pool", 1, 1);
  net->add<Flatten>("flatten");
  net->add<Linear>("fc", 512, num_classes, device);
  return net;
}

}  // namespace lockstep::nn

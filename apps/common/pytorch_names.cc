#include "apps/common/pytorch_names.h"

namespace lockstep::apps {

nn::PyTorchNames pytorch_names(const ModelDescription& description) {
  const auto value = [&description](const char* key) {
    const auto found = description.find(key);
    return found == description.end() ? std::string() : found->second;
  };
  // An nn.Sequential of all layers, activations, pooling and nn.Flatten included: names are positions.
  if (value("model") == "lenet")
    return {.first = {{"conv1", "0"}, {"conv2", "3"}, {"fc1", "7"}, {"fc2", "9"}, {"fc3", "11"}},
            .inner = {}};
  if (value("model") == "resnet18" && value("variant") == "torchvision")
    return {.first = {{"resnet_block1", "layer1"},
                      {"resnet_block2", "layer2"},
                      {"resnet_block3", "layer3"},
                      {"resnet_block4", "layer4"}},
            .inner = {{"conv3", "downsample.0"}, {"bn3", "downsample.1"}}};
  // d2l.resnet18: nn.Sequential(conv, norm, ...), and "fc" is nn.Sequential(nn.Flatten(), nn.Linear(...)).
  if (value("model") == "resnet18")
    return {.first = {{"conv1", "0"}, {"bn1", "1"}, {"fc", "fc.1"}}, .inner = {}};
  return {};
}

}  // namespace lockstep::apps

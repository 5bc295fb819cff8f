// ResNet-18, as programs know it by name.
#include "apps/common/command_line.h"
#include "apps/common/models.h"
#include "nn/models/resnet.h"

using namespace lockstep;

namespace {

std::shared_ptr<nn::Module> build(const apps::ModelDescription& model, const Device& device) {
  const auto stem = apps::choose<nn::ResNetStem>(
      "stem", model.at("stem"), {{"small", nn::ResNetStem::small}, {"imagenet", nn::ResNetStem::imagenet}});
  const auto variant = apps::choose<nn::ResNetVariant>(
      "variant", model.at("variant"),
      {{"chapter", nn::ResNetVariant::chapter}, {"torchvision", nn::ResNetVariant::torchvision}});
  return nn::resnet18(apps::number(model, "classes"), apps::number(model, "channels"), device, stem, variant);
}

const apps::RegisterModel registered(
    {"resnet18",
     {{"stem",
       "small",
       {"small", "imagenet"},
       "small: a 3x3 convolution with stride 1, for small images. imagenet: 7x7 with stride 2, then "
       "pooling."},
      {"variant",
       "chapter",
       {"chapter", "torchvision"},
       "chapter: convolutions with biases, plain shortcuts. torchvision: no biases, batch norm in "
       "shortcuts."},
      {"classes", "10", {}, "Classes to tell apart."},
      {"channels", "1", {}, "Channels of an image."}},
     build});

}  // namespace

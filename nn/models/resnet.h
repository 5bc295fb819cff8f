// ResNet-18 (He et al., 2016), as in the chapter "Concise Implementation for Multiple GPUs" (Dive into Deep
// Learning) or as in torchvision.
#pragma once

#include <memory>

#include "nn/module.h"

namespace lockstep::nn {

enum class ResNetStem {
  small,     // 3x3, stride 1, no pooling: for 28 x 28 or 32 x 32 images
  imagenet,  // 7x7, stride 2, then 3x3 max pooling with stride 2
};

enum class ResNetVariant {
  chapter,      // convolutions have biases, shortcuts no norm: 11,175,818 parameters with 1 channel and 10
                // classes
  torchvision,  // no biases, normed shortcuts: 11,689,512 parameters with stem imagenet, 3 channels, 1,000
                // classes
};

// From images [batch, height, width, in_channels] of any size to logits [batch, num_classes]. Names:
// conv1, bn1, [pool1,] resnet_block1.0.conv1 to resnet_block4.1.bn2, global_avg_pool, flatten, fc.
// Weights are zeros until nn/init.h fills them.
std::shared_ptr<Sequential> resnet18(int64_t num_classes, int64_t in_channels, const Device& device,
                                     ResNetStem stem = ResNetStem::small,
                                     ResNetVariant variant = ResNetVariant::chapter);

}  // namespace lockstep::nn

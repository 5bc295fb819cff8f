// LeNet for 28 x 28 images of one channel and ten classes, in the three variants that one meets.
#pragma once

#include <memory>

#include "nn/module.h"

namespace lockstep::nn {

enum class LeNet {
  article,  // 5x5 unpadded, ReLU, max pooling, 256-120-84-10: 44,426 parameters
  chapter,  // 1-20-50 channels, 3x3 then 5x5, ReLU, average pooling, 800-128-10: 129,068 parameters
  classic,  // 5x5 padding 2, sigmoid, average pooling, 400-120-84-10: 61,706 parameters (LeCun et al., 1998)
};

// Parameters are zeros until nn/init.h fills them.
std::shared_ptr<Sequential> lenet(LeNet variant, const Device& device);

}  // namespace lockstep::nn

// Which way each convolution of a model goes, for people.
#pragma once

#include <string>
#include <vector>

#include "nn/module.h"

namespace lockstep::nn {

struct ConvPathRow {
  std::string layer, pass;
  std::string path, why;  // kernels::conv2d_choice
};

// For every Conv2d that an input like x reaches, and each pass that training then runs: a first layer has no
// gradient of its input. Runs the model forward once, evaluating.
std::vector<ConvPathRow> conv_paths(Module& model, const Tensor& x);

}  // namespace lockstep::nn

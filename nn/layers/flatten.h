// Layers that change no value.
#pragma once

#include "nn/module.h"

namespace lockstep::nn {

// [batch, ...] -> [batch, everything else], a view.
Tensor flatten(const Tensor& x);

class Flatten : public Module {
 public:
  Tensor forward(const Tensor& x) override;
  std::string describe() const override { return "Flatten"; }
};

class Identity : public Module {
 public:
  Tensor forward(const Tensor& x) override { return x; }
  std::string describe() const override { return "Identity"; }
};

}  // namespace lockstep::nn

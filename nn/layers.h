// Layers: modules around the functions of nn/functional.h. Parameters start as zeros; nn/init.h fills them.
#pragma once

#include "nn/module.h"

namespace lockstep::nn {

class Linear : public Module {
 public:
  Linear(int64_t in, int64_t out, const Device& device);
  Tensor forward(const Tensor& x) override;
  std::string describe() const override;

 private:
  Tensor& weight_;  // [out, in]
  Tensor& bias_;    // [out]
};

struct Window {
  int stride = 1;
  int padding = 0;
};

class Conv2d : public Module {
 public:
  Conv2d(int64_t in, int64_t out, int kernel, const Device& device, Window window = {});
  Tensor forward(const Tensor& x) override;
  std::string describe() const override;

 private:
  Window window_;
  Tensor& weight_;  // [out, kernel, kernel, in]
  Tensor& bias_;    // [out]
};

// Pools over square windows that do not overlap unless another stride is given.
class MaxPool2d : public Module {
 public:
  explicit MaxPool2d(int kernel) : MaxPool2d(kernel, {kernel, 0}) {}
  MaxPool2d(int kernel, Window window) : kernel_(kernel), window_(window) {}
  Tensor forward(const Tensor& x) override;
  std::string describe() const override;

 private:
  int kernel_;
  Window window_;
};

class AvgPool2d : public Module {
 public:
  explicit AvgPool2d(int kernel) : AvgPool2d(kernel, {kernel, 0}) {}
  AvgPool2d(int kernel, Window window) : kernel_(kernel), window_(window) {}
  Tensor forward(const Tensor& x) override;
  std::string describe() const override;

 private:
  int kernel_;
  Window window_;
};

class ReLU : public Module {
 public:
  Tensor forward(const Tensor& x) override;
  std::string describe() const override { return "ReLU"; }
};

class Sigmoid : public Module {
 public:
  Tensor forward(const Tensor& x) override;
  std::string describe() const override { return "Sigmoid"; }
};

class Flatten : public Module {
 public:
  Tensor forward(const Tensor& x) override;
  std::string describe() const override { return "Flatten"; }
};

}  // namespace lockstep::nn

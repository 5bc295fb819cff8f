// Layers: modules around the functions of nn/functional.h. Weights start as zeros; nn/init.h fills them.
#pragma once

#include "nn/functional.h"
#include "nn/module.h"

namespace lockstep::nn {

enum class Bias { learned, none };

class Linear : public Module {
 public:
  Linear(int64_t in, int64_t out, const Device& device, Bias bias = Bias::learned);
  Tensor forward(const Tensor& x) override;
  std::string describe() const override;

 private:
  Tensor& weight_;  // [out, in]
  Tensor* bias_;    // [out], or null
};

struct Window {
  int stride = 1;
  int padding = 0;
};

class Conv2d : public Module {
 public:
  Conv2d(int64_t in, int64_t out, int kernel, const Device& device, Window window = {},
         Bias bias = Bias::learned);
  Tensor forward(const Tensor& x) override;
  std::string describe() const override;

 private:
  Window window_;
  Tensor& weight_;  // [out, kernel, kernel, in]
  Tensor* bias_;    // [out], or null
};

// Normalises every channel: by the statistics of the batch in training, else by the running ones. The
// activation, and the addition of another tensor before it, cost no pass of their own.
class BatchNorm2d : public Module {
 public:
  BatchNorm2d(int64_t channels, const Device& device, Activation activation = Activation::none);
  Tensor forward(const Tensor& x) override { return forward(x, Tensor()); }
  // activation(norm(x) + addend), where there is one; addend has the shape of x.
  Tensor forward(const Tensor& x, const Tensor& addend);
  // In training, normalises by the statistics of all replicas from now on; by its own ones with null.
  void synchronise(std::shared_ptr<ReplicaStatistics> replicas) { replicas_ = std::move(replicas); }
  std::string describe() const override;

 private:
  Activation activation_;
  std::shared_ptr<ReplicaStatistics> replicas_;
  Tensor& weight_;  // all four: [channels]
  Tensor& bias_;
  Tensor running_mean_, running_var_;
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

// Averages over windows such that the output is `height` x `width`.
class AdaptiveAvgPool2d : public Module {
 public:
  AdaptiveAvgPool2d(int height, int width) : height_(height), width_(width) {}
  Tensor forward(const Tensor& x) override;
  std::string describe() const override;

 private:
  int height_, width_;
};

// In training, sets elements to 0 with the given probability and scales the others so that the mean stays.
// The n-th call draws by (seed, n, replica()): the replicas of a DataParallel drop other elements, whatever
// devices carry them, and replica 0 what one device does. Layers that should differ need different seeds.
class Dropout : public Module {
 public:
  Dropout(float probability, uint64_t seed);
  Tensor forward(const Tensor& x) override;
  std::string describe() const override;

 private:
  float probability_;
  uint64_t seed_;
  int64_t& step_;
};

class Identity : public Module {
 public:
  Tensor forward(const Tensor& x) override { return x; }
  std::string describe() const override { return "Identity"; }
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

// What backward reads must be what forward saw: a value that was overwritten in between is an error that
// names the operation and the tensor, whoever overwrote it; what backward does not need may change.
#include <gtest/gtest.h>

#include <functional>

#include "core/autograd.h"
#include "kernels/elementwise.h"
#include "nn/adam.h"
#include "nn/init.h"
#include "nn/io/state_dict.h"
#include "nn/layers.h"
#include "nn/sgd.h"
#include "tests/bfloat16.h"
#include "tests/error_of.h"

namespace lockstep::nn {
namespace {

Device device() {
  return make_devices(1)[0];
}

Tensor values(const Shape& shape, bool wants_gradient = true) {
  Tensor tensor = Tensor::zeros(shape, device());
  return tensor.set_requires_grad(wants_gradient);
}

void overwrite(const Tensor& tensor) {
  tensor.copy_from(Tensor::zeros(tensor.shape(), tensor.device(), tensor.dtype()));
}

void go_back(const Tensor& y) {
  backward(y, Tensor::zeros(y.shape(), y.device(), y.dtype()));
}

std::string message(const std::string& tensor, const std::string& operation) {
  return "backward: the " + tensor + " of '" + operation +
         "' was overwritten after forward had used it: go back before a step or a copy overwrites it, or run "
         "forward again";
}

TEST(Overwritten, NamesTheOperationAndTheTensor) {
  const auto error = [](const std::function<Tensor()>& forward, const Tensor& changed) {
    const Tensor y = forward();
    overwrite(changed.defined() ? changed : y);
    return error_of([&] { go_back(y); });
  };
  const Tensor x = values({2, 3}), w = values({4, 3}), b = values({4});
  const auto linear_of = [&] { return linear(x, w, b); };
  EXPECT_EQ(error(linear_of, w), message("weight [4, 3]", "linear"));
  EXPECT_EQ(error(linear_of, x), message("input [2, 3]", "linear"));
  const Tensor image = values({1, 4, 4, 2}), kernel = values({3, 3, 3, 2});
  const auto conv_of = [&] { return conv2d(image, kernel, Tensor()); };
  EXPECT_EQ(error(conv_of, kernel), message("weight [3, 3, 3, 2]", "conv2d"));
  EXPECT_EQ(error(conv_of, image), message("input [1, 4, 4, 2]", "conv2d"));
  EXPECT_EQ(error([&] { return relu(x); }, Tensor()), message("output [2, 3]", "relu"));
  EXPECT_EQ(error([&] { return sigmoid(x); }, Tensor()), message("output [2, 3]", "sigmoid"));
  EXPECT_EQ(error([&] { return gelu(x); }, x), message("input [2, 3]", "gelu"));
  EXPECT_EQ(error([&] { return silu(x); }, x), message("input [2, 3]", "silu"));

  const BatchNormState norm{values({2}), values({2}), values({2}, false), values({2}, false)};
  for (const bool training : {true, false}) {
    const auto norm_of = [&] { return batch_norm(image, norm, training, Activation::relu); };
    EXPECT_EQ(error(norm_of, image), message("input [1, 4, 4, 2]", "batch_norm"));
    EXPECT_EQ(error(norm_of, norm.weight), message("weight [2]", "batch_norm"));
    EXPECT_EQ(error(norm_of, Tensor()), message("output [1, 4, 4, 2]", "batch_norm"));
  }
  const auto frozen = [&] { return batch_norm(image, norm, false); };
  EXPECT_EQ(error(frozen, norm.running_mean), message("running mean [2]", "batch_norm"));
}

TEST(Overwritten, AViewIsTheWholeAndTheWholeIsItsViews) {
  const Tensor buffer = values({4, 3}, false);
  const Tensor w = values({4, 3}), b = values({4});
  const Tensor y = linear(buffer.slice(0, 2), w, b), z = linear(buffer.slice(0, 2).reshape({2, 3}), w, b);
  overwrite(buffer);  // the next batch, into the same memory
  EXPECT_EQ(error_of([&] { go_back(y); }), message("input [2, 3]", "linear"));
  EXPECT_EQ(error_of([&] { go_back(z); }), message("input [2, 3]", "linear"));
  const Tensor again = linear(buffer, w, b);
  overwrite(w.reshape({12}).detach());
  go_back(again);  // it is the weight's gradient that is wanted, and that needs the input alone
  const Tensor input = values({2, 3});
  const Tensor wanted = linear(input, w, b);
  overwrite(w.reshape({12}).detach());
  EXPECT_EQ(error_of([&] { go_back(wanted); }), message("weight [4, 3]", "linear"));
}

TEST(Overwritten, LeavesGradientsAsTheyWereAndTheGraphWhole) {
  Linear a(3, 3, device()), b(3, 3, device());
  const Tensor h = a(values({2, 3}, false));
  const Tensor y = b(h);
  overwrite(h);  // what b reads: b's node comes first, but this holds for any
  EXPECT_EQ(error_of([&] { go_back(y); }), message("input [2, 3]", "linear"));
  const Tensor x = values({2, 3}, false);
  const Tensor z = b(a(x));
  overwrite(x);  // what a reads: b's gradients would come before it
  for (int again = 0; again < 2; ++again)
    EXPECT_EQ(error_of([&] { go_back(z); }), message("input [2, 3]", "linear"));
  for (const Linear* layer : {&a, &b})
    for (const Tensor& parameter : layer->parameters()) EXPECT_FALSE(parameter.grad().defined());
}

TEST(Overwritten, WhatBackwardDoesNotNeedMayChange) {
  const auto passes = [](const std::function<Tensor()>& forward, const std::vector<Tensor>& changed) {
    const Tensor y = forward();
    for (const Tensor& tensor : changed) overwrite(tensor);
    go_back(y);
  };
  const Tensor x = values({2, 3}), w = values({4, 3}), b = values({4});
  const Tensor image = values({1, 4, 4, 2}), kernel = values({3, 3, 3, 2});
  passes([&] { return linear(x, w, b); }, {b});
  passes([&] { return linear(x.detach(), w, b); }, {w});  // a first layer's input wants no gradient
  passes([&] { return linear(x, w.detach(), b); }, {x});  // a frozen weight neither
  passes([&] { return conv2d(image.detach(), kernel, Tensor()); }, {kernel});
  passes([&] { return conv2d(image, kernel.detach(), Tensor()); }, {image});
  passes([&] { return max_pool2d(image, 2, 2); }, {image});
  passes([&] { return avg_pool2d(image, 2, 2); }, {image});
  passes([&] { return relu(x); }, {x});
  passes([&] { return dropout(x, 0.5F, 1, 0); }, {x});
  passes([&] { return add(x, x); }, {x});
  passes([&] { return cast(x, DType::bfloat16); }, {x});
  const Tensor labels = Tensor::zeros({2}, device(), DType::int32);
  passes([&] { return cross_entropy(x, labels, Reduction::sum); }, {x, labels});

  const BatchNormState norm{values({2}), values({2}), values({2}, false), values({2}, false)};
  passes([&] { return batch_norm(image, norm, true); }, {norm.running_mean, norm.running_var, norm.bias});
  passes([&] { return batch_norm(image, norm, false); }, {norm.running_var, norm.bias});
  passes([&] { return batch_norm(image.detach(), norm, true); }, {norm.weight});
  // A frozen norm only scales the gradient.
  const BatchNormState frozen{norm.weight.detach(), norm.bias.detach(), norm.running_mean, norm.running_var};
  passes([&] { return batch_norm(image, frozen, false); }, {image, norm.running_mean});
}

// Products in bfloat16 read rounded copies, which nobody else can change.
TEST(Overwritten, GradientsOfBfloat16ProductsAreThoseOfTheWeightsThatForwardSaw) {
  const Device on = device();
  on.use_precision(kernels::Precision::bf16);
  Sequential net;
  net.add<Linear>("a", 1, 1, on).add<Linear>("b", 1, 1, on);
  const std::vector<Tensor> parameters = net.parameters();
  for (const Tensor& p : parameters) p.copy_from(Tensor::from_host<float>({2}, p.shape(), on));
  const Tensor y = net(Tensor::from_host<float>({1}, {1, 1}, on));
  for (const Tensor& p : parameters) overwrite(p);
  backward(y, Tensor::from_host(test::rounded({1}), {1, 1}, on));
  on.use_precision(kernels::Precision::fp32);
  EXPECT_EQ(parameters[0].grad().item(), 2.0F);  // b's weight
  EXPECT_EQ(parameters[2].grad().item(), 4.0F);  // a's output
}

// A layer between another one and the loss: its weight is read on the way back.
struct TwoLayers {
  Sequential net;
  Tensor x = values({2, 3}, false);
  TwoLayers() {
    net.add<Linear>("a", 3, 3, device()).add<Linear>("b", 3, 3, device());
    initialise(net, Init::kaiming, 1);
  }
  std::string error_after(const std::function<void()>& change) {
    const Tensor y = net(x);
    change();
    return error_of([&] { go_back(y); });
  }
};

TEST(Overwritten, ByAnOptimizersStep) {
  const auto error = [](const MakeOptimizer& make) {
    TwoLayers layers;
    const auto optimizer = make(layers.net.parameters());
    go_back(layers.net(layers.x));
    return layers.error_after([&] { optimizer->step(0.1F); });
  };
  EXPECT_EQ(error([](std::vector<Tensor> parameters) {
              return std::make_unique<Sgd>(std::move(parameters), SgdOptions{});
            }),
            message("weight [3, 3]", "linear"));
  EXPECT_EQ(error([](std::vector<Tensor> parameters) {
              return std::make_unique<Adam>(std::move(parameters), AdamOptions{});
            }),
            message("weight [3, 3]", "linear"));
}

TEST(Overwritten, ByWhateverWritesInPlace) {
  TwoLayers layers;
  const Tensor weight = layers.net.parameters()[2];
  const std::string wanted = message("weight [3, 3]", "linear");
  EXPECT_EQ(layers.error_after([&] { initialise(layers.net, Init::kaiming, 2); }), wanted);
  EXPECT_EQ(layers.error_after([&] { load_state_dict(layers.net, state_dict(layers.net), "x"); }), wanted);
  EXPECT_EQ(layers.error_after([&] { weight.set_to_zero(); }), wanted);
  EXPECT_EQ(layers.error_after(
                [&] { weight.detach().reshape({9}).slice(3, 4).copy_from(Tensor::zeros({1}, device())); }),
            wanted);
  // A kernel of one's own says so itself.
  EXPECT_EQ(layers.error_after([&] {
    kernels::fill(weight.data<float>(), 2, weight.size(), device().stream());
    weight.mark_overwritten();
  }),
            wanted);
}

TEST(Overwritten, OtherTensorsInTheParametersPlaceChangeNothing) {
  TwoLayers layers;
  const std::vector<Tensor> before = layers.net.parameters();
  const Tensor y = layers.net(layers.x);
  std::vector<Tensor> copies;
  for (const Tensor& parameter : before) copies.push_back(parameter.copy_to(device()));
  layers.net.set_parameters(copies);
  go_back(y);
  EXPECT_TRUE(before[0].grad().defined());
}

TEST(Overwritten, RunningStatisticsOfAFrozenNorm) {
  BatchNorm2d norm(2, device());
  const Tensor image = values({1, 4, 4, 2});
  norm.eval();
  const Tensor y = norm(image);
  norm.train();
  norm(image);
  EXPECT_EQ(error_of([&] { go_back(y); }), message("running mean [2]", "batch_norm"));
  // In training they are not read on the way back.
  const Tensor first = norm(image), second = norm(image);
  go_back(first);
  go_back(second);
}

// Gradients that were set are added to: whoever computed with one must know.
TEST(Overwritten, AGradientThatBackwardAddsTo) {
  const Tensor x = values({2, 3}), w = values({3, 3}), b = values({3});
  x.set_grad(Tensor::zeros({2, 3}, device()));
  const Tensor y = linear(x.grad(), w, b);
  go_back(linear(x, w, b));
  EXPECT_EQ(error_of([&] { go_back(y); }), message("input [2, 3]", "linear"));
}

}  // namespace
}  // namespace lockstep::nn

// Operations and training in bfloat16 against float32.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "core/autograd.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "nn/sgd.h"
#include "tests/bfloat16.h"

namespace lockstep::nn {
namespace {

using kernels::Precision;

Device device() {
  return make_devices(1)[0];
}

// While one lives, the device has that precision.
class WithPrecision {
 public:
  explicit WithPrecision(Precision precision) { device().use_precision(precision); }
  ~WithPrecision() { device().use_precision(Precision::fp32); }
  WithPrecision(const WithPrecision&) = delete;
  WithPrecision& operator=(const WithPrecision&) = delete;
};

// Values that bfloat16 has.
std::vector<float> values(const Shape& shape, uint32_t seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> value(-1, 1);
  std::vector<float> all(static_cast<size_t>(element_count(shape)));
  for (float& v : all) v = value(generator);
  return test::through_bfloat16(all);
}

std::vector<float> floats_of(const Tensor& tensor) {
  return cast(tensor, DType::float32).to_host<float>();
}

// An operation on activations and parameters, which stay float32.
struct Operation {
  const char* name;
  std::vector<Shape> activations, parameters;
  std::function<Tensor(const std::vector<Tensor>& activations, const std::vector<Tensor>& parameters)> run;
  // How many roundings to bfloat16, of up to the largest value of the result each, lie on the way of a value
  // and of a gradient. Operands have no error: they are bfloat16 already.
  double roundings;
};

BatchNormState norm_of(const std::vector<Tensor>& parameters) {
  return {parameters[0], parameters[1], Tensor::zeros({16}, device()), Tensor::zeros({16}, device())};
}

std::vector<Operation> operations() {
  const Shape images{3, 6, 5, 16};
  const Shape bias{16};
  return {
      {"linear",
       {{5, 40}},
       {{16, 40}, {16}},
       [](const auto& a, const auto& p) { return linear(a[0], p[0], p[1]); },
       1},
      // The sum, and the sum with the bias; and where cuDNN makes it, dw.
      {"conv2d",
       {images},
       {{16, 3, 3, 16}, {16}},
       [](const auto& a, const auto& p) { return conv2d(a[0], p[0], p[1], 2, 1); },
       2},
      {"max_pool2d", {images}, {}, [](const auto& a, const auto&) { return max_pool2d(a[0], 3, 2, 1); }, 1},
      {"avg_pool2d", {images}, {}, [](const auto& a, const auto&) { return avg_pool2d(a[0], 2, 2); }, 1},
      {"adaptive_avg_pool2d",
       {images},
       {},
       [](const auto& a, const auto&) { return adaptive_avg_pool2d(a[0], 2, 1); },
       1},
      {"add", {images, images}, {}, [](const auto& a, const auto&) { return add(a[0], a[1]); }, 1},
      {"dropout", {images}, {}, [](const auto& a, const auto&) { return dropout(a[0], 0.3F, 5, 1); }, 1},
      {"relu", {images}, {}, [](const auto& a, const auto&) { return relu(a[0]); }, 0},
      {"sigmoid",
       {images},
       {},
       [](const auto& a, const auto&) { return sigmoid(a[0]); },
       3},  // y (1 - y) of a rounded y
      {"gelu", {images}, {}, [](const auto& a, const auto&) { return gelu(a[0]); }, 1},
      {"silu", {images}, {}, [](const auto& a, const auto&) { return silu(a[0]); }, 1},
      {"batch_norm",
       {images, images},
       {bias, bias},
       [](const auto& a, const auto& p) {
         return batch_norm(a[0], norm_of(p), true, Activation::none, a[1]);
       },
       1},
      {"flatten", {images}, {}, [](const auto& a, const auto&) { return flatten(a[0]); }, 0},
  };
}

struct Results {
  std::vector<std::vector<float>> of;  // the output, then the gradients
  DType output, activation_gradient, parameter_gradient;
};

Results run(const Operation& operation, DType type) {
  const WithPrecision precision(type == DType::bfloat16 ? Precision::bf16 : Precision::fp32);
  uint32_t seed = 1;
  std::vector<Tensor> activations, parameters;
  for (const Shape& shape : operation.activations) {
    activations.push_back(cast(Tensor::from_host(values(shape, seed++), shape, device()), type));
    activations.back().set_requires_grad(true);
  }
  for (const Shape& shape : operation.parameters) {
    parameters.push_back(Tensor::from_host(values(shape, seed++), shape, device()));
    parameters.back().set_requires_grad(true);
  }
  const Tensor y = operation.run(activations, parameters);
  backward(y, cast(Tensor::from_host(values(y.shape(), seed), y.shape(), device()), type));
  Results results{{floats_of(y)}, y.dtype(), type, DType::float32};
  for (const Tensor& activation : activations) {
    results.of.push_back(floats_of(activation.grad()));
    results.activation_gradient = activation.grad().dtype();
  }
  for (const Tensor& parameter : parameters) {
    results.of.push_back(floats_of(parameter.grad()));
    results.parameter_gradient = parameter.grad().dtype();
  }
  return results;
}

TEST(Bfloat16, OperationsAgreeWithFloat32OnTheSameValues) {
  for (const Operation& operation : operations()) {
    SCOPED_TRACE(operation.name);
    const Results want = run(operation, DType::float32), got = run(operation, DType::bfloat16);
    EXPECT_EQ(got.output, DType::bfloat16);
    EXPECT_EQ(got.activation_gradient, DType::bfloat16);
    EXPECT_EQ(got.parameter_gradient, DType::float32);
    for (size_t r = 0; r < want.of.size(); ++r) {
      double largest = 0;
      for (const float value : want.of[r]) largest = std::max<double>(largest, std::fabs(value));
      // Half a step of bfloat16 is 2^-8 of a value at most; float32's own roundings are lost in the 1e-5.
      for (size_t i = 0; i < want.of[r].size(); ++i)
        ASSERT_NEAR(got.of[r][i], want.of[r][i], (operation.roundings * 0x1p-8 + 1e-5) * largest)
            << (r == 0 ? "output, " : "gradient ") << r << ", element " << i;
    }
  }
}

TEST(Bfloat16, AFloat32InputIsCastAndSoIsItsGradient) {
  const WithPrecision precision(Precision::bf16);
  Tensor x = Tensor::from_host(values({2, 5, 5, 16}, 1), {2, 5, 5, 16}, device());
  x.set_requires_grad(true);
  const Tensor w = Tensor::from_host(values({16, 3, 3, 16}, 2), {16, 3, 3, 16}, device());
  const Tensor y = conv2d(x, w, {}, 1, 1);
  EXPECT_EQ(y.dtype(), DType::bfloat16);
  // A shortcut of the other type: an addend follows x, a sum is float32.
  EXPECT_EQ(add(y, x).dtype(), DType::float32);
  const Tensor scale = Tensor::zeros({16}, device());
  const Tensor normed = batch_norm(y, norm_of({scale, scale}), true, Activation::relu, x);
  EXPECT_EQ(normed.dtype(), DType::bfloat16);
  backward(normed, Tensor::zeros(normed.shape(), device(), DType::bfloat16));
  EXPECT_EQ(x.grad().dtype(), DType::float32);
}

TEST(Bfloat16, AWeightsGradientHasItsType) {
  for (const Precision used : {Precision::fp32, Precision::bf16}) {
    const WithPrecision precision(used);
    const Tensor x = Tensor::from_host(values({2, 5, 5, 16}, 1), {2, 5, 5, 16}, device());
    for (const Shape& shape : {Shape{16, 3, 3, 16}, Shape{16, 400}}) {
      const Tensor master = Tensor::from_host(values(shape, 2), shape, device());
      std::vector<std::vector<float>> gradients;
      for (Tensor w : {cast(master, DType::bfloat16), cast(cast(master, DType::bfloat16), DType::float32)}) {
        w.set_requires_grad(true);
        const Tensor y =
            shape.size() == 4 ? conv2d(x, w, {}) : linear(flatten(x), w, Tensor::zeros({16}, device()));
        backward(y, cast(Tensor::from_host(values(y.shape(), 3), y.shape(), device()), y.dtype()));
        EXPECT_EQ(w.grad().dtype(), w.dtype());
        gradients.push_back(cast(cast(w.grad(), DType::bfloat16), DType::float32).to_host<float>());
      }
      EXPECT_EQ(gradients[0], gradients[1]) << "the same one, rounded";
    }
  }
}

TEST(Bfloat16, CrossEntropyIsThatOfTheLogitsValues) {
  std::vector<float> losses;
  for (const DType type : {DType::float32, DType::bfloat16}) {
    Tensor logits = cast(Tensor::from_host(values({4, 10}, 3), {4, 10}, device()), type);
    logits.set_requires_grad(true);
    const Tensor labels = Tensor::from_host<int32_t>({1, 9, 0, 4}, {4}, device());
    const Tensor loss = cross_entropy(logits, labels, Reduction::mean);
    backward(loss);
    EXPECT_EQ(logits.grad().dtype(), type);
    losses.push_back(loss.item());
  }
  EXPECT_EQ(losses[0], losses[1]);  // float32 arithmetic on the same values
}

// A stem, a residual block, pooling and a classifier for 8x8 images.
struct TinyNet : Sequential {
  TinyNet() {
    add(std::make_shared<Conv2d>(1, 16, 3, device(), Window{.stride = 1, .padding = 1}));
    add(std::make_shared<BatchNorm2d>(16, device(), Activation::relu));
    add(std::make_shared<Residual>(16, 16, device()));
    add(std::make_shared<AdaptiveAvgPool2d>(1, 1));
    add(std::make_shared<Flatten>());
    add(std::make_shared<Linear>(16, 4, device()));
    initialise(*this, Init::kaiming, 7);
  }
};

// The loss before and after some steps on one batch.
std::pair<float, float> train(Precision chosen) {
  const WithPrecision precision(chosen);
  TinyNet net;
  Sgd sgd(net.parameters(), {.momentum = 0.9F});
  const Tensor x = Tensor::from_host(values({12, 8, 8, 1}, 5), {12, 8, 8, 1}, device());
  const Tensor labels = Tensor::from_host<int32_t>({0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3}, {12}, device());
  float first = 0, last = 0;
  for (int step = 0; step < 40; ++step) {
    for (const Tensor& parameter : net.parameters()) parameter.set_grad({});
    const Tensor loss = cross_entropy(net.forward(x), labels, Reduction::mean);
    backward(loss);
    sgd.step(0.1F);
    last = loss.item();
    if (step == 0) first = last;
  }
  for (const Tensor& parameter : net.parameters()) {
    EXPECT_EQ(parameter.dtype(), DType::float32);
    EXPECT_EQ(parameter.grad().dtype(), DType::float32);
  }
  return {first, last};
}

TEST(Bfloat16, TrainingReachesAboutTheLossOfFloat32) {
  const auto [first, last] = train(Precision::fp32);
  const auto [first16, last16] = train(Precision::bf16);
  // A dozen layers, each of which rounds by 2^-8: a few per cent.
  EXPECT_NEAR(first16, first, 0.05 * first);
  EXPECT_LT(last, 0.5F * first);
  // Forty steps amplify that; both must have learned the batch, to within a tenth of the way.
  EXPECT_NEAR(last16, last, 0.1 * first);
}

// At 1, bfloat16 numbers lie 2^-8 apart below and 2^-7 above.
TEST(Bfloat16, MasterWeightsKeepUpdatesThatBfloat16WouldLose) {
  const WithPrecision precision(Precision::bf16);
  Linear layer(1, 1, device());
  const Tensor weight = layer.parameters()[0];
  weight.copy_from(Tensor::from_host<float>({1}, {1, 1}, device()));
  Sgd sgd(layer.parameters(), {});
  const Tensor x = Tensor::from_host<float>({1}, {1, 1}, device());
  for (int step = 0; step < 8; ++step) {
    for (const Tensor& parameter : layer.parameters()) parameter.set_grad({});
    const Tensor y = layer.forward(x);
    backward(y, cast(Tensor::from_host<float>({0x1p-12F}, {1, 1}, device()), DType::bfloat16));
    sgd.step(1);
  }
  EXPECT_EQ(weight.item(), 1 - 8 * 0x1p-12F);
}

TEST(Precision, Tf32KeepsActivationsFloat32) {
  const WithPrecision precision(Precision::tf32);
  const Tensor x = Tensor::from_host(values({3, 8}, 1), {3, 8}, device());
  const Tensor w = Tensor::from_host(values({4, 8}, 2), {4, 8}, device());
  EXPECT_EQ(linear(x, w, Tensor::zeros({4}, device())).dtype(), DType::float32);
  const Tensor image = x.reshape({3, 1, 1, 8});
  EXPECT_EQ(conv2d(image, w.reshape({4, 1, 1, 8}), {}).dtype(), DType::float32);
}

}  // namespace
}  // namespace lockstep::nn

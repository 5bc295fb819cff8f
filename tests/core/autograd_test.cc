#include "core/autograd.h"

#include <gtest/gtest.h>

#include "kernels/check.h"
#include "kernels/elementwise.h"
#include "tests/bfloat16.h"
#include "tests/error_of.h"

namespace lockstep {
namespace {

Device device() {
  return make_devices(1)[0];
}

Tensor leaf(std::vector<float> values) {
  const auto n = static_cast<int64_t>(values.size());
  Tensor tensor = Tensor::from_host(values, {n}, device());
  return tensor.set_requires_grad(true);
}

// y = factor * x, the smallest operation there is.
Tensor scaled(const Tensor& x, float factor) {
  const auto times = [factor](const Tensor& from) {
    const Tensor to = Tensor::empty(from.shape(), from.device());
    const Tensor by = Tensor::from_host<float>({factor}, {1}, from.device());
    kernels::scale_by(from.data<float>(), by.data<float>(), to.data<float>(), to.size(),
                      to.device().stream());
    return to;
  };
  return record("scaled", times(x), {x},
                [times](const Tensor& dy) { return std::vector<Tensor>{times(dy)}; });
}

// z = x + y; hands one and the same gradient tensor to both inputs.
Tensor sum(const Tensor& x, const Tensor& y) {
  const Tensor z = x.copy_to(x.device());
  kernels::add_into(z.data<float>(), y.data<float>(), z.size(), z.device().stream());
  return record("sum", z, {x, y}, [](const Tensor& dz) { return std::vector<Tensor>{dz, dz}; });
}

std::vector<float> gradient_of(const Tensor& tensor) {
  return tensor.grad().to_host<float>();
}

TEST(Autograd, FollowsTheChainRule) {
  const Tensor x = leaf({3});
  backward(scaled(scaled(x, 2), 5));
  EXPECT_EQ(gradient_of(x), std::vector<float>{10});
}

TEST(Autograd, SecondUseOfATensorAccumulates) {
  const Tensor x = leaf({3});
  backward(sum(scaled(x, 2), sum(x, scaled(x, 5))));
  EXPECT_EQ(gradient_of(x), std::vector<float>{8});
}

TEST(Autograd, SecondUseOfAnIntermediateAccumulatesBeforeItsOwnBackward) {
  const Tensor x = leaf({3});
  const Tensor y = scaled(x, 2);
  backward(sum(y, sum(y, y)));
  EXPECT_EQ(gradient_of(x), std::vector<float>{6});
}

// Hands `gradients` to x, which is used once for each.
std::vector<float> accumulated_bfloat16(const Tensor& x, const std::vector<float>& gradients) {
  Tensor last = x;
  for (const float gradient : gradients)
    last = record(
        "used", Tensor::zeros({1}, device(), DType::bfloat16), {x, last}, [gradient](const Tensor& dy) {
          return std::vector<Tensor>{Tensor::from_host(test::rounded({gradient}), {1}, device()), dy};
        });
  backward(last, Tensor::zeros({1}, device(), DType::bfloat16));
  return test::widened(x.grad().to_host<__nv_bfloat16>());
}

TEST(Autograd, AddsBfloat16GradientsInFloatAndRoundsOnce) {
  Tensor x = Tensor::zeros({1}, device(), DType::bfloat16);
  x.set_requires_grad(true);
  // 1 + 2^-7 is the next number after 1; 3 * 2^-9 is more than half of the way there.
  EXPECT_EQ(accumulated_bfloat16(x, {1, 0.0058593750F}), std::vector<float>{1.0078125F});
  EXPECT_EQ(x.grad().dtype(), DType::bfloat16);
}

TEST(Autograd, GoesBackFromABfloat16Loss) {
  Tensor x = Tensor::zeros({1}, device(), DType::bfloat16);
  x.set_requires_grad(true);
  backward(record("same", x.detach(), {x}, [](const Tensor& dy) { return std::vector<Tensor>{dy}; }));
  EXPECT_EQ(test::widened(x.grad().to_host<__nv_bfloat16>()), std::vector<float>{1});
}

TEST(Autograd, RefusesAGradientOfAnotherType) {
  const Tensor x = leaf({3});
  const Tensor y = record("narrow", scaled(x, 1), {x}, [](const Tensor&) {
    return std::vector<Tensor>{Tensor::zeros({1}, device(), DType::bfloat16)};
  });
  EXPECT_EQ(error_of([&] { backward(y); }),
            "backward: 'narrow' returned a bfloat16 gradient for input 0, which is float32");
  EXPECT_EQ(error_of([&] { backward(scaled(x, 1), Tensor::zeros({1}, device(), DType::bfloat16)); }),
            "backward: a bfloat16 gradient for a float32 output");
}

TEST(Autograd, SecondBackwardAddsToTheGradient) {
  const Tensor x = leaf({3});
  backward(scaled(x, 2));
  backward(scaled(x, 5));
  EXPECT_EQ(gradient_of(x), std::vector<float>{7});
}

TEST(Autograd, GradientsOfTwoLeavesNeverShareMemory) {
  const Tensor x = leaf({1}), y = leaf({1});
  backward(sum(x, y));
  EXPECT_NE(x.grad().data<float>(), y.grad().data<float>());
  backward(scaled(x, 4));
  EXPECT_EQ(gradient_of(x), std::vector<float>{5});
  EXPECT_EQ(gradient_of(y), std::vector<float>{1});
}

TEST(Autograd, AddsIntoAGradientThatWasSet) {
  const Tensor x = leaf({1, 1});
  const Tensor arena = Tensor::zeros({4}, device());
  x.set_grad(arena.slice(2, 4));
  const Tensor ones = Tensor::from_host<float>({1, 1}, {2}, device());
  backward(scaled(x, 3), ones);
  EXPECT_EQ(arena.to_host<float>(), (std::vector<float>{0, 0, 3, 3}));
}

TEST(Autograd, TellsAGradientThatWasWrittenFromOneThatWasOnlySet) {
  const Tensor used = leaf({3}), unused = leaf({4});
  for (const Tensor& x : {used, unused}) x.set_grad(Tensor::zeros({1}, device()));
  backward(scaled(used, 0));  // a gradient of zeros is one
  EXPECT_TRUE(used.grad_written());
  EXPECT_FALSE(unused.grad_written());
  used.set_grad(used.grad());
  EXPECT_FALSE(used.grad_written());
}

// y = 3 x of one element, whose backward writes its gradient into gradient_memory.
Tensor tripled_in_place(const Tensor& x, std::vector<const float*>& memory) {
  const Tensor y = Tensor::from_host<float>({3 * x.item()}, {1}, device());
  return record("tripled", y, {x}, [x, &memory](const Tensor& dy) {
    const Tensor dx = gradient_memory(x);
    memory.push_back(dx.data<float>());
    kernels::fill(dx.data<float>(), 3 * dy.item(), 1, device().stream());
    return std::vector<Tensor>{dx};
  });
}

TEST(Autograd, AGradientIsWrittenWhereItStaysAndTheSecondIsAdded) {
  Tensor x = Tensor::from_host<float>({5}, {1}, device());
  x.set_requires_grad(true);
  const Tensor arena = Tensor::zeros({2}, device());
  x.set_zero_grad(arena.slice(1, 2));
  std::vector<const float*> memory;
  const float* const place = arena.data<float>() + 1;
  backward(tripled_in_place(x, memory));
  EXPECT_EQ(memory.back(), place);
  EXPECT_TRUE(x.grad_written());
  EXPECT_EQ(arena.to_host<float>(), (std::vector<float>{0, 3}));
  backward(tripled_in_place(x, memory));
  EXPECT_NE(memory.back(), place);
  EXPECT_EQ(arena.to_host<float>(), (std::vector<float>{0, 6}));
}

TEST(Autograd, AGradientThatIsNotZeroAnyMoreIsAddedTo) {
  Tensor x = Tensor::from_host<float>({5}, {1}, device());
  x.set_requires_grad(true);
  const Tensor arena = Tensor::zeros({1}, device());
  std::vector<const float*> memory;
  x.set_zero_grad(arena);
  arena.copy_from(Tensor::from_host<float>({100}, {1}, device()));
  backward(tripled_in_place(x, memory));
  EXPECT_NE(memory.back(), arena.data<float>());
  EXPECT_EQ(arena.to_host<float>()[0], 103);
  // What was set, and not said to be zero, is added to as well.
  x.set_grad(Tensor::from_host<float>({7}, {1}, device()));
  backward(tripled_in_place(x, memory));
  EXPECT_EQ(x.grad().item(), 10);
}

TEST(Autograd, ReshapeIsTransparent) {
  const Tensor x = leaf({1, 2, 3, 4});
  backward(scaled(x, 3).reshape({2, 2}), Tensor::from_host<float>({1, 2, 3, 4}, {2, 2}, device()));
  EXPECT_EQ(x.grad().shape(), Shape{4});
  EXPECT_EQ(gradient_of(x), (std::vector<float>{3, 6, 9, 12}));
}

TEST(Autograd, LeavesOutWhatWantsNoGradient) {
  const Tensor x = leaf({3});
  Tensor constant = leaf({5});
  constant.set_requires_grad(false);
  const Tensor y = sum(x, constant);
  backward(y);
  EXPECT_TRUE(x.grad().defined());
  EXPECT_FALSE(constant.grad().defined());
  EXPECT_FALSE(scaled(constant, 2).requires_grad());
}

TEST(Autograd, NoGradLeavesNoHistory) {
  const Tensor x = leaf({3});
  {
    const NoGrad no_grad;
    EXPECT_FALSE(scaled(x, 2).requires_grad());
  }
  EXPECT_TRUE(scaled(x, 2).requires_grad());
}

TEST(Autograd, ChecksEveryGradientsShapeAndNamesTheOperation) {
  const Tensor x = leaf({1, 2});
  const Tensor y = record("wrong", x.copy_to(device()), {x},
                          [](const Tensor&) { return std::vector<Tensor>{Tensor::zeros({3}, device())}; });
  EXPECT_EQ(error_of([&] { backward(y, Tensor::zeros({2}, device())); }),
            "backward: 'wrong' returned a gradient of shape [3] for input 0 of shape [2]");
}

TEST(Autograd, RefusesToWalkAFreedGraph) {
  const Tensor x = leaf({3});
  const Tensor y = scaled(x, 2);
  backward(y);
  EXPECT_NE(error_of([&] { backward(y); }).find("already walked"), std::string::npos);
}

TEST(Autograd, RefusesLossesThatCannotBe) {
  EXPECT_NE(error_of([] { backward(Tensor::zeros({1}, device())); }), "");
  const Tensor x = leaf({1, 2});
  EXPECT_NE(error_of([&] { backward(scaled(x, 1)); }).find("[2]"), std::string::npos);
  EXPECT_NE(error_of([&] { scaled(x, 1).set_requires_grad(false); }), "");
  EXPECT_NE(error_of([&] { scaled(x, 1).slice(0, 1); }), "");
}

// A backward that keeps the values of its input; `kept` watches them.
TEST(Autograd, FreesWhatANodeKeptAsTheWalkPassesIt) {
  const Tensor x = leaf({3});
  auto kept = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = kept;
  bool alive_below = true;
  const Tensor lower = record("lower", x.copy_to(device()), {x}, [&](const Tensor& dy) {
    alive_below = !watch.expired();
    return std::vector<Tensor>{dy};
  });
  const Tensor upper = record("upper", lower.detach(), {lower},
                              [kept = std::move(kept)](const Tensor& dy) { return std::vector<Tensor>{dy}; });
  backward(upper);
  EXPECT_FALSE(alive_below) << "what the upper operation kept was still there below it";
}

TEST(Autograd, TakesDeepGraphsWithoutRecursion) {
  constexpr int kDepth = 200000;  // deep enough to overflow an 8 MiB stack by recursion
  const Tensor x = leaf({1});
  const auto chain = [&] {
    Tensor y = x;
    for (int i = 0; i < kDepth; ++i)
      y = record("same", y.detach(), {y}, [](const Tensor& dy) { return std::vector<Tensor>{dy}; });
    return y;
  };
  backward(chain());
  EXPECT_EQ(gradient_of(x), std::vector<float>{1});
  chain();  // and dropped without a walk
}

}  // namespace
}  // namespace lockstep

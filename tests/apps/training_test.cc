// Training called as a function, with models that no program has.
#include "apps/common/training.h"

#include <gtest/gtest.h>

#include "nn/layers.h"
#include "tests/apps/small_fashion_mnist.h"
#include "tests/error_of.h"

namespace lockstep::apps {
namespace {

// Trains, and cannot be evaluated.
class TrainsOnly : public nn::Module {
 public:
  explicit TrainsOnly(const Device& device) {
    add_child("fc", fc_ = std::make_shared<nn::Linear>(784, 10, device));
  }
  Tensor forward(const Tensor& x) override {
    if (!training()) throw Error("no head for evaluation");
    ++steps;
    return fc_->forward(nn::flatten(x));
  }
  std::string describe() const override { return "TrainsOnly"; }
  static inline int steps = 0;

 private:
  std::shared_ptr<nn::Linear> fc_;
};

TEST(Training, FindsBeforeTheFirstStepThatNoEvaluationCanWork) {
  const SmallFashionMnist images(20, 10);
  Options options;
  options.data_dir = images.path();
  options.batch_size = 10;
  options.quiet = true;
  const Model model{{{"model", "mine"}},
                    [](const Device& device) { return std::make_shared<TrainsOnly>(device); }};
  EXPECT_EQ(error_of([&] { train(options, model); }),
            "the evaluation after an epoch would fail: no head for evaluation");
  EXPECT_EQ(TrainsOnly::steps, 0);
}

}  // namespace
}  // namespace lockstep::apps

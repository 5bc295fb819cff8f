// Softmax with cross-entropy against double, rows that overflow a naive exponential, and rows with NaN or
// infinity.
#include "kernels/softmax.h"

#include <algorithm>

#include "tests/kernels/device_buffer.h"
#include "tests/kernels/forms.h"

namespace lockstep::kernels {
namespace {

using namespace lockstep::test;

// Where labels that are no class are noted; all bits are set where there was none.
constexpr LabelFault kNoFault{~0ULL, ~0U};

struct Result {
  std::vector<float> loss, gradient;
  LabelFault fault;
};

Result run(const std::vector<float>& logits, const std::vector<int32_t>& labels, int classes, float scale,
           float smoothing = 0) {
  const DeviceBuffer<float> z(logits, 1), loss(std::vector<float>(labels.size(), 77.0f), 3),
      gradient(std::vector<float>(logits.size(), 77.0f), 3);
  const DeviceBuffer<int32_t> label(labels, 1);
  const DeviceBuffer<LabelFault> fault(1, kNoFault);
  softmax_cross_entropy(z.data(), label.data(), static_cast<int64_t>(labels.size()), classes, smoothing,
                        scale, loss.data(), gradient.data(), fault.data(), nullptr);
  return {loss.to_host(), gradient.to_host(), fault.to_host()[0]};
}

std::vector<int32_t> some_labels(int64_t rows, int classes) {
  std::vector<int32_t> labels(rows);
  for (int64_t r = 0; r < rows; ++r) labels[r] = static_cast<int32_t>(r * 7 % classes);
  return labels;
}

struct Size {
  int64_t rows;
  int classes;
};

TEST(SoftmaxCrossEntropy, AgreesWithDouble) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  constexpr float kScale = 0.125f;
  for (const auto [rows, classes] : {Size{0, 10}, Size{1, 10}, Size{31, 1}, Size{32, 2}, Size{33, 10},
                                     Size{33, 31}, Size{33, 32}, Size{33, 33}, Size{7, 1000}, Size{1000, 10}})
    for (const float shift : {0.0f, 3000.0f, -3000.0f}) {
      SCOPED_TRACE(std::to_string(rows) + " rows of " + std::to_string(classes));
      std::vector<float> logits = random_floats(rows * classes, -9, 9);
      for (float& z : logits) z += shift;
      const std::vector<int32_t> labels = some_labels(rows, classes);
      in_both_forms([&] {
        const Result got = run(logits, labels, classes, kScale);
        for (int64_t r = 0; r < rows; ++r) {
          const float* z = &logits[r * classes];
          const double largest = *std::max_element(z, z + classes);
          double sum = 0;
          for (int c = 0; c < classes; ++c) sum += std::exp(z[c] - largest);
          // An exponential is within 4 roundings, its argument is rounded too; the sum has at most classes /
          // 16 + 5 levels. The loss adds roundings of numbers as large as the distance between two logits.
          const double relative = (6 + classes / 16 + 5) * kUnit;
          expect_near(got.loss[r], std::log(sum) + (largest - z[labels[r]]), relative + 2 * kUnit * 30,
                      "loss " + std::to_string(r));
          for (int c = 0; c < classes; ++c) {
            const double p = std::exp(z[c] - largest) / sum;
            expect_near(got.gradient[r * classes + c], (p - (c == labels[r])) * kScale,
                        (p * relative + 3 * kUnit) * kScale, "gradient " + std::to_string(r));
          }
        }
        const DeviceBuffer<float> device_logits(logits), loss_only(rows, 77.0f);
        const DeviceBuffer<int32_t> device_labels(labels);
        const DeviceBuffer<LabelFault> fault(1, kNoFault);
        softmax_cross_entropy(device_logits.data(), device_labels.data(), rows, classes, 0, kScale,
                              loss_only.data(), nullptr, fault.data(), nullptr);
        const std::vector<float> loss = loss_only.to_host();
        for (int64_t r = 0; r < rows; ++r)
          expect_near(loss[r], got.loss[r], (classes / 16 + 12 + 2 * 30) * kUnit, "loss alone");
      });
      if (HasFailure()) return;
    }
}

TEST(SoftmaxCrossEntropy, WithSmoothingAgreesWithDouble) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  constexpr float kScale = 0.125f;
  for (const float smoothing : {0.1f, 0.5f, 1.0f})
    for (const auto [rows, classes] :
         {Size{0, 10}, Size{1, 10}, Size{31, 1}, Size{33, 10}, Size{33, 31}, Size{33, 33}, Size{7, 1000}})
      for (const float shift : {0.0f, 3000.0f}) {
        SCOPED_TRACE(std::to_string(rows) + " rows of " + std::to_string(classes) + ", smoothing " +
                     std::to_string(smoothing) + ", shift " + std::to_string(shift));
        std::vector<float> logits = random_floats(rows * classes, -9, 9);
        for (float& z : logits) z += shift;
        const std::vector<int32_t> labels = some_labels(rows, classes);
        in_both_forms([&] {
          const Result got = run(logits, labels, classes, kScale, smoothing);
          const DeviceBuffer<float> device_logits(logits), loss_only(rows, 77.0f);
          const DeviceBuffer<int32_t> device_labels(labels);
          const DeviceBuffer<LabelFault> fault(1, kNoFault);
          softmax_cross_entropy(device_logits.data(), device_labels.data(), rows, classes, smoothing, kScale,
                                loss_only.data(), nullptr, fault.data(), nullptr);
          const std::vector<float> loss = loss_only.to_host();
          for (int64_t r = 0; r < rows; ++r) {
            const float* z = &logits[r * classes];
            const double largest = *std::max_element(z, z + classes);
            double sum = 0;
            for (int c = 0; c < classes; ++c) sum += std::exp(z[c] - largest);
            const auto target = [&](int c) {
              return (1 - double{smoothing}) * (c == labels[r]) + double{smoothing} / classes;
            };
            double want = std::log(sum);
            for (int c = 0; c < classes; ++c) want += target(c) * (largest - z[c]);
            // As without smoothing; the targets add a mean of numbers below 18, summed in the same order. The
            // shift cancels before anything is summed.
            const double relative = (6 + classes / 16 + 5) * kUnit;
            expect_near(got.loss[r], want, relative * (1 + 18) + 8 * kUnit * 20, "loss " + std::to_string(r));
            expect_near(loss[r], want, relative * (1 + 18) + 8 * kUnit * 20, "loss alone");
            for (int c = 0; c < classes; ++c) {
              const double p = std::exp(z[c] - largest) / sum;
              expect_near(got.gradient[r * classes + c], (p - target(c)) * kScale,
                          (p * relative + 5 * kUnit) * kScale, "gradient " + std::to_string(r));
            }
          }
        });
        if (HasFailure()) return;
      }
}

// Equal logits have the loss ln(classes), however large they are: nothing small is added to them.
TEST(SoftmaxCrossEntropy, LargeLogitsLeaveTheLossItsPrecision) {
  for (const float logit : {1e6f, -1e6f, 1e8f, -1e8f, 1e30f, 3e38f, -3e38f})
    for (const float smoothing : {0.0f, 0.1f, 1.0f}) {
      SCOPED_TRACE(std::to_string(logit) + ", smoothing " + std::to_string(smoothing));
      in_both_forms([&] {
        const Result got = run(std::vector<float>(20, logit), {3, 9}, 10, 1, smoothing);
        for (const float loss : got.loss) expect_near(loss, std::log(10.0), 4 * kUnit * 2.4, "loss");
        for (int c = 0; c < 10; ++c)
          expect_near(got.gradient[c], 0.1 - ((1 - double{smoothing}) * (c == 3) + double{smoothing} / 10),
                      4 * kUnit, "gradient");
      });
    }
}

// The mean over the classes is a float where their sum is none.
TEST(SoftmaxCrossEntropy, DistancesWhoseSumOverflowsHaveAMean) {
  std::vector<float> logits(1000, -3e36f);
  logits[0] = 0;
  in_both_forms([&] {
    const Result got = run(logits, {0}, 1000, 1, 0.5f);
    expect_near(got.loss[0], 0.5 * 0.999 * 3e36, 3e36 * (1000 / 16 + 8) * kUnit, "loss");
  });
}

TEST(SoftmaxCrossEntropy, NanAndInfinityStayInTheirRow) {
  for (const int classes : {10, 40}) {
    const std::vector<int32_t> labels(6, 3);
    std::vector<float> logits(6 * classes, 0.5f);
    logits[0 * classes + classes - 1] = kNaN;
    logits[1 * classes + 0] = kNaN;
    logits[2 * classes + 5] = kInfinity;
    logits[3 * classes + 3] = -kInfinity;  // the label: impossible
    logits[4 * classes + 5] = -kInfinity;  // another: no contribution
    for (int c = 0; c < classes; ++c) logits[5 * classes + c] = -kInfinity;
    in_both_forms([&] {
      const Result got = run(logits, labels, classes, 1);
      EXPECT_TRUE(std::isnan(got.loss[0])) << got.loss[0];
      EXPECT_TRUE(std::isnan(got.loss[1])) << got.loss[1];
      EXPECT_TRUE(std::isnan(got.loss[2])) << got.loss[2];
      EXPECT_EQ(got.loss[3], kInfinity);
      expect_near(got.loss[4], std::log(classes - 1.0), 20 * kUnit, "loss without one class");
      EXPECT_EQ(got.gradient[4 * classes + 5], 0);
      EXPECT_TRUE(std::isnan(got.loss[5])) << got.loss[5];
    });
  }
}

TEST(CountCorrect, AddsTheRowsWhoseFirstLargestLogitIsTheLabel) {
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  for (const auto [rows, classes] : {Size{0, 10}, Size{1, 1}, Size{31, 10}, Size{32, 10}, Size{33, 3},
                                     Size{255, 10}, Size{257, 10}, Size{1000, 10}, Size{20011, 10}}) {
    SCOPED_TRACE(std::to_string(rows) + " rows of " + std::to_string(classes));
    const std::vector<float> logits = random_integers(rows * classes, 4);  // with many ties
    const std::vector<int32_t> labels = some_labels(rows, classes);
    int32_t want = 5;
    for (int64_t r = 0; r < rows; ++r) {
      const float* z = &logits[r * classes];
      want += std::max_element(z, z + classes) - z == labels[r];
    }
    in_both_forms([&] {
      const DeviceBuffer<float> device_logits(logits, 1);
      const DeviceBuffer<int32_t> device_labels(labels, 3), correct(1, 5);
      const DeviceBuffer<LabelFault> fault(1, kNoFault);
      count_correct(device_logits.data(), device_labels.data(), rows, classes, correct.data(), fault.data(),
                    nullptr);
      EXPECT_EQ(correct.to_host()[0], want);
      EXPECT_EQ(fault.to_host()[0].first, kNoFault.first);
    });
  }
}

// Both kernels read nothing beside the row, and note the lowest row, in whatever order its block runs.
TEST(LabelFaults, AreNotedForTheLowestRowAlone) {
  for (const int32_t wrong : {-1, 10, 255, 1000000000, INT32_MIN}) {
    SCOPED_TRACE(wrong);
    constexpr int64_t kRows = 3000, kLowest = 333;
    std::vector<int32_t> labels = some_labels(kRows, 10);
    labels[2999] = 77;
    labels[kLowest] = wrong;
    labels[1000] = -3;
    const std::vector<float> logits = random_integers(kRows * 10, 4);
    int32_t want = 0;
    for (int64_t r = 0; r < kRows; ++r) {
      const float* z = &logits[static_cast<size_t>(r) * 10];
      want += std::max_element(z, z + 10) - z == labels[r];
    }
    const auto expect_noted = [&](const LabelFault& fault) {
      EXPECT_EQ(fault.first, uint64_t{kLowest} << 32 | static_cast<uint32_t>(wrong));
      EXPECT_EQ(fault.classes, 10U);
    };
    in_both_forms([&] {
      const Result got = run(logits, labels, 10, 1);
      expect_noted(got.fault);
      for (int64_t r = 0; r < kRows; ++r) {
        const bool bad = r == kLowest || r == 1000 || r == 2999;
        ASSERT_EQ(std::isnan(got.loss[r]), bad) << "row " << r;
        for (int c = 0; c < 10; ++c) ASSERT_EQ(std::isnan(got.gradient[r * 10 + c]), bad) << "row " << r;
      }
      const DeviceBuffer<float> device_logits(logits);
      const DeviceBuffer<int32_t> device_labels(labels), correct(1, 0);
      const DeviceBuffer<LabelFault> fault(1, kNoFault);
      count_correct(device_logits.data(), device_labels.data(), kRows, 10, correct.data(), fault.data(),
                    nullptr);
      EXPECT_EQ(correct.to_host()[0], want);
      expect_noted(fault.to_host()[0]);
    });
  }
}

}  // namespace
}  // namespace lockstep::kernels

#include "apps/predict/predictions.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <span>

#include "core/autograd.h"
#include "kernels/check.h"
#include "nn/data/device_data.h"
#include "nn/layers.h"

namespace lockstep::apps {
namespace {

constexpr int kClasses = data::kFashionMnistClasses;

// Whether one output is the largest, and so says a class; minus infinity is a class that cannot be.
bool has_largest(std::span<const float> logits) {
  return std::none_of(logits.begin(), logits.end(), [](float logit) { return std::isnan(logit); }) &&
         std::isfinite(*std::max_element(logits.begin(), logits.end()));
}

}  // namespace

std::vector<float> logits_of(nn::Module& module, const data::ImageData& images, const Device& device,
                             const std::function<void(int64_t images)>& watch) {
  const NoGrad no_grad;
  const DeviceGuard guard(device);
  data::DeviceData resident(images.images, images.labels, images.height, images.width,
                            {data::kFashionMnistMean, data::kFashionMnistStddev}, device);
  std::vector<int32_t> in_order(static_cast<size_t>(images.rows));
  std::iota(in_order.begin(), in_order.end(), 0);
  resident.set_order(in_order);
  std::vector<float> all;
  for (int64_t begin = 0; begin < images.rows; begin += kEvaluationBatch) {
    if (watch) watch(begin);
    const int64_t rows = std::min(kEvaluationBatch, images.rows - begin);
    const Tensor logits = module.forward(resident.batch(begin, rows).x);
    if (logits.shape() != Shape{rows, kClasses})
      throw Error(
          fmt::format("the model tells {} classes apart, Fashion-MNIST has {}", logits.dim(-1), kClasses));
    const std::vector<float> values = nn::cast(logits, DType::float32).to_host<float>();
    for (int64_t row = 0; row < rows; ++row)
      if (!has_largest(std::span(values).subspan(static_cast<size_t>(row * kClasses), kClasses)))
        throw Error(fmt::format(
            "the model's outputs for image {} are NaN or infinite: its training went wrong before "
            "it was saved",
            begin + row));
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

std::vector<int> predicted_classes(const std::vector<float>& logits) {
  std::vector<int> classes;
  for (auto row = logits.begin(); row != logits.end(); row += kClasses)
    classes.push_back(static_cast<int>(std::max_element(row, row + kClasses) - row));
  return classes;
}

std::vector<double> probabilities(const std::vector<float>& logits) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  std::vector<double> values;
  for (const float logit : logits) values.push_back(std::exp(static_cast<double>(logit) - largest));
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  for (double& value : values) value /= sum;
  return values;
}

std::string confusion_table(const std::vector<uint8_t>& labels, const std::vector<int>& predicted) {
  std::array<std::array<int, kClasses>, kClasses> counts{};
  for (size_t i = 0; i < labels.size(); ++i) ++counts[labels[i]][static_cast<size_t>(predicted[i])];
  std::string text = fmt::format("{:13}{}\n{:<13}", "", "  predicted as", "true class");
  for (int c = 0; c < kClasses; ++c) text += fmt::format("{:>5}", c);
  text += "  accuracy\n";
  for (size_t truth = 0; truth < kClasses; ++truth) {
    const auto& row = counts[truth];
    text += fmt::format("{} {:<11}", truth, data::kFashionMnistClassNames[truth]);
    for (const int count : row) text += count == 0 ? "    ." : fmt::format("{:>5}", count);
    const int rows = std::accumulate(row.begin(), row.end(), 0);
    text += rows == 0 ? fmt::format("{:>10}\n", "-")
                      : fmt::format("{:>10.4f}\n", static_cast<double>(row[truth]) / rows);
  }
  return text;
}

}  // namespace lockstep::apps

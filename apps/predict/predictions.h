// What a model says of images: the class of each, how often it is right, and what it takes for what.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "nn/data/fashion_mnist.h"
#include "nn/module.h"

namespace lockstep::apps {

// Images at a time where no gradients are needed: few, since ResNet-18 needs 200 kB an image for each of its
// first layers.
inline constexpr int64_t kEvaluationBatch = 100;

// The logits of all images, [rows, classes] row-major; the module is in evaluation mode. Images are
// normalised as in training. Throws Error for a module that does not have Fashion-MNIST's classes, and,
// naming the image, where a logit is NaN or the largest one infinite.
// `watch` is told how many images are done, before each batch.
std::vector<float> logits_of(nn::Module& module, const data::ImageData& images, const Device& device,
                             const std::function<void(int64_t images)>& watch = nullptr);

// The class with the largest logit, for each row.
std::vector<int> predicted_classes(const std::vector<float>& logits);

// The softmax of one row.
std::vector<double> probabilities(const std::vector<float>& logits);

// How often each true class was predicted as which, and the accuracy of each: lines of at most 80 columns.
std::string confusion_table(const std::vector<uint8_t>& labels, const std::vector<int>& predicted);

}  // namespace lockstep::apps

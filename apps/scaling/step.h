// A step of training on several devices: forward, then backward, which finishes gradients from the last layer
// to the first; they are reduced in buckets, each as soon as it is complete and the one before is through.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace lockstep::apps {

// A tensor of parameters. A layer's time is that of its weight, which has two dimensions or more.
struct GradientTensor {
  int64_t count;
  bool is_weight;
};

// In the order of the layers. Throws where no model has this name.
std::vector<GradientTensor> gradients_of_model(const std::string& model);
// So many parameters, spread evenly over so many layers.
std::vector<GradientTensor> even_gradients(int64_t count, int layers);

struct GradientBucket {
  int64_t count;
  double ready;  // the part of backward after which it is complete
};

// From the last layer to the first; a bucket is closed when it has `first_bytes`, the later ones `bytes`. All
// layers take the same time, as those of a ResNet about do: where an image has a quarter of the pixels, it
// has twice the channels.
std::vector<GradientBucket> buckets_of(const std::vector<GradientTensor>& gradients, double first_bytes,
                                       double bytes);

// Seconds.
struct StepTime {
  double compute;
  double communication;  // of all buckets
  double step;           // with overlap
  double one_by_one;     // all gradients at once, after backward
  // The part of the communication that costs no time.
  double hidden() const {
    return communication > 0 ? std::max(0.0, 1 - (step - compute) / communication) : 1;
  }
};

constexpr double kForward = 1.0 / 3;  // of the computation; backward has two products for each of forward's

// `allreduce` tells the seconds for so many elements.
StepTime step_time(const std::vector<GradientBucket>& buckets, double compute,
                   const std::function<double(int64_t count)>& allreduce);

}  // namespace lockstep::apps

#include "apps/scaling/step.h"

#include <algorithm>

#include "apps/common/models.h"
#include "core/device.h"

namespace lockstep::apps {

std::vector<GradientTensor> gradients_of_model(const std::string& model) {
  const auto module = named_model({{"model", model}}).make(make_devices(1)[0]);
  std::vector<GradientTensor> gradients;
  for (const Tensor& parameter : module->parameters())
    gradients.push_back({parameter.size(), parameter.shape().size() > 1});
  return gradients;
}

std::vector<GradientTensor> even_gradients(int64_t count, int layers) {
  std::vector<GradientTensor> gradients;
  for (int layer = 0; layer < layers; ++layer)
    gradients.push_back({count * (layer + 1) / layers - count * layer / layers, true});
  return gradients;
}

std::vector<GradientBucket> buckets_of(const std::vector<GradientTensor>& gradients, double first_bytes,
                                       double bytes) {
  const auto layers = std::ranges::count_if(gradients, &GradientTensor::is_weight);
  std::vector<GradientBucket> buckets;
  int64_t count = 0, done = 0;  // layers whose backward is over, but for the one that is worked on
  for (size_t i = gradients.size(); i-- > 0;) {
    count += gradients[i].count;
    const auto ready = static_cast<double>(std::min<int64_t>(done + 1, layers)) / static_cast<double>(layers);
    if (gradients[i].is_weight) ++done;
    if (i == 0 || 4.0 * static_cast<double>(count) >= (buckets.empty() ? first_bytes : bytes)) {
      buckets.push_back({count, ready});
      count = 0;
    }
  }
  return buckets;
}

StepTime step_time(const std::vector<GradientBucket>& buckets, double compute,
                   const std::function<double(int64_t count)>& allreduce) {
  StepTime time{compute, 0, 0, 0};
  int64_t all = 0;
  double end = 0;
  for (const GradientBucket& bucket : buckets) {
    const double ready = compute * (kForward + (1 - kForward) * bucket.ready),
                 takes = allreduce(bucket.count);
    end = std::max(end, ready) + takes;
    time.communication += takes;
    all += bucket.count;
  }
  time.step = std::max(compute, end);
  time.one_by_one = compute + allreduce(all);
  return time;
}

}  // namespace lockstep::apps

#include "parallel/running_statistics.h"

#include <map>
#include <string>

namespace lockstep::parallel {
namespace {

// weight[r] of replica r: its part of all rows.
std::vector<double> weights_of(const std::vector<int64_t>& rows) {
  int64_t total = 0;
  for (const int64_t count : rows) total += count;
  std::vector<double> weights;
  for (const int64_t count : rows) weights.push_back(static_cast<double>(count) / static_cast<double>(total));
  return weights;
}

using Values = std::vector<std::vector<float>>;  // by replica

// Written as differences from one replica's value, so that equal values stay as they are.
std::vector<double> weighted_mean(const Values& values, const std::vector<double>& weights) {
  std::vector<double> mean(values[0].begin(), values[0].end());
  for (size_t c = 0; c < mean.size(); ++c) {
    const double first = values[0][c];
    for (size_t r = 1; r < values.size(); ++r) mean[c] += weights[r] * (values[r][c] - first);
  }
  return mean;
}

std::vector<float> rounded(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

}  // namespace

std::vector<std::vector<float>> combined_buffers(const std::vector<std::shared_ptr<nn::Module>>& replicas,
                                                 const std::vector<int64_t>& rows) {
  std::vector<size_t> counting;
  std::vector<int64_t> counts;
  for (size_t r = 0; r < replicas.size(); ++r)
    if (rows[r] > 0) {
      counting.push_back(r);
      counts.push_back(rows[r]);
    }
  const std::vector<double> weights = weights_of(counts);

  const std::vector<nn::Buffer> buffers = replicas[0]->named_buffers();
  std::map<std::string, size_t> index;
  std::vector<std::vector<float>> combined;
  for (size_t b = 0; b < buffers.size(); ++b) {
    index[buffers[b].name] = b;
    combined.push_back(buffers[b].value.to_host<float>());
  }
  if (counting.empty()) return combined;

  std::vector<std::vector<nn::Buffer>> of_replica;
  for (const size_t r : counting) of_replica.push_back(replicas[r]->named_buffers());
  const auto values_of = [&of_replica](size_t buffer) {
    Values values;
    for (const auto& replica : of_replica) values.push_back(replica[buffer].value.to_host<float>());
    return values;
  };
  static const std::string kMean = "running_mean", kVariance = "running_var";
  for (size_t b = 0; b < buffers.size(); ++b) {
    const std::string& name = buffers[b].name;
    if (!name.ends_with(kMean)) continue;
    const auto pair = index.find(name.substr(0, name.size() - kMean.size()) + kVariance);
    if (pair == index.end()) continue;
    const Values means = values_of(b);
    const std::vector<double> mean = weighted_mean(means, weights);
    std::vector<double> variance = weighted_mean(values_of(pair->second), weights);
    for (size_t c = 0; c < mean.size(); ++c)
      for (size_t r = 0; r < means.size(); ++r)
        variance[c] += weights[r] * (means[r][c] - mean[c]) * (means[r][c] - mean[c]);
    combined[b] = rounded(mean);
    combined[pair->second] = rounded(variance);
  }
  return combined;
}

}  // namespace lockstep::parallel

// Statistics of several shards made into one, shard by shard, by the formula of Chan, Golub and LeVeque
// (1983): with n rows so far and m more whose mean is d further on,
//   mean += d m / (n + m), squares += squares' + d^2 n m / (n + m).
#include <string>

#include "kernels/norm/batch_norm.cuh"

namespace lockstep::kernels {

using namespace batch_norm;

namespace {

constexpr int kMostShards = 64;

// The shards that have rows, in order, and what they weigh when they join those before them: m / (n + m), n
// m / (n + m) and n / (n + m). Made on the host, in double.
struct Shards {
  int count = 0;
  int64_t rows = 0;
  int index[kMostShards];
  float share[kMostShards], weight[kMostShards], rest[kMostShards];

  Shards(const char* operation, const std::vector<int64_t>& rows_of_each) {
    for (size_t s = 0; s < rows_of_each.size(); ++s) {
      const int64_t more = rows_of_each[s];
      if (more < 0)
        throw Error(std::string(operation) + ": shard " + std::to_string(s) + " has " + std::to_string(more) +
                    " rows: use no negative numbers");
      if (more == 0) continue;
      if (count == kMostShards)
        throw Error(std::string(operation) + ": more than " + std::to_string(kMostShards) +
                    " shards have rows: use fewer");
      const auto before = static_cast<double>(rows), joining = static_cast<double>(more);
      index[count] = static_cast<int>(s);
      share[count] = static_cast<float>(joining / (before + joining));
      rest[count] = static_cast<float>(before / (before + joining));
      weight[count] = static_cast<float>(before * joining / (before + joining));
      rows += more;
      ++count;
    }
  }
};

}  // namespace

void batch_norm_merge_statistics(int channels, const BatchNormSettings& settings,
                                 const std::vector<int64_t>& rows, const float* statistics, float* mean,
                                 float* inverse_stddev, float* running_mean, float* running_variance,
                                 cudaStream_t stream) {
  const Shards shards("batch_norm_merge_statistics", rows);
  if (shards.count == 0) return;
  check_rows(shards.rows);
  const ChannelResults results{
      settings,     inverse_of(shards.rows), inverse_of(shards.rows - 1), inverse_stddev,
      running_mean, running_variance};
  launch_elements(stream, channels, [=] __device__(int64_t c) {
    float centre = 0.0f, squares = 0.0f;
    for (int s = 0; s < shards.count; ++s) {
      const float* shard = statistics + static_cast<int64_t>(shards.index[s]) * 2 * channels;
      const float distance = shard[c] - centre;
      squares += shard[channels + c] + distance * distance * shards.weight[s];
      centre += distance * shards.share[s];
    }
    mean[c] = centre;
    results.write(c, centre, squares);
  });
}

// The same formula for squares / n: equal means and variances then add nothing but zeros.
void batch_norm_combine_running(int channels, const std::vector<int64_t>& rows, const float* statistics,
                                float* mean, float* variance, cudaStream_t stream) {
  const Shards shards("batch_norm_combine_running", rows);
  if (shards.count == 0) return;
  launch_elements(stream, channels, [=] __device__(int64_t c) {
    float centre = 0.0f, spread = 0.0f;
    for (int s = 0; s < shards.count; ++s) {
      const float* shard = statistics + static_cast<int64_t>(shards.index[s]) * 2 * channels;
      const float distance = shard[c] - centre;
      spread += shards.share[s] * ((shard[channels + c] - spread) + distance * distance * shards.rest[s]);
      centre += distance * shards.share[s];
    }
    mean[c] = centre;
    variance[c] = spread;
  });
}

}  // namespace lockstep::kernels

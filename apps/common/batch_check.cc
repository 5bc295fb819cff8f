#include "apps/common/batch_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/autograd.h"
#include "kernels/check.h"

namespace lockstep::apps {
namespace {

using parallel::BatchStatistics;

// The fewest rows that statistics are taken over, where a batch has `rows`.
int64_t fewest(int64_t rows, int64_t devices, BatchStatistics statistics) {
  return statistics == BatchStatistics::batch ? rows : std::max<int64_t>(rows / devices, 1);
}

int64_t fewest(const std::vector<data::Batch>& batches, int64_t devices, BatchStatistics statistics) {
  int64_t least = batches.front().end - batches.front().begin;
  for (const data::Batch& batch : batches)
    least = std::min(least, fewest(batch.end - batch.begin, devices, statistics));
  return least;
}

// The batch size nearest to `size` that leaves nobody a single row.
std::optional<int64_t> good_size(int64_t size, int64_t rows, int64_t devices, BatchStatistics statistics) {
  for (int64_t distance = 1; distance < rows; ++distance)
    for (const int64_t other : {size + distance, size - distance})
      if (other >= 1 && other <= rows && fewest(data::batches(rows, other), devices, statistics) > 1)
        return other;
  return std::nullopt;
}

}  // namespace

void check_batches(const std::vector<data::Batch>& batches, const std::vector<Device>& devices,
                   BatchStatistics statistics, const parallel::MakeModule& make, int height, int width) {
  const auto count = static_cast<int64_t>(devices.size());
  if (fewest(batches, count, statistics) > 1) return;
  try {
    const NoGrad no_grad;
    const DeviceGuard guard(devices[0]);
    make(devices[0])->forward(Tensor::zeros({1, height, width, 1}, devices[0]));
  } catch (const OutOfMemory&) {
    throw;
  } catch (const Error& error) {
    const data::Batch& last = batches.back();
    const int64_t size = batches.front().end - batches.front().begin, rest = last.end - last.begin;
    std::string ways;
    if (const auto other = good_size(size, last.end, count, statistics))
      ways = fmt::format("use --batch-size {}", *other);
    if (rest > 1 && statistics == BatchStatistics::shard)
      ways += ways.empty() ? "use --sync-batch-norm" : ", or --sync-batch-norm";
    if (ways.empty()) ways = "use more images";
    throw Error(fmt::format("{} has {} of {} images, which leaves {} a single one: {}: {}",
                            rest < size ? "the last batch of an epoch" : "a batch", rest, last.end,
                            count == 1 || statistics == BatchStatistics::batch ? "it" : "a device",
                            error.what(), ways));
  }
}

}  // namespace lockstep::apps

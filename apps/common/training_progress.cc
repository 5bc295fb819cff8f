#include "apps/common/training_progress.h"

#include <fmt/format.h>

#include <cmath>

#include "kernels/check.h"

namespace lockstep::apps {

void EpochSums::add(const parallel::StepReport& report, int64_t steps_so_far) {
  const auto count = static_cast<int64_t>(report.losses.size());
  for (int64_t i = 0; i < count; ++i) {
    const double value = report.losses[static_cast<size_t>(i)];
    if (!std::isfinite(value))
      throw Error(fmt::format(
          "the loss became {} at step {}: a rate that is too high (--lr, --warmup-epochs, --clip-norm), "
          "weights that start too large (--init), or data that are no such images",
          std::isnan(value) ? "NaN" : "infinite", steps_so_far - count + i + 1));
    loss += value;
  }
  steps += count;
  rows += report.rows;
  correct += report.correct;
  allreduce_seconds += report.allreduce_seconds;
}

}  // namespace lockstep::apps

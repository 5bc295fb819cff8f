// Running statistics of replicas that normalised different rows, combined into those of all rows.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "nn/module.h"

namespace lockstep::parallel {

// By buffer, in the order of named_buffers(): for each pair running_mean and running_var, the mean of the
// replicas' means and the variance about it, weighted by rows[r] (what replica r has normalised; 0: it does
// not count). With the law of total variance, the variance is the mean of the replicas' variances plus the
// variance of their means. Other buffers, and all where there are no rows, are those of replica 0. Exact
// where replicas agree. Waits for the devices.
std::vector<std::vector<float>> combined_buffers(const std::vector<std::shared_ptr<nn::Module>>& replicas,
                                                 const std::vector<int64_t>& rows);

}  // namespace lockstep::parallel

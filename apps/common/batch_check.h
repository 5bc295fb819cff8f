// What would only fail at the last batch of an epoch, found before the first step.
#pragma once

#include <vector>

#include "nn/data/shuffle.h"
#include "parallel/data_parallel.h"

namespace lockstep::apps {

// Where a batch leaves a device (with BatchStatistics::batch: all devices together) a single row, tries the
// model on one row of `height` x `width` pixels: a batch norm whose image has shrunk to one pixel has no
// variance then. Throws Error with the batch, its rows, and options that avoid it. Costs nothing where there
// is no such batch.
void check_batches(const std::vector<data::Batch>& batches, const std::vector<Device>& devices,
                   parallel::BatchStatistics statistics, const parallel::MakeModule& make, int height,
                   int width);

}  // namespace lockstep::apps

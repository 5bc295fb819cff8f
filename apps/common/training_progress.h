// How far a run has come: with the weights and the state of its optimizer, all that it needs to go on, and to
// report as if it had never stopped.
#pragma once

#include <cstdint>
#include <vector>

#include "apps/common/report.h"
#include "parallel/trainer.h"

namespace lockstep::apps {

// What was seen since an epoch began.
struct EpochSums {
  double loss = 0, allreduce_seconds = 0;
  int64_t steps = 0, rows = 0, correct = 0;

  double mean_loss() const { return steps > 0 ? loss / static_cast<double>(steps) : 0; }
  // `steps_so_far`: of the whole run, the report's last one included. Throws, naming the step, where a loss
  // is no number.
  void add(const parallel::StepReport& report, int64_t steps_so_far);
};

struct TrainingProgress {
  int64_t step = 0, images = 0;           // of the whole run
  int64_t epoch = 0;                      // epochs that are over, evaluation included
  int64_t position = 0;                   // steps done in the one that goes on
  double seconds = 0;                     // spent in it so far
  EpochSums sums = {};                    // seen in it so far
  std::vector<EpochResult> results = {};  // of the epochs that are over
};

}  // namespace lockstep::apps

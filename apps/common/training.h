// The training run that all programs share: data in, epochs, reports out.
#pragma once

#include "apps/common/models.h"
#include "apps/common/options.h"

namespace lockstep::apps {

// Trains on Fashion-MNIST and returns the exit code: 0, or 130 after Ctrl-C. Everything that can be wrong
// throws Error; what is wrong with the options does so before anything is read or written.
int train(const Options& options, const Model& model);

}  // namespace lockstep::apps

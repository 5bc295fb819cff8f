// The training run that all programs share: data in, epochs, reports out.
#pragma once

#include <functional>
#include <memory>

#include "apps/common/options.h"
#include "nn/module.h"

namespace lockstep::apps {

using MakeModel = std::function<std::shared_ptr<nn::Module>(const Device&)>;

// Trains on Fashion-MNIST and returns the exit code: 0, or 130 after Ctrl-C. Everything that can be wrong
// throws Error; what is wrong with the options does so before anything is read or written.
int train(const Options& options, const MakeModel& make_model);

// main() of a training program: runs `body`, and turns what it throws into one line on standard error and
// exit code 1.
int run(const char* program, const std::function<int()>& body);

}  // namespace lockstep::apps

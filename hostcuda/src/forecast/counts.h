// The model's counts of a launch, from what the profile has recorded of launches like it.
#pragma once

#include <map>
#include <string>

#include "hostcuda/src/forecast/model.h"
#include "hostcuda/src/profile/registers.h"
#include "hostcuda/src/profile/results.h"

namespace hostcuda::forecast {

// `operations`: what the launcher has noted; 0: estimated, as two for each 4 bytes that a thread loads.
KernelCounts counts_of(const profile::ShapeProfile& shape, double operations,
                       const profile::Registers& registers);

}  // namespace hostcuda::forecast

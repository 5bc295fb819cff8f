// A plan as an HTML page in which one steps through the rounds and sees which rank holds which sums. One file
// that needs no other.
#pragma once

#include <optional>
#include <string>

#include "parallel/collective/checker.h"
#include "parallel/collective/plan.h"

namespace lockstep::apps {

// Throws Error where the plan is too large for a picture (space_time.h).
std::string steps_page(const collective::Plan& plan, const std::string& title,
                       const std::optional<collective::Violation>& violation);

}  // namespace lockstep::apps

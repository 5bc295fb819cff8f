// A plan as a space-time diagram: ranks side by side, rounds from top to bottom, an arrow for every transfer.
#pragma once

#include <optional>
#include <string>

#include "parallel/collective/checker.h"
#include "parallel/collective/plan.h"

namespace lockstep::apps {

constexpr int kMostRanksDrawn = 64;

// The picture in SVG. Solid arrows add, dashed ones copy; a colour for each slice. What is wrong with the
// plan is drawn in red, and written below. Throws Error where the plan is too large for a picture.
std::string space_time_svg(const collective::Plan& plan, const std::string& title,
                           const std::optional<collective::Violation>& violation);

}  // namespace lockstep::apps

// What the checker says of a plan.
#pragma once

#include <string>

#include "kernels/check.h"
#include "parallel/collective/checker.h"

namespace lockstep::collective {

// Empty where the plan is right.
inline std::string violation(const Plan& plan) {
  try {
    check(plan);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace lockstep::collective

// Plans as JSON files, written by hand or by programs in other languages. docs/allreduce.md has the format.
#pragma once

#include <filesystem>
#include <string>

#include "parallel/collective/plan.h"

namespace lockstep::collective {

// The plan, with its transfers in the order of their rounds. Throws Error, naming the transfer by its place
// in the file, where something is missing, out of range or unknown, or where transfers wait for each other in
// a circle; does not check whether the plan is right. `name` opens the errors.
Plan parse_plan(const std::string& json, const std::string& name);
Plan read_plan(const std::filesystem::path& file);

// The file for a plan, a line for each transfer.
std::string plan_as_json(const Plan& plan);

}  // namespace lockstep::collective

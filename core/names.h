// Names that users type (an algorithm, a model, a schedule): what to say when there is no such name.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernels/check.h"

namespace lockstep {

// The one of `valid` with the fewest edits to `name` (an insertion, a removal, a replaced letter, or two
// neighbours swapped, count one each); the first of equally near ones. None where the nearest is more than
// one edit in three letters away: that would be another word, not this one misspelt.
std::optional<std::string> near_name(const std::string& name, const std::vector<std::string>& valid);

// To throw: "--allreduce: unknown name 'rign', did you mean 'ring'? (star, ring, tree)".
Error unknown_name(const std::string& option, const std::string& name, const std::vector<std::string>& valid);

}  // namespace lockstep

// What CUDA has and hostcuda has not, by name.
#pragma once

#include <string>
#include <string_view>

namespace hostcuda::translate {

// Why a program that uses this name cannot run, and what to do; empty for a name that is none of these.
// `after` is the token that follows it.
std::string why_refused(std::string_view name, std::string_view after);

// The same of a header, by the name that it is included by or by its path.
std::string why_header_refused(std::string_view path);

}  // namespace hostcuda::translate

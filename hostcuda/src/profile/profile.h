// The profile's way out: what HOSTCUDA_PROFILE asks for, written when the process ends.
#pragma once

#include <cstdio>
#include <string>

#include "hostcuda/src/profile/summary.h"

namespace hostcuda::profile {

void write_profile_at_exit();
// Defined above, by src/forecast: makes HOSTCUDA_FORECAST known, and has it written when the process ends.
void prepare_forecast();

// At most 80 columns wide.
void print_table(const Summary& summary, std::FILE* out);
// The sources, with the costs of each line in the margin.
void print_listing(const Summary& summary, std::FILE* out);
// "1.2 MB": at most 7 characters.
std::string bytes_text(double bytes);
std::string to_json(const Summary& summary);

}  // namespace hostcuda::profile

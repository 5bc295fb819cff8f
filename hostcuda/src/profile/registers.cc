#include "hostcuda/src/profile/registers.h"

#include <cstdio>
#include <fstream>

#include "hostcuda/src/profile/results.h"
#include "hostcuda/src/runtime/report.h"

namespace hostcuda::profile {

namespace {

// The number before `unit`, as in "Used 12 registers"; -1 where there is none.
int number_before(const std::string& line, const std::string& unit) {
  const size_t end = line.find(" " + unit);
  if (end == std::string::npos) return -1;
  size_t begin = end;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') --begin;
  return begin == end ? -1 : std::stoi(line.substr(begin, end - begin));
}

}  // namespace

std::map<std::string, Registers> read_registers(const std::string& file) {
  std::map<std::string, Registers> kernels;
  std::ifstream input(file);
  Registers* kernel = nullptr;
  for (std::string line; std::getline(input, line);) {
    const std::string start = "Compiling entry function '";
    if (const size_t at = line.find(start); at != std::string::npos) {
      const size_t begin = at + start.size();
      const std::string mangled = line.substr(begin, line.find('\'', begin) - begin);
      kernel = &kernels[without_namespaces(readable_name(mangled))];
    } else if (kernel != nullptr) {
      if (const int stores = number_before(line, "bytes spill stores"); stores >= 0)
        kernel->spill_bytes = stores + number_before(line, "bytes spill loads");
      if (const int count = number_before(line, "registers"); count >= 0) kernel->count = count;
    }
  }
  return kernels;
}

}  // namespace hostcuda::profile

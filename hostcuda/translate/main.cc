// Reads what `g++ -E` made of a CUDA source from the standard input, writes C++ for hostcuda to the standard output.
#include <cstdio>
#include <string>

#include "hostcuda/translate/translate.h"

int main() {
  std::string source;
  char buffer[1 << 16];
  for (size_t n = 0; (n = std::fread(buffer, 1, sizeof buffer, stdin)) > 0;) source.append(buffer, n);
  try {
    const std::string result = hostcuda::translate::translate(source);
    const bool written = std::fwrite(result.data(), 1, result.size(), stdout) == result.size() && std::fflush(stdout) == 0;
    if (!written) std::fputs("translate: cannot write the result: is the disk full?\n", stderr);
    return written ? 0 : 1;
  } catch (const hostcuda::translate::Refused& refused) {
    std::fputs(refused.what(), stderr);
    return 1;
  }
}

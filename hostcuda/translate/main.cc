// translate: reads what `g++ -E` made of a CUDA source from the standard input, writes C++ for hostcuda to
// the standard output. translate --header NAME: says why there is no such header, and what to do.
#include <cstdio>
#include <string>

#include "hostcuda/translate/refused.h"
#include "hostcuda/translate/translate.h"

int main(int count, char** arguments) {
  if (count == 3 && std::string(arguments[1]) == "--header") {
    const std::string why = hostcuda::translate::why_header_refused(arguments[2]);
    std::fputs(why.empty() ? "name the folder that it lies in with -I FOLDER\n" : (why + "\n").c_str(),
               stdout);
    return 0;
  }
  std::string source;
  char buffer[1 << 16];
  for (size_t n = 0; (n = std::fread(buffer, 1, sizeof buffer, stdin)) > 0;) source.append(buffer, n);
  try {
    const std::string result = hostcuda::translate::translate(source);
    const bool written =
        std::fwrite(result.data(), 1, result.size(), stdout) == result.size() && std::fflush(stdout) == 0;
    if (!written) std::fputs("translate: cannot write the result: is the disk full?\n", stderr);
    return written ? 0 : 1;
  } catch (const hostcuda::translate::Refused& refused) {
    std::fputs(refused.what(), stderr);
    return 1;
  }
}

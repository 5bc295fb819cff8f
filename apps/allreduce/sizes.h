// Sizes in bytes as people write them: 4096, 4K, 16M, 1G; K is 1024.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::apps {

// Throws Error, naming the option, where `text` is none.
int64_t parse_size(const std::string& option, const std::string& text);
// "64M", or the number of bytes where it is no whole number of K.
std::string size_text(int64_t bytes);
// From one to the other, each so many times the one before. Throws where the end lies before the begin.
std::vector<int64_t> sizes_between(const std::string& begin, const std::string& end, int factor);

}  // namespace lockstep::apps

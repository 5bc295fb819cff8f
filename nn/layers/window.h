// How a square window moves over an image: what convolutions and pooling have in common.
#pragma once

#include <string>

namespace lockstep::nn {

struct Window {
  int stride = 1;
  int padding = 0;
};

// ", stride 2, padding 1": what differs from `default_stride` and no padding.
std::string describe_window(const Window& window, int default_stride);

}  // namespace lockstep::nn

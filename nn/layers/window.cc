#include "nn/layers/window.h"

#include <fmt/format.h>

namespace lockstep::nn {

std::string describe_window(const Window& window, int default_stride) {
  std::string text;
  if (window.stride != default_stride) text += fmt::format(", stride {}", window.stride);
  if (window.padding != 0) text += fmt::format(", padding {}", window.padding);
  return text;
}

}  // namespace lockstep::nn

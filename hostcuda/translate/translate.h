// Turns a preprocessed CUDA source into C++ for hostcuda. Only what C++ cannot parse is rewritten, token by
// token and without a new line, so that errors, reports and debuggers show the lines that were written:
//
//   kernel<<<grid, block, shared, stream>>>(a)   (configure_launch(site, grid, block, shared, stream),
//   kernel(a))
//   __global__ void kernel(P a) { body }         void kernel(P a) { kernel_body("kernel", [=]() mutable {
//   body }); } extern __shared__ float tile[];              float* tile = dynamic_shared(); (void*)kernel
//   kernel_address(kernel)
//
// A kernel thus becomes a host function that enqueues its body, as the stub is that nvcc makes of it
// (hostcuda/include/hostcuda/plain.h has the four functions).
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace hostcuda::translate {

// What a CUDA program asks for that hostcuda does not have: one message per line, as "file:line: what, and
// what to do".
struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// `preprocessed`: the output of g++ -E with HOSTCUDA_TRANSLATE defined. Throws Refused.
std::string translate(std::string_view preprocessed);

}  // namespace hostcuda::translate

// Which way a convolution goes: a function of the question and of what the library answers, and of nothing
// else. So what a GPU would do can be asked, printed and tested on a machine without one.
#pragma once

#include <functional>

#include "kernels/conv/conv.h"

namespace lockstep::kernels {

// What kernels run on: their grids and caches differ, and so do the ways that pay.
enum class Machine { cpu, gpu };

enum class ConvRoute {
  direct,           // images are the lanes of a vector: for a CPU
  small_channels,   // a thread has a position, weights are in shared memory: for a GPU
  library,          // cuDNN
  library_padded,   // cuDNN, with channels of zeros up to a multiple of 8
  columns_library,  // im2col and cuBLAS
  columns_own,      // im2col and the matrix product written here
  through_float32,  // bfloat16 that is widened, computed in float32 and rounded
};

const char* name_of(ConvRoute route);

struct ConvQuestion {
  Conv2dShape shape;
  ConvPass pass;
  Machine machine;
  Math math = Math::library;
  Precision precision = Precision::fp32;
  bool bfloat16 = false;  // the operands
};

struct ConvDecision {
  ConvRoute route;
  const char* why;
};

// Whether the library has this pass for a shape; asked only where it matters.
using LibraryAnswer = std::function<bool(const Conv2dShape& shape)>;

ConvDecision decide(const ConvQuestion& question, const LibraryAnswer& library);

// The same convolution with both numbers of channels rounded up to multiples of 8.
Conv2dShape padded_to_8(Conv2dShape shape);

// Whether kernels/conv/conv_small.cu covers a pass.
bool is_small_convolution(const Conv2dShape& shape, ConvPass pass);

}  // namespace lockstep::kernels

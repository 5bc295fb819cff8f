#include "kernels/conv/conv_policy.h"

namespace lockstep::kernels {
namespace {

// Up to this product of input and output channels a CPU's direct kernel is chosen: measured against cuDNN on
// the CPU by bench/conv_layers_bench. The gradient of the weights loses sooner, since its tiles no longer
// share a cache. With 32 output channels, as in ResNet's first layer, a library fills its vectors with them.
constexpr int64_t kFewChannels = 1024;
constexpr int64_t kFewFilterChannels = 256;
constexpr int kManyOutputs = 32;

bool has_few_channels(const Conv2dShape& s, ConvPass pass) {
  const int64_t few = pass == ConvPass::backward_filter ? kFewFilterChannels : kFewChannels;
  return s.out_channels < kManyOutputs && int64_t{s.in_channels} * s.out_channels <= few;
}

ConvDecision on_cpu(const ConvQuestion& q, const LibraryAnswer& library) {
  const bool direct = q.pass != ConvPass::backward_data || q.shape.stride == 1;
  if (has_few_channels(q.shape, q.pass) && direct)
    return {ConvRoute::direct, "few channels: images fill the vectors"};
  if (library(q.shape)) return {ConvRoute::library, "cuDNN has it"};
  if (direct) return {ConvRoute::direct, "cuDNN does not have it"};
  return {ConvRoute::columns_own, "cuDNN does not have it, nor the direct kernel with this stride"};
}

// Tensor cores want multiples of 8 channels, and cuDNN declines others in some versions.
ConvDecision on_gpu(const ConvQuestion& q, const LibraryAnswer& library) {
  const Conv2dShape padded = padded_to_8(q.shape);
  const bool even = padded.in_channels == q.shape.in_channels && padded.out_channels == q.shape.out_channels;
  const bool tensor_cores = q.bfloat16 || q.precision == Precision::tf32;
  if (!q.bfloat16 && is_small_convolution(q.shape, q.pass))
    return {ConvRoute::small_channels, "few channels: too few for a library's tiles"};
  if ((even || !tensor_cores) && library(q.shape)) return {ConvRoute::library, "cuDNN has it"};
  if (!even && library(padded))
    return {ConvRoute::library_padded, tensor_cores ? "tensor cores take 8 channels at a time"
                                                    : "cuDNN has it for multiples of 8 channels"};
  if (!even && tensor_cores && library(q.shape))
    return {ConvRoute::library, "cuDNN has it, and not for multiples of 8 channels"};
  if (q.bfloat16) return {ConvRoute::through_float32, "cuDNN does not have it in bfloat16"};
  return {ConvRoute::columns_library, "cuDNN does not have it"};
}

}  // namespace

const char* name_of(ConvRoute route) {
  switch (route) {
    case ConvRoute::direct:
      return "direct";
    case ConvRoute::small_channels:
      return "small channels";
    case ConvRoute::library:
      return "cuDNN";
    case ConvRoute::library_padded:
      return "cuDNN, padded";
    case ConvRoute::columns_library:
      return "im2col + cuBLAS";
    case ConvRoute::columns_own:
      return "im2col + own";
    default:
      return "through float32";
  }
}

Conv2dShape padded_to_8(Conv2dShape shape) {
  shape.in_channels = (shape.in_channels + 7) / 8 * 8;
  shape.out_channels = (shape.out_channels + 7) / 8 * 8;
  return shape;
}

bool is_small_convolution(const Conv2dShape& s, ConvPass pass) {
  constexpr int64_t kSharedFloats = 10 << 10;  // 40 KB, so that two blocks fit any multiprocessor
  if (!has_few_channels(s, ConvPass::forward)) return false;
  if (pass == ConvPass::backward_filter) {
    const int64_t input = int64_t{s.height + 2 * s.padding} * (s.width + 2 * s.padding) * s.in_channels;
    return s.weight_size() <= 4096 &&
           input + int64_t{s.out_height()} * s.out_width() * s.out_channels <= kSharedFloats;
  }
  // The weights of a block: of all taps and inputs, for at most 6 outputs.
  const int inputs = pass == ConvPass::forward ? s.in_channels : s.out_channels;
  const int64_t held = int64_t{s.kernel_height} * s.kernel_width * inputs * 6;
  return held <= kSharedFloats && (pass == ConvPass::forward || s.stride == 1);
}

ConvDecision decide(const ConvQuestion& q, const LibraryAnswer& library) {
  if (q.math == Math::own)
    return q.bfloat16 ? ConvDecision{ConvRoute::through_float32, "--math own"}
                      : ConvDecision{ConvRoute::columns_own, "--math own"};
  if (q.machine == Machine::gpu) return on_gpu(q, library);
  if (!q.bfloat16) return on_cpu(q, library);
  if (library(q.shape)) return {ConvRoute::library, "cuDNN has it"};
  return {ConvRoute::through_float32, "cuDNN does not have it in bfloat16"};
}

}  // namespace lockstep::kernels

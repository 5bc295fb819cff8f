// Copies and fills of rows that are further apart than they are long: row by row, in stream order.
#include "hostcuda/src/runtime/api.h"

namespace {

template <typename RowCall>
cudaError_t for_each_row(size_t width, size_t height, size_t pitch, size_t other_pitch, RowCall call) {
  if (width > pitch || width > other_pitch) return hostcuda::remember(cudaErrorInvalidPitchValue);
  for (size_t row = 0; row < height; ++row)
    if (const cudaError_t error = call(row); error != cudaSuccess) return error;
  return cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaMemcpy2DAsync(void* destination, size_t destination_pitch, const void* source,
                              size_t source_pitch, size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
  return for_each_row(width, height, destination_pitch, source_pitch, [&](size_t row) {
    return cudaMemcpyAsync(static_cast<char*>(destination) + row * destination_pitch,
                           static_cast<const char*>(source) + row * source_pitch, width, kind, stream);
  });
}

cudaError_t cudaMemcpy2D(void* destination, size_t destination_pitch, const void* source, size_t source_pitch,
                         size_t width, size_t height, cudaMemcpyKind kind) {
  const cudaError_t error =
      cudaMemcpy2DAsync(destination, destination_pitch, source, source_pitch, width, height, kind, nullptr);
  return error == cudaSuccess ? cudaStreamSynchronize(nullptr) : error;
}

cudaError_t cudaMemset2DAsync(void* pointer, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
  return for_each_row(width, height, pitch, pitch, [&](size_t row) {
    return cudaMemsetAsync(static_cast<char*>(pointer) + row * pitch, value, width, stream);
  });
}

cudaError_t cudaMemset2D(void* pointer, size_t pitch, int value, size_t width, size_t height) {
  return cudaMemset2DAsync(pointer, pitch, value, width, height, nullptr);
}

}  // extern "C"

// A batch from a data set that lies on the device as bytes: rows are picked by index and normalised.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace lockstep::kernels {

// (byte / 255 - mean) / stddev as one multiply-add.
struct ByteNormalisation {
  float factor, offset;
  ByteNormalisation(float mean, float stddev)
      : factor(static_cast<float>(1.0 / (255.0 * stddev))),
        offset(static_cast<float>(-static_cast<double>(mean) / stddev)) {}
  __host__ __device__ float operator()(uint8_t byte) const { return byte * factor + offset; }
};

// For i in [0, rows), with r = order[i]:
//   x[i, p] = (images[r, p] / 255 - mean) / stddev     for p in [0, pixels)
//   y[i]    = labels[r]
// images: [*, pixels] bytes; labels: [*] bytes; order: [rows] indices into them, on the device.
void gather_batch(const uint8_t* images, const uint8_t* labels, const int32_t* order, int64_t rows,
                  int pixels, float mean, float stddev, float* x, int32_t* y, cudaStream_t stream);

}  // namespace lockstep::kernels

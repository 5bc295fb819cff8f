// A batch from a data set that lies on the device as bytes, with every image changed at random: shifted,
// mirrored, and with a hole. The same image gets the same change whatever the batch, the shard or the number
// of devices.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace lockstep::kernels {

struct Augmentation {
  int padding = 0;    // random crop: black pixels around the image, of which a window of its size is cut
  bool flip = false;  // left and right change places in half of the images
  int cutout = 0;  // side of a square hole with its middle anywhere in the image (DeVries and Taylor, 2017)
};

// As gather_batch (kernels/gather.h), and in this order: crop, flip, cutout. What lies outside the image is
// what a black pixel becomes, -mean / stddev; the hole is 0, the mean, as in the paper. Every choice is drawn
// uniformly by Philox from (seed, epoch, order[i]) alone.
// images: [*, height, width] bytes; x: [rows, height, width]. Throws for a padding outside [0, height) or
// [0, width), and for a negative cutout.
void augment_batch(const uint8_t* images, const uint8_t* labels, const int32_t* order, int64_t rows,
                   int height, int width, float mean, float stddev, const Augmentation& augmentation,
                   uint64_t seed, uint64_t epoch, float* x, int32_t* y, cudaStream_t stream);

}  // namespace lockstep::kernels

// Augmentation: a block takes an image. Every thread draws the image's numbers for itself, which is cheaper
// than sharing them, and looks up where each of its output pixels comes from.
#include "kernels/augment.h"

#include <string>

#include "kernels/gather.h"
#include "kernels/launch.cuh"
#include "kernels/philox.cuh"

namespace lockstep::kernels {

// Keeps the numbers apart from those for other purposes from the same seed (kernels/random.h,
// nn/data/shuffle.h).
constexpr uint64_t kAugmentSequence = 0x6175676d656e7400u;

// Uniform in [0, n), but for 2^-32 n at most.
__device__ inline int below(uint32_t word, int n) {
  return static_cast<int>((static_cast<uint64_t>(word) * static_cast<uint64_t>(n)) >> 32);
}

template <int kThreads>
__global__ void augment_batch_kernel(const uint8_t* __restrict__ images, const uint8_t* __restrict__ labels,
                                     const int32_t* __restrict__ order, int64_t rows, int height, int width,
                                     ByteNormalisation normalise, Augmentation augmentation, uint64_t seed,
                                     uint64_t sequence, float* __restrict__ x, int32_t* __restrict__ y) {
  // A warp takes a line of pixels at a time.
  constexpr int kColumns = kThreads < 32 ? kThreads : 32;
  int first_line = 0, first_column = 0;
  if constexpr (kThreads > 1) {
    first_line = static_cast<int>(threadIdx.x) / kColumns;
    first_column = static_cast<int>(threadIdx.x) % kColumns;
  }
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const int64_t picked = order[row];
    const PhiloxBlock shift = philox(seed, sequence, static_cast<uint64_t>(2 * picked));
    const PhiloxBlock hole = philox(seed, sequence, static_cast<uint64_t>(2 * picked + 1));
    const int down = below(shift.word[0], 2 * augmentation.padding + 1) - augmentation.padding;
    const int right = below(shift.word[1], 2 * augmentation.padding + 1) - augmentation.padding;
    const bool mirrored = augmentation.flip && shift.word[2] >> 31 != 0;
    const int step = mirrored ? -1 : 1;
    const int start = mirrored ? width - 1 + right : right;
    const int top = below(hole.word[0], height) - augmentation.cutout / 2;
    const int left = below(hole.word[1], width) - augmentation.cutout / 2;

    const uint8_t* image = images + picked * height * width;
    float* target = x + row * height * width;
    for (int line = first_line; line < height; line += kThreads / kColumns) {
      const int from_line = line + down;
      const bool line_inside = from_line >= 0 && from_line < height;
      const bool line_in_hole = line >= top && line < top + augmentation.cutout;
      const uint8_t* source = image + (line_inside ? from_line * width : 0);
      for (int column = first_column; column < width; column += kColumns) {
        const int from = start + step * column;
        const bool inside = line_inside && from >= 0 && from < width;
        const bool in_hole = line_in_hole && column >= left && column < left + augmentation.cutout;
        const uint8_t byte = inside ? source[from] : uint8_t{0};
        target[line * width + column] = in_hole ? 0.0f : normalise(byte);
      }
    }
    if (is_block_leader<kThreads>()) y[row] = labels[picked];
  }
}

void augment_batch(const uint8_t* images, const uint8_t* labels, const int32_t* order, int64_t rows,
                   int height, int width, float mean, float stddev, const Augmentation& augmentation,
                   uint64_t seed, uint64_t epoch, float* x, int32_t* y, cudaStream_t stream) {
  const int padding = augmentation.padding;
  if (padding < 0 || padding >= height || padding >= width || augmentation.cutout < 0)
    throw Error("augment_batch: a padding of " + std::to_string(padding) + " and a cutout of " +
                std::to_string(augmentation.cutout) + " for images of " + std::to_string(height) + "x" +
                std::to_string(width) + ": both must be 0 or more, and the padding less than a side");
  if (rows == 0) return;
  launch_blocks<256>(LOCKSTEP_BLOCK_KERNEL(augment_batch_kernel), blocks_for(rows), stream, images, labels,
                     order, rows, height, width, ByteNormalisation(mean, stddev), augmentation, seed,
                     epoch ^ kAugmentSequence, x, y);
}

}  // namespace lockstep::kernels

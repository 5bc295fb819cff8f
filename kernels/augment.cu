// Augmentation: a block takes an image, a warp a line of it. Every thread draws the image's numbers for
// itself, which is cheaper than sharing them.
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

struct Span {
  int begin, end;
};

// A line of the output: the columns in `inside` come from source[start + kStep * column], others are black,
// and those in `hole` are 0. This thread's part: every kColumns-th, `first` being its first. Where a pixel
// comes from is a matter of the loop, not of the pixel, so that a CPU can load and store vectors.
template <int kColumns, int kStep>
__device__ inline void write_line(const uint8_t* __restrict__ source, int start, Span inside, Span hole,
                                  int width, int first, ByteNormalisation normalise,
                                  float* __restrict__ target) {
  const auto put = [=](int column, uint8_t byte) {
    const float value = normalise(byte);
    target[column] = column >= hole.begin && column < hole.end ? 0.0f : value;
  };
  for (int c = first; c < inside.begin; c += kColumns) put(c, 0);
  for (int c = inside.begin + first; c < inside.end; c += kColumns) put(c, source[start + kStep * c]);
  for (int c = inside.end + first; c < width; c += kColumns) put(c, 0);
}

template <int kThreads>
__global__ void augment_batch_kernel(const uint8_t* __restrict__ images, const uint8_t* __restrict__ labels,
                                     const int32_t* __restrict__ order, int64_t rows, int height, int width,
                                     ByteNormalisation normalise, Augmentation augmentation, uint64_t seed,
                                     uint64_t sequence, float* __restrict__ x, int32_t* __restrict__ y) {
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
    const int top = below(hole.word[0], height) - augmentation.cutout / 2;
    const int left = below(hole.word[1], width) - augmentation.cutout / 2;
    const int ahead = mirrored ? -right : right;  // of its place a column reads, before it is mirrored
    const Span columns_inside{ahead < 0 ? -ahead : 0, ahead < 0 ? width : width - ahead};

    const uint8_t* image = images + picked * height * width;
    float* target = x + row * height * width;
    for (int line = first_line; line < height; line += kThreads / kColumns) {
      const int from = line + down;
      const bool inside = from >= 0 && from < height;
      const uint8_t* source = image + (inside ? from * width : 0);
      const Span from_image = inside ? columns_inside : Span{0, 0};
      const bool cut = line >= top && line < top + augmentation.cutout;
      const Span zero = cut ? Span{left, left + augmentation.cutout} : Span{0, 0};
      if (mirrored)
        write_line<kColumns, -1>(source, width - 1 + right, from_image, zero, width, first_column, normalise,
                                 target + line * width);
      else
        write_line<kColumns, 1>(source, right, from_image, zero, width, first_column, normalise,
                                target + line * width);
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

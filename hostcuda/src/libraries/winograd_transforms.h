// Winograd's transforms for F(4x4, 3x3): 4x4 outputs of a 3x3 convolution from 36 products instead of 144.
//
//   y = A' [ (G g G') . (B' d B) ] A     d: 6x6 inputs, g: 3x3 weights, y: 4x4 outputs, ': transposed
//
// (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2016). The matrices follow from six
// points at which polynomials are evaluated; 0, 5/8, -5/8, 3/2, -3/2 and infinity round less than the usual
// 0, 1, -1, 2, -2. Transposing the formula gives the gradient of the weights: G' [ (A dy A') . (B' d B) ] G.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace hostcuda::winograd {

constexpr int kTile = 4;   // outputs of a tile, in each direction
constexpr int kPatch = 6;  // its inputs
constexpr int kPoints = kPatch * kPatch;

// A batch of NHWC images, cut into tiles: tile (image, row, column) begins at pixel (kTile * row - top,
// kTile * column - left). Pixels outside an image are zero, and are not written.
struct TiledImages {
  int height, width, channels;
  int tile_rows, tile_columns;  // of an image
  int top, left;
};

// Below, T is float or __nv_bfloat16: what images, weights and gradients are in memory. All sums, and what
// lies between the transforms, are float.

// A block of transformed tiles: element [point][tile][channel]; an odd number of cache lines between points
// and between tiles keeps them from competing for the same places of the cache.
struct Block {
  float* start;
  int64_t point_step, tile_step;
};

// block[.][i][c] = B' d B of tile first + i and channel first_channel + c, i < tiles, c < channels. `zeros`
// has as many elements as images have channels, all zero.
template <typename T>
void transform_input(const TiledImages& images, const T* x, int64_t first, int tiles, int first_channel,
                     int channels, const T* zeros, const Block& block);

// Likewise A dy A' of 4x4 gradients of the output.
template <typename T>
void transform_gradient(const TiledImages& images, const T* dy, int64_t first, int tiles, int first_channel,
                        int channels, const T* zeros, const Block& block);

// y = alpha A' m A + beta y, with m[point][i][c] in block; beta = 0 never reads y. `beyond` has as many
// elements as images have channels: what falls outside the images is written there.
template <typename T>
void transform_output(const TiledImages& images, const Block& block, int64_t first, int tiles,
                      int first_channel, int channels, float alpha, float beta, T* beyond, T* y);

// The weights w, [out, 3, 3, in], of `depth` input channels from `from` on and `width` output channels from
// `first` on: u[point][i][j] = G g G' of input channel from + i and output channel first + j.
template <typename T>
void transform_weights(const T* w, int in, int from, int depth, int first, int width, float* u,
                       int64_t point_step);
// For the gradient of the input, which is a convolution with the weights turned by half a turn and the
// channels exchanged: of output channel from + i and input channel first + j.
template <typename T>
void transform_turned_weights(const T* w, int in, int from, int depth, int first, int width, float* u,
                              int64_t point_step);

// dw[out][3][3][first + i] = alpha G' m G + beta dw, with m[point][out][i] = the sum over s < sums of
// m[s * sum_step + point * point_step + (out - begin) * width + i], for output channels [begin, end).
template <typename T>
void transform_filter_gradient(const float* m, int sums, int64_t sum_step, int64_t point_step, int width,
                               int begin, int end, int in, int first, float alpha, float beta, T* dw);

}  // namespace hostcuda::winograd

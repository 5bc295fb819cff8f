#include "hostcuda/src/libraries/winograd_transforms.h"

#include "hostcuda/src/libraries/vector_lanes.h"

// All values are to stay in registers; a call would pass them through memory.
#define WINOGRAD_INLINE __attribute__((always_inline))

namespace hostcuda::winograd {
namespace {

// The points are 0, a, -a, b, -b, infinity; p and q their squares. A point x stands for the values of 1, x,
// x^2, ...; its weights are divided by the product of its distances to the other finite points: zero, na, nb.
constexpr float a = 5.0f / 8, b = 3.0f / 2;
constexpr float p = a * a, q = b * b;
constexpr float per_zero = 1 / (p * q), per_a = 1 / (2 * p * (p - q)), per_b = 1 / (2 * q * (q - p));

// One direction of B' d B. Row x of B' holds the coefficients of the product of (t - other points).
struct Input {
  static constexpr int kFrom = kPatch, kTo = kPatch;
  WINOGRAD_INLINE static void apply(const Lanes (&d)[kPatch], Lanes (&v)[kPatch]) {
    const Lanes even_a = d[4] - q * d[2], odd_a = a * (d[3] - q * d[1]);
    const Lanes even_b = d[4] - p * d[2], odd_b = b * (d[3] - p * d[1]);
    v[0] = d[4] - (p + q) * d[2] + (p * q) * d[0];
    v[1] = even_a + odd_a;
    v[2] = even_a - odd_a;
    v[3] = even_b + odd_b;
    v[4] = even_b - odd_b;
    v[5] = d[5] - (p + q) * d[3] + (p * q) * d[1];
  }
};

// A' m A: the values' powers, summed.
struct Output {
  static constexpr int kFrom = kPatch, kTo = kTile;
  WINOGRAD_INLINE static void apply(const Lanes (&m)[kPatch], Lanes (&y)[kTile]) {
    const Lanes sum_a = m[1] + m[2], difference_a = m[1] - m[2];
    const Lanes sum_b = m[3] + m[4], difference_b = m[3] - m[4];
    y[0] = m[0] + sum_a + sum_b;
    y[1] = a * difference_a + b * difference_b;
    y[2] = p * sum_a + q * sum_b;
    y[3] = (a * p) * difference_a + (b * q) * difference_b + m[5];
  }
};

// A dy A'.
struct Gradient {
  static constexpr int kFrom = kTile, kTo = kPatch;
  WINOGRAD_INLINE static void apply(const Lanes (&y)[kTile], Lanes (&v)[kPatch]) {
    const Lanes even_a = y[0] + p * y[2], odd_a = a * (y[1] + p * y[3]);
    const Lanes even_b = y[0] + q * y[2], odd_b = b * (y[1] + q * y[3]);
    v[0] = y[0];
    v[1] = even_a + odd_a;
    v[2] = even_a - odd_a;
    v[3] = even_b + odd_b;
    v[4] = even_b - odd_b;
    v[5] = y[3];
  }
};

// G g G'.
struct Weights {
  static constexpr int kFrom = 3, kTo = kPatch;
  WINOGRAD_INLINE static void apply(const Lanes (&g)[3], Lanes (&u)[kPatch]) {
    const Lanes even_a = per_a * (g[0] + p * g[2]), odd_a = (a * per_a) * g[1];
    const Lanes even_b = per_b * (g[0] + q * g[2]), odd_b = (b * per_b) * g[1];
    u[0] = per_zero * g[0];
    u[1] = even_a + odd_a;
    u[2] = even_a - odd_a;
    u[3] = even_b + odd_b;
    u[4] = even_b - odd_b;
    u[5] = g[2];
  }
};

// G' m G.
struct FilterGradient {
  static constexpr int kFrom = kPatch, kTo = 3;
  WINOGRAD_INLINE static void apply(const Lanes (&m)[kPatch], Lanes (&g)[3]) {
    const Lanes sum_a = per_a * (m[1] + m[2]), sum_b = per_b * (m[3] + m[4]);
    g[0] = per_zero * m[0] + sum_a + sum_b;
    g[1] = (a * per_a) * (m[1] - m[2]) + (b * per_b) * (m[3] - m[4]);
    g[2] = p * sum_a + q * sum_b + m[5];
  }
};

// A transform in both directions, columns first: load(row, column), then store(row, column, value).
template <typename Transform, typename Load, typename Store>
WINOGRAD_INLINE inline void transform_both_ways(Load load_element, Store store_element) {
  constexpr int kFrom = Transform::kFrom, kTo = Transform::kTo;
  Lanes half[kTo][kFrom];
#pragma GCC unroll 6
  for (int column = 0; column < kFrom; ++column) {
    Lanes from[kFrom], to[kTo];
#pragma GCC unroll 6
    for (int row = 0; row < kFrom; ++row) from[row] = load_element(row, column);
    Transform::apply(from, to);
#pragma GCC unroll 6
    for (int row = 0; row < kTo; ++row) half[row][column] = to[row];
  }
#pragma GCC unroll 6
  for (int row = 0; row < kTo; ++row) {
    Lanes to[kTo];
    Transform::apply(half[row], to);
#pragma GCC unroll 6
    for (int column = 0; column < kTo; ++column) store_element(row, column, to[column]);
  }
}

// Where the kSize x kSize pixels of a tile lie; `outside` stands for those outside the image.
template <int kSize, typename T>
void locate(const TiledImages& images, T* x, int64_t tile, T* outside, T* (&pixels)[kSize][kSize]) {
  const int column = static_cast<int>(tile % images.tile_columns) * kTile - images.left;
  const int row = static_cast<int>(tile / images.tile_columns % images.tile_rows) * kTile - images.top;
  const int64_t image = tile / images.tile_columns / images.tile_rows;
  T* const start = x + image * images.height * images.width * images.channels;
  for (int i = 0; i < kSize; ++i)
    for (int j = 0; j < kSize; ++j) {
      const bool inside =
          row + i >= 0 && row + i < images.height && column + j >= 0 && column + j < images.width;
      pixels[i][j] =
          inside ? start + (int64_t{row + i} * images.width + column + j) * images.channels : outside;
    }
}

// Meanwhile the pixels that the next tile does not share with this one are fetched.
template <typename Transform, typename T>
void transform_tiles(const TiledImages& images, const T* x, int64_t first, int tiles, int first_channel,
                     int channels, const T* zeros, const Block& block) {
  constexpr int kSize = Transform::kFrom;
  const T* places[2][kSize][kSize];
  locate<kSize>(images, x, first, zeros, places[0]);
  for (int i = 0; i < tiles; ++i) {
    const auto& pixels = places[i % 2];
    auto& coming = places[(i + 1) % 2];
    locate<kSize>(images, x, first + (i + 1 < tiles ? i + 1 : i), zeros, coming);
    float* const tile = block.start + i * block.tile_step;
    for (int c = 0; c < channels; c += kLanes) {
#pragma GCC unroll 6
      for (int row = 0; row < kSize; ++row)
#pragma GCC unroll 6
        for (int column = kSize - kTile; column < kSize; ++column)
          __builtin_prefetch(coming[row][column] + first_channel + c);
      transform_both_ways<Transform>(
          [&](int row, int column) WINOGRAD_INLINE { return load(pixels[row][column] + first_channel + c); },
          [&](int row, int column, Lanes value)
              WINOGRAD_INLINE { store(tile + (row * kPatch + column) * block.point_step + c, value); });
    }
  }
}

// The next tile's pixels are fetched here too: a line is read before a part of it is written.
template <bool kAdd, typename T>
void write_tiles(const TiledImages& images, const Block& block, int64_t first, int tiles, int first_channel,
                 int channels, float alpha, float beta, T* beyond, T* y) {
  T* places[2][kTile][kTile];
  locate<kTile>(images, y, first, beyond, places[0]);
  for (int i = 0; i < tiles; ++i) {
    const auto& pixels = places[i % 2];
    auto& coming = places[(i + 1) % 2];
    locate<kTile>(images, y, first + (i + 1 < tiles ? i + 1 : i), beyond, coming);
    const float* const tile = block.start + i * block.tile_step;
    for (int c = 0; c < channels; c += kLanes) {
#pragma GCC unroll 4
      for (int row = 0; row < kTile; ++row)
#pragma GCC unroll 4
        for (int column = 0; column < kTile; ++column)
          __builtin_prefetch(coming[row][column] + first_channel + c, 1);
      transform_both_ways<Output>(
          [&](int row, int column)
              WINOGRAD_INLINE { return load(tile + (row * kPatch + column) * block.point_step + c); },
          [&](int row, int column, Lanes value) WINOGRAD_INLINE {
            T* const to = pixels[row][column] + first_channel + c;
            store(to, kAdd ? alpha * value + beta * load(to) : alpha * value);
          });
    }
  }
}

}  // namespace

template <typename T>
void transform_input(const TiledImages& images, const T* x, int64_t first, int tiles, int first_channel,
                     int channels, const T* zeros, const Block& block) {
  transform_tiles<Input>(images, x, first, tiles, first_channel, channels, zeros, block);
}

template <typename T>
void transform_gradient(const TiledImages& images, const T* dy, int64_t first, int tiles, int first_channel,
                        int channels, const T* zeros, const Block& block) {
  transform_tiles<Gradient>(images, dy, first, tiles, first_channel, channels, zeros, block);
}

template <typename T>
void transform_output(const TiledImages& images, const Block& block, int64_t first, int tiles,
                      int first_channel, int channels, float alpha, float beta, T* beyond, T* y) {
  const auto write = beta == 0 ? write_tiles<false, T> : write_tiles<true, T>;
  write(images, block, first, tiles, first_channel, channels, alpha, beta, beyond, y);
}

template <typename T>
void transform_weights(const T* w, int in, int from, int depth, int first, int width, float* u,
                       int64_t point_step) {
  for (int c = 0; c < depth; c += kLanes)
    for (int k = 0; k < width; k += kLanes) {
      Lanes taps[9][kLanes];  // of kLanes input channels; the lanes are output channels
      for (int tap = 0; tap < 9; ++tap) {
        for (int lane = 0; lane < kLanes; ++lane) {
          const T* const at = w + (int64_t{first + k + lane} * 9 + tap) * in + from + c;
          taps[tap][lane] = load(at);
          __builtin_prefetch(at + int64_t{kLanes} * 9 * in);
        }
        transpose(taps[tap]);
      }
      for (int i = 0; i < kLanes; ++i)
        transform_both_ways<Weights>(
            [&](int row, int column) WINOGRAD_INLINE { return taps[row * 3 + column][i]; },
            [&](int row, int column, Lanes value) WINOGRAD_INLINE {
              store(u + (row * kPatch + column) * point_step + int64_t{c + i} * width + k, value);
            });
    }
}

template <typename T>
void transform_turned_weights(const T* w, int in, int from, int depth, int first, int width, float* u,
                              int64_t point_step) {
  for (int k = 0; k < depth; ++k)
    for (int c = 0; c < width; c += kLanes) {
      const T* const last = w + (int64_t{from + k} * 9 + 8) * in + first + c;
#pragma GCC unroll 9
      for (int tap = 0; tap < 9; ++tap) __builtin_prefetch(last + (9 - tap) * int64_t{in});
      transform_both_ways<Weights>(
          [&](int row, int column) WINOGRAD_INLINE { return load(last - (row * 3 + column) * int64_t{in}); },
          [&](int row, int column, Lanes value) WINOGRAD_INLINE {
            store(u + (row * kPatch + column) * point_step + int64_t{k} * width + c, value);
          });
    }
}

template <typename T>
void transform_filter_gradient(const float* m, int sums, int64_t sum_step, int64_t point_step, int width,
                               int begin, int end, int in, int first, float alpha, float beta, T* dw) {
  for (int k = begin; k < end; ++k)
    for (int c = 0; c < width; c += kLanes) {
      T* const result = dw + int64_t{k} * 9 * in + first + c;
#pragma GCC unroll 9
      for (int tap = 0; tap < 9; ++tap) __builtin_prefetch(result + (9 + tap) * int64_t{in}, 1);
      transform_both_ways<FilterGradient>(
          [&](int row, int column) WINOGRAD_INLINE {
            const float* from = m + (row * kPatch + column) * point_step + int64_t{k - begin} * width + c;
            Lanes total = load(from);
            for (int s = 1; s < sums; ++s) total += load(from + s * sum_step);
            return total;
          },
          [&](int row, int column, Lanes value) WINOGRAD_INLINE {
            T* const to = result + (row * 3 + column) * int64_t{in};
            store(to, beta == 0 ? alpha * value : alpha * value + beta * load(to));
          });
    }
}

#define INSTANTIATE(T)                                                                                       \
  template void transform_input(const TiledImages&, const T*, int64_t, int, int, int, const T*,              \
                                const Block&);                                                               \
  template void transform_gradient(const TiledImages&, const T*, int64_t, int, int, int, const T*,           \
                                   const Block&);                                                            \
  template void transform_output(const TiledImages&, const Block&, int64_t, int, int, int, float, float, T*, \
                                 T*);                                                                        \
  template void transform_weights(const T*, int, int, int, int, int, float*, int64_t);                       \
  template void transform_turned_weights(const T*, int, int, int, int, int, float*, int64_t);                \
  template void transform_filter_gradient(const float*, int, int64_t, int64_t, int, int, int, int, int,      \
                                          float, float, T*)
INSTANTIATE(float);
INSTANTIATE(__nv_bfloat16);

}  // namespace hostcuda::winograd

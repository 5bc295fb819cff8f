#include "hostcuda/src/libraries/panels.h"

#include "hostcuda/src/libraries/vector_lanes.h"

namespace hostcuda {
namespace {

// Meanwhile the next tile's rows and sums are fetched, and of the next panel half a cache line per step, so
// that eight tiles fetch one like theirs.
constexpr int kAhead = 8;

// R rows of V vectors. The arrays are indexed by constants once unrolled, so they live in registers.
template <int R, int V>
void tile(int depth, const Operand& a, const float* b, int64_t b_step, float* sums, int64_t sums_step,
          bool add, const float* ahead) {
  Lanes total[R][V];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      total[r][v] = add ? load(sums + r * sums_step + v * kLanes) : Lanes{};
      if (add) __builtin_prefetch(sums + (kRows + r) * sums_step + v * kLanes, 1);
    }
  const float* element = a.start;
  const int64_t row_step = a.row_step, column_step = a.column_step;
  for (int i = 0; i < depth; ++i, element += column_step, b += b_step, ahead += kAhead) {
    __builtin_prefetch(ahead, 0, 2);
    if (i % 16 == 0)
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) __builtin_prefetch(element + (kRows + r) * row_step);
    Lanes column[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) column[v] = load(b + v * kLanes);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const float factor = element[r * row_step];
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) total[r][v] += factor * column[v];
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) store(sums + r * sums_step + v * kLanes, total[r][v]);
}

using Tile = void (*)(int, const Operand&, const float*, int64_t, float*, int64_t, bool, const float*);

template <int V>
constexpr Tile kTiles[kRows] = {tile<1, V>, tile<2, V>, tile<3, V>, tile<4, V>, tile<5, V>, tile<6, V>};

template <int V>
void all_rows(int rows, int depth, Operand a, const float* b, int64_t b_step, float* sums, int64_t sums_step,
              bool add) {
  const float* ahead = b + depth * b_step;
  for (; rows > 0; rows -= kRows, a.start += kRows * a.row_step, sums += kRows * sums_step) {
    kTiles<V>[rows < kRows ? rows - 1 : kRows - 1](depth, a, b, b_step, sums, sums_step, add, ahead);
    ahead += depth * kAhead;
  }
}

}  // namespace

void multiply_panel(int rows, int width, int depth, const Operand& a, const float* b, int64_t b_step,
                    float* sums, int64_t sums_step, bool add) {
  switch (width / kLanes) {
    case 1:
      return all_rows<1>(rows, depth, a, b, b_step, sums, sums_step, add);
    case 2:
      return all_rows<2>(rows, depth, a, b, b_step, sums, sums_step, add);
#if defined(__AVX512F__)
    case 3:
      return all_rows<3>(rows, depth, a, b, b_step, sums, sums_step, add);
    case 4:
      return all_rows<4>(rows, depth, a, b, b_step, sums, sums_step, add);
#endif
    default:
      return;  // no panel is as wide
  }
}

}  // namespace hostcuda

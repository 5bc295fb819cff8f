#include "hostcuda/src/libraries/winograd.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <vector>

#include "hostcuda/src/libraries/panels.h"
#include "hostcuda/src/libraries/vector_lanes.h"
#include "hostcuda/src/libraries/winograd_transforms.h"
#include "hostcuda/src/runtime/share.h"
#include "hostcuda/src/runtime/worker_scratch.h"

namespace hostcuda::winograd {
namespace {

constexpr int kMostTiles = 48;  // of a block: it and its products stay in a core's second cache
constexpr int kDepth = 128;     // of a product: its panel of weights stays in the first cache
constexpr int kFewTiles = 512;  // up to this number the tiles may be the smaller operand
constexpr int kMostPartialSums = 8;
constexpr int64_t kPartialSumFloats = 3 << 20;  // of all partial sums of a filter's gradient together

// Blocks of tiles of about the same size. All but the last have block_tiles.
struct Blocks {
  explicit Blocks(int64_t all)
      : tiles(all),
        count(divide_up(all, kMostTiles)),
        block_tiles(static_cast<int>(divide_up(divide_up(all, count), kRows) * kRows)) {
    count = divide_up(tiles, block_tiles);
  }
  int64_t first(int64_t block) const { return block * block_tiles; }
  int size(int64_t block) const {
    return static_cast<int>(std::min<int64_t>(block_tiles, tiles - first(block)));
  }
  // Of a transformed block with so many channels.
  int64_t tile_step(int channels) const { return channels + kLine; }
  int64_t point_step(int channels) const { return block_tiles * tile_step(channels) + kLine; }
  int64_t floats(int channels) const { return kPoints * point_step(channels); }
  Block at(float* start, int channels) const { return {start, point_step(channels), tile_step(channels)}; }

  int64_t tiles, count;
  int block_tiles;
};

// The output channels of a product, in panels.
struct Panels {
  explicit Panels(int channels, int panel_depth)
      : count(static_cast<int>(divide_up(channels, kPanel))), all(channels), depth(panel_depth) {}
  int first(int panel) const { return panel * kPanel; }
  int width(int panel) const { return std::min(kPanel, all - first(panel)); }
  int64_t point_step(int panel) const { return int64_t{depth} * width(panel) + kLine; }
  int64_t start(int panel) const { return int64_t{kPoints} * (int64_t{depth} * kPanel + kLine) * panel; }
  int64_t floats(int panels) const { return start(panels); }

  int count, all, depth;
};

// A correlation of `images` with 3x3 weights: the forward pass, or the gradient of its input.
struct Correlation {
  int images;
  TiledImages in, out;
  bool turned;
};

TiledImages tiled(int height, int width, int channels, int tiled_height, int tiled_width, int top, int left) {
  return {height,
          width,
          channels,
          static_cast<int>(divide_up(tiled_height, kTile)),
          static_cast<int>(divide_up(tiled_width, kTile)),
          top,
          left};
}

Correlation correlation(const ConvolutionProblem& p) {
  if (p.pass == Pass::forward)
    return {p.n, tiled(p.h, p.w, p.c, p.out_h, p.out_w, p.padding_h, p.padding_w),
            tiled(p.out_h, p.out_w, p.k, p.out_h, p.out_w, 0, 0), false};
  return {p.n, tiled(p.out_h, p.out_w, p.k, p.h, p.w, 2 - p.padding_h, 2 - p.padding_w),
          tiled(p.h, p.w, p.c, p.h, p.w, 0, 0), true};
}

int64_t all_tiles(int images, const TiledImages& t) {
  return int64_t{images} * t.tile_rows * t.tile_columns;
}

// products[point][tile][out of the panel]: a block of tiles times the weights u of a panel, for input
// channels [from, from + depth). u's first row is that of `from`.
void multiply_block(const Correlation& c, const Blocks& blocks, int64_t block, const float* v, int from,
                    int depth, int width, const float* u, int64_t u_step, const Block& products) {
  const int channels = c.in.channels;
  for (int point = 0; point < kPoints; ++point)
    multiply_panel(blocks.size(block), width, depth,
                   {v + point * blocks.point_step(channels) + from, blocks.tile_step(channels), 1},
                   u + point * u_step, width, products.start + point * products.point_step,
                   products.tile_step, from > 0);
}

// u[point][in - from][out of the panel] for input channels [from, from + depth).
template <typename T>
void transform_panel(const Correlation& c, const T* w, const Panels& panels, int panel, int from, int depth,
                     float* u, int64_t u_step) {
  const int first = panels.first(panel), width = panels.width(panel);
  if (c.turned)
    transform_turned_weights(w, c.out.channels, from, depth, first, width, u, u_step);
  else
    transform_weights(w, c.in.channels, from, depth, first, width, u, u_step);
}

// Of the two operands of the products, the smaller one is transformed as a whole, into the workspace; the
// other one in parts that fit a core's second cache, by whoever needs them.
struct CorrelationPlan {
  explicit CorrelationPlan(const Correlation& c)
      : blocks(all_tiles(c.images, c.in)),
        panels(c.out.channels, c.in.channels),
        by_tiles(blocks.tiles >= std::min(c.out.channels, kFewTiles)),
        workspace_floats(by_tiles ? panels.floats(panels.count)
                                  : blocks.count * blocks.floats(c.in.channels)) {}
  Blocks blocks;
  Panels panels;
  bool by_tiles;
  int64_t workspace_floats;
};

template <typename T>
cudaError_t correlate(Device& device, const Correlation& c, float alpha, const T* in, const T* w,
                      float* workspace, float beta, T* out) {
  const CorrelationPlan plan(c);
  const Blocks& blocks = plan.blocks;
  const Panels& panels = plan.panels;
  const int channels = c.in.channels;
  const int64_t block_floats = blocks.floats(channels);
  const int64_t product_step = int64_t{blocks.block_tiles} * kPanel + kLine;  // between points
  const auto transform_block = [&](int64_t block, float* v) {
    transform_input(c.in, in, blocks.first(block), blocks.size(block), 0, channels, worker_zeros<T>(channels),
                    blocks.at(v, channels));
  };
  const auto write_block = [&](int64_t block, int panel, const Block& products, float* beyond) {
    transform_output(c.out, products, blocks.first(block), blocks.size(block), panels.first(panel),
                     panels.width(panel), alpha, beta, reinterpret_cast<T*>(beyond), out);
  };
  cudaError_t error;
  if (plan.by_tiles) {
    error = share_each(device, panels.count, [&](int panel) {
      transform_panel(c, w, panels, panel, 0, channels, workspace + panels.start(panel),
                      panels.point_step(panel));
    });
    if (error != cudaSuccess) return error;
    return share_each(device, blocks.count, [&](int block) {
      float* const v = worker_scratch(block_floats + kPoints * product_step + c.out.channels);
      transform_block(block, v);
      for (int panel = 0; panel < panels.count; ++panel) {
        const int width = panels.width(panel);
        const Block products{v + block_floats, product_step, width};
        for (int from = 0; from < channels; from += kDepth)
          multiply_block(c, blocks, block, v, from, std::min(kDepth, channels - from), width,
                         workspace + panels.start(panel) + int64_t{from} * width, panels.point_step(panel),
                         products);
        write_block(block, panel, products, v + block_floats + kPoints * product_step);
      }
    });
  }
  error = share_each(device, blocks.count,
                     [&](int block) { transform_block(block, workspace + block * block_floats); });
  if (error != cudaSuccess) return error;
  return share_each(device, panels.count, [&](int panel) {
    const int width = panels.width(panel);
    const int64_t u_step = int64_t{kDepth} * width + kLine;
    float* const u = worker_scratch(kPoints * (u_step + blocks.count * product_step) + c.out.channels);
    float* const all_products = u + kPoints * u_step;
    const auto products = [&](int64_t block) {
      return Block{all_products + block * kPoints * product_step, product_step, width};
    };
    for (int from = 0; from < channels; from += kDepth) {
      const int depth = std::min(kDepth, channels - from);
      transform_panel(c, w, panels, panel, from, depth, u, u_step);
      for (int64_t block = 0; block < blocks.count; ++block)
        multiply_block(c, blocks, block, workspace + block * block_floats, from, depth, width, u, u_step,
                       products(block));
    }
    for (int64_t block = 0; block < blocks.count; ++block)
      write_block(block, panel, products(block), all_products + blocks.count * kPoints * product_step);
  });
}

// The gradient of the weights is a product over all tiles. With more tiles than output channels, the tiles
// are cut into a number of ranges that the shape alone determines, each of which has sums of its own. With
// fewer, the sums are more than the operands, and are made one panel after the other.
struct FilterPlan {
  // A power of two, which two or four workers share evenly.
  static int64_t partial_sums(int64_t floats, int64_t blocks) {
    const int64_t most = std::min<int64_t>(kMostPartialSums, blocks);
    return static_cast<int64_t>(
        std::bit_floor(static_cast<uint64_t>(std::clamp<int64_t>(kPartialSumFloats / floats, 1, most))));
  }
  explicit FilterPlan(const ConvolutionProblem& p)
      : x(tiled(p.h, p.w, p.c, p.out_h, p.out_w, p.padding_h, p.padding_w)),
        dy(tiled(p.out_h, p.out_w, p.k, p.out_h, p.out_w, 0, 0)),
        blocks(all_tiles(p.n, x)),
        panels(p.c, p.k),
        by_tiles(blocks.tiles > std::min(p.k, kFewTiles)),
        ranges(by_tiles ? partial_sums(panels.floats(panels.count), blocks.count) : 1),
        workspace_floats(by_tiles ? ranges * panels.floats(panels.count)
                                  : blocks.count * blocks.floats(p.k)) {}
  TiledImages x, dy;
  Blocks blocks;
  Panels panels;
  bool by_tiles;
  int64_t ranges;
  int64_t workspace_floats;
};

// sums[point][out - begin][in of the panel] += the products of a block, for output channels [begin, end).
void add_products(const Blocks& blocks, int64_t block, const Block& dy, int begin, int end, const Block& x,
                  int width, float* sums, int64_t sums_step, bool add) {
  for (int point = 0; point < kPoints; ++point)
    multiply_panel(end - begin, width, blocks.size(block),
                   {dy.start + point * dy.point_step + begin, 1, dy.tile_step},
                   x.start + point * x.point_step, x.tile_step, sums + point * sums_step, width, add);
}

template <typename T>
cudaError_t filter_gradient(Device& device, const ConvolutionProblem& problem, float alpha, const T* x,
                            const T* dy, float* workspace, float beta, T* dw) {
  const FilterPlan plan(problem);
  const Blocks& blocks = plan.blocks;
  const Panels& panels = plan.panels;
  const int in = plan.x.channels, out = plan.dy.channels;
  const auto transform_dy = [&](int64_t block, float* to) {
    transform_gradient(plan.dy, dy, blocks.first(block), blocks.size(block), 0, out, worker_zeros<T>(out),
                       blocks.at(to, out));
  };
  cudaError_t error;
  if (plan.by_tiles) {
    const int64_t sum_step = panels.floats(panels.count);
    error = share_each(device, plan.ranges, [&](int range) {
      float* const gradients = worker_scratch(blocks.floats(out) + blocks.floats(in));
      float* const inputs = gradients + blocks.floats(out);
      const int64_t begin = blocks.count * range / plan.ranges,
                    end = blocks.count * (range + 1) / plan.ranges;
      for (int64_t block = begin; block < end; ++block) {
        transform_dy(block, gradients);
        transform_input(plan.x, x, blocks.first(block), blocks.size(block), 0, in, worker_zeros<T>(in),
                        blocks.at(inputs, in));
        for (int panel = 0; panel < panels.count; ++panel) {
          Block part = blocks.at(inputs, in);
          part.start += panels.first(panel);
          add_products(blocks, block, blocks.at(gradients, out), 0, out, part, panels.width(panel),
                       workspace + range * sum_step + panels.start(panel), panels.point_step(panel),
                       block > begin);
        }
      }
    });
    if (error != cudaSuccess) return error;
    constexpr int kOutputs = 16;
    return share_each(device, int64_t{panels.count} * (out / kOutputs), [&](int i) {
      const int panel = i % panels.count, begin = i / panels.count * kOutputs;
      const int width = panels.width(panel);
      transform_filter_gradient(workspace + panels.start(panel) + int64_t{begin} * width,
                                static_cast<int>(plan.ranges), sum_step, panels.point_step(panel), width,
                                begin, begin + kOutputs, in, panels.first(panel), alpha, beta, dw);
    });
  }
  error = share_each(device, blocks.count,
                     [&](int block) { transform_dy(block, workspace + block * blocks.floats(out)); });
  if (error != cudaSuccess) return error;
  return share_each(device, panels.count, [&](int panel) {
    const int width = panels.width(panel);
    const int64_t sums_step = int64_t{kDepth} * width + kLine;
    float* const sums = worker_scratch(kPoints * sums_step + blocks.count * blocks.floats(kPanel));
    const auto inputs = [&](int64_t block) {
      return blocks.at(sums + kPoints * sums_step + block * blocks.floats(kPanel), kPanel);
    };
    for (int64_t block = 0; block < blocks.count; ++block)
      transform_input(plan.x, x, blocks.first(block), blocks.size(block), panels.first(panel), width,
                      worker_zeros<T>(in), inputs(block));
    for (int begin = 0; begin < out; begin += kDepth) {
      const int end = std::min(begin + kDepth, out);
      for (int64_t block = 0; block < blocks.count; ++block)
        add_products(blocks, block, blocks.at(workspace + block * blocks.floats(out), out), begin, end,
                     inputs(block), width, sums, sums_step, block > 0);
      transform_filter_gradient(sums, 1, 0, sums_step, width, begin, end, in, panels.first(panel), alpha,
                                beta, dw);
    }
  });
}

template <typename T>
cudaError_t run(Device& device, const ConvolutionProblem& p, float alpha, ConvolutionData data,
                void* workspace, float beta) {
  const auto address = (reinterpret_cast<uintptr_t>(workspace) + 63) / 64 * 64;
  float* const aligned = reinterpret_cast<float*>(address);
  T *const input = static_cast<T*>(data.x), *const weights = static_cast<T*>(data.w),
           *const output = static_cast<T*>(data.y);
  switch (p.pass) {
    case Pass::forward:
      return correlate<T>(device, correlation(p), alpha, input, weights, aligned, beta, output);
    case Pass::backward_data:
      return correlate<T>(device, correlation(p), alpha, output, weights, aligned, beta, input);
    default:
      return filter_gradient<T>(device, p, alpha, input, output, aligned, beta, weights);
  }
}

}  // namespace

bool supports(const ConvolutionProblem& p) {
  if (p.activations != Layout::nhwc || p.filter != Layout::nhwc || p.kernel_h != 3 || p.kernel_w != 3 ||
      p.stride_h != 1 || p.stride_w != 1)
    return false;
  if (p.c % 16 != 0 || p.k % 16 != 0 || p.padding_h > 2 || p.padding_w > 2) return false;
  // Tiles reach beyond the images: at least a third of the products must be saved for all that.
  const bool data = p.pass == Pass::backward_data;
  const int64_t rows = data ? p.h : p.out_h, columns = data ? p.w : p.out_w;
  const int64_t products = kPoints * divide_up(rows, kTile) * divide_up(columns, kTile);
  return 3 * products <= 2 * (9 * rows * columns);
}

size_t workspace_bytes(const ConvolutionProblem& p) {
  const int64_t floats = p.pass == Pass::backward_filter ? FilterPlan(p).workspace_floats
                                                         : CorrelationPlan(correlation(p)).workspace_floats;
  return static_cast<size_t>(floats + kLine) * sizeof(float);  // it is aligned here
}

cudaError_t run(Device& device, const ConvolutionProblem& p, float alpha, ConvolutionData data,
                void* workspace, float beta) {
  return p.arithmetic == Arithmetic::float32 ? run<float>(device, p, alpha, data, workspace, beta)
                                             : run<__nv_bfloat16>(device, p, alpha, data, workspace, beta);
}

}  // namespace hostcuda::winograd

#include "hostcuda/src/libraries/implicit_gemm.h"

#include <cuda_bf16.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "hostcuda/src/libraries/panels.h"
#include "hostcuda/src/libraries/vector_lanes.h"
#include "hostcuda/src/runtime/config.h"
#include "hostcuda/src/runtime/share.h"
#include "hostcuda/src/runtime/worker_scratch.h"

namespace hostcuda::implicit_gemm {
namespace {

constexpr int kPixels = 48;        // gathered at a time
constexpr int kDepth = 128;        // of a product: its panel stays in the first cache
constexpr int kFilterPixels = 96;  // the depth of a product of the filter's gradient
constexpr int64_t kSumFloats =
    1 << 18;  // of a filter's gradient, made at a time: they stay in the second cache

// One direction of a correlation: outputs first, first + step, ..., each a sum over taps of the weights;
// output i of them meets tap t at input t.offset + i * in_step.
struct Tap {
  int index, offset;
};
struct Direction {
  int first, step, count, in_step;
  std::vector<Tap> taps;
};

// The forward pass takes all outputs alike.
Direction forward_direction(int outputs, int kernel, int stride, int padding) {
  Direction d{0, 1, outputs, stride, {}};
  for (int tap = 0; tap < kernel; ++tap) d.taps.push_back({tap, tap - padding});
  return d;
}

// The gradient of the input at x comes from the outputs (x + padding - tap) / stride that are whole: inputs
// whose remainders are equal have the same taps.
Direction backward_direction(int remainder, int inputs, int kernel, int stride, int padding) {
  Direction d{remainder, stride, static_cast<int>(divide_up(inputs - remainder, stride)), 1, {}};
  for (int tap = 0; tap < kernel; ++tap)
    if ((remainder + padding - tap) % stride == 0)
      d.taps.push_back({tap, (remainder + padding - tap) / stride});
  return d;
}

struct Image {
  int height, width, channels;
};

// A part of the result: the outputs of a direction of rows and one of columns.
struct Part {
  Direction rows, columns;
  int64_t weights;  // where its weights begin, in floats
  int64_t first_block, blocks;
};

struct Correlation {
  explicit Correlation(const ConvolutionProblem& p) : images(p.n), kernel_w(p.kernel_w) {
    const bool forward = p.pass == Pass::forward;
    in = forward ? Image{p.h, p.w, p.c} : Image{p.out_h, p.out_w, p.k};
    out = forward ? Image{p.out_h, p.out_w, p.k} : Image{p.h, p.w, p.c};
    if (forward) {
      add(forward_direction(p.out_h, p.kernel_h, p.stride_h, p.padding_h),
          forward_direction(p.out_w, p.kernel_w, p.stride_w, p.padding_w));
    } else {
      for (int i = 0; i < std::min(p.stride_h, p.h); ++i)
        for (int j = 0; j < std::min(p.stride_w, p.w); ++j)
          add(backward_direction(i, p.h, p.kernel_h, p.stride_h, p.padding_h),
              backward_direction(j, p.w, p.kernel_w, p.stride_w, p.padding_w));
    }
  }

  void add(const Direction& rows, const Direction& columns) {
    const int64_t taps = static_cast<int64_t>(rows.taps.size() * columns.taps.size());
    const int64_t pixels = int64_t{images} * rows.count * columns.count;
    parts.push_back({rows, columns, weight_floats, block_count, divide_up(pixels, kPixels)});
    weight_floats += taps * in.channels * out.channels;
    block_count += parts.back().blocks;
  }
  int depth(const Part& part) const {
    return static_cast<int>(part.rows.taps.size() * part.columns.taps.size()) * in.channels;
  }

  int images, kernel_w;
  Image in, out;
  std::vector<Part> parts;
  int64_t weight_floats = 0, block_count = 0;
};

// Copies `floats` values, a multiple of kLanes, as floats.
template <typename T>
void copy(const T* from, float* to, int floats) {
  for (int i = 0; i < floats; i += kLanes) store(to + i, load(from + i));
}

// Calls f(i, image, row, column) for pixels [first, first + count) of a grid of rows x columns a picture.
template <typename F>
void for_each_pixel(int64_t first, int count, int rows, int columns, F f) {
  int column = static_cast<int>(first % columns), row = static_cast<int>(first / columns % rows);
  int64_t image = first / columns / rows;
  for (int i = 0; i < count; ++i) {
    f(i, image, row, column);
    if (++column < columns) continue;
    column = 0;
    if (++row < rows) continue;
    row = 0;
    ++image;
  }
}

// The input that a pixel of an image lies at; `zeros` outside of it.
template <typename T>
const T* pixel(const Image& image, const T* x, int64_t number, int row, int column, const T* zeros) {
  const bool inside = row >= 0 && row < image.height && column >= 0 && column < image.width;
  return inside ? x + ((number * image.height + row) * image.width + column) * image.channels : zeros;
}

// gathered[i][tap][channel]: the inputs that output `first + i` of the part is a sum over.
template <typename T>
void gather(const Correlation& c, const Part& part, const T* x, int64_t first, int count, float* gathered,
            int64_t step) {
  const T* const zeros = worker_zeros<T>(c.in.channels);
  for_each_pixel(first, count, part.rows.count, part.columns.count,
                 [&](int i, int64_t image, int row, int column) {
                   float* to = gathered + i * step;
                   for (const Tap& r : part.rows.taps)
                     for (const Tap& s : part.columns.taps) {
                       copy(pixel(c.in, x, image, row * part.rows.in_step + r.offset,
                                  column * part.columns.in_step + s.offset, zeros),
                            to, c.in.channels);
                       to += c.in.channels;
                     }
                 });
}

// The weights of a part, [tap, in] x [out], a panel of outputs after the other: this one's start.
float* panel_start(const Correlation& c, const Part& part, int panel, float* weights) {
  return weights + part.weights + int64_t{panel} * kPanel * c.depth(part);
}

int panel_width(int channels, int panel) {
  return std::min(kPanel, channels - panel * kPanel);
}

// w: [k, kernel_h, kernel_w, c]. The forward pass sums over c, the backward one over k.
template <typename T>
void pack_weights(const Correlation& c, bool forward, const ConvolutionProblem& p, const T* w,
                  const Part& part, int panel, float* packed) {
  const int width = panel_width(c.out.channels, panel), first = panel * kPanel;
  const int64_t taps = int64_t{p.kernel_h} * p.kernel_w;
  for (const Tap& r : part.rows.taps)
    for (const Tap& s : part.columns.taps) {
      const T* const tap = w + (int64_t{r.index} * p.kernel_w + s.index) * p.c;
      if (forward) {
        for (int in = 0; in < p.c; in += kLanes)
          for (int out = 0; out < width; out += kLanes) {
            Lanes block[kLanes];
            for (int i = 0; i < kLanes; ++i) block[i] = load(tap + (first + out + i) * taps * p.c + in);
            transpose(block);
            for (int i = 0; i < kLanes; ++i) store(packed + int64_t{in + i} * width + out, block[i]);
          }
      } else {
        for (int k = 0; k < p.k; ++k) copy(tap + k * taps * p.c + first, packed + int64_t{k} * width, width);
      }
      packed += int64_t{c.in.channels} * width;
    }
}

// to = alpha from + beta to.
template <typename T>
void blend(float alpha, const float* from, float beta, T* to, int floats) {
  for (int i = 0; i < floats; i += kLanes)
    store(to + i, beta == 0 ? alpha * load(from + i) : alpha * load(from + i) + beta * load(to + i));
}

template <typename T>
void multiply_block(const Correlation& c, const Part& part, int64_t block, float alpha, const T* x,
                    const float* weights, float beta, T* y) {
  const int64_t all = int64_t{c.images} * part.rows.count * part.columns.count, first = block * kPixels;
  const int count = static_cast<int>(std::min<int64_t>(kPixels, all - first)), depth = c.depth(part);
  const int64_t step = depth + kLine;
  float* const gathered = worker_scratch(kPixels * step + kPixels * kPanel);
  float* const sums = gathered + kPixels * step;
  gather(c, part, x, first, count, gathered, step);
  const int panels = static_cast<int>(divide_up(c.out.channels, kPanel));
  if (depth == 0) std::fill(sums, sums + kPixels * kPanel, 0.0f);
  for (int panel = 0; panel < panels; ++panel) {
    const int width = panel_width(c.out.channels, panel);
    const float* const w = weights + part.weights + int64_t{panel} * kPanel * depth;
    for (int from = 0; from < depth; from += kDepth)
      multiply_panel(count, width, std::min(kDepth, depth - from), {gathered + from, step, 1},
                     w + int64_t{from} * width, width, sums, width, from > 0);
    for_each_pixel(
        first, count, part.rows.count, part.columns.count, [&](int i, int64_t image, int row, int column) {
          const int64_t out_row = part.rows.first + int64_t{row} * part.rows.step;
          const int64_t out_column = part.columns.first + int64_t{column} * part.columns.step;
          T* const to = y + ((image * c.out.height + out_row) * c.out.width + out_column) * c.out.channels;
          blend(alpha, sums + int64_t{i} * width, beta, to + panel * kPanel, width);
        });
  }
}

template <typename T>
cudaError_t correlate(Device& device, const ConvolutionProblem& p, float alpha, const T* x, const T* w,
                      float* packed, float beta, T* y) {
  const Correlation c(p);
  const auto panels = static_cast<int>(divide_up(c.out.channels, kPanel));
  const int parts = static_cast<int>(c.parts.size());
  const cudaError_t error = share_each(device, int64_t{parts} * panels, [&](int i) {
    const Part& part = c.parts[static_cast<size_t>(i / panels)];
    pack_weights(c, p.pass == Pass::forward, p, w, part, i % panels,
                 panel_start(c, part, i % panels, packed));
  });
  if (error != cudaSuccess) return error;
  return share_each(device, c.block_count, [&](int i) {
    size_t part = c.parts.size() - 1;
    while (c.parts[part].first_block > i) --part;
    multiply_block(c, c.parts[part], i - c.parts[part].first_block, alpha, x, packed, beta, y);
  });
}

// The gradient of the weights: dw[k][tap, c] is a sum over the pixels of dy, and a product of it with the
// inputs that are gathered for a few panels of columns [tap, c] at a time.
template <typename T>
void filter_panels(const ConvolutionProblem& p, float alpha, const T* x, const T* dy, int begin, int end,
                   float beta, T* dw) {
  const Image in{p.h, p.w, p.c};
  const int width = end - begin;
  const int64_t columns = int64_t{p.kernel_h} * p.kernel_w * p.c;
  const int64_t dy_step = p.k + kLine, x_step = width + kLine, all = int64_t{p.n} * p.out_h * p.out_w;
  float* const gradients = worker_scratch(kFilterPixels * (dy_step + x_step) + int64_t{p.k} * width);
  float* const inputs = gradients + kFilterPixels * dy_step;
  float* const sums = inputs + kFilterPixels * x_step;  // [panel][k][column of the panel]
  const T* const zeros = worker_zeros<T>(p.c);
  for (int64_t first = 0; first < all; first += kFilterPixels) {
    const int count = static_cast<int>(std::min<int64_t>(kFilterPixels, all - first));
    for (int i = 0; i < count; ++i) copy(dy + (first + i) * p.k, gradients + i * dy_step, p.k);
    for_each_pixel(first, count, p.out_h, p.out_w, [&](int i, int64_t image, int row, int column) {
      for (int at = begin; at < end;) {
        const int tap = at / p.c, channel = at % p.c, floats = std::min(p.c - channel, end - at);
        copy(pixel(in, x, image, row * p.stride_h - p.padding_h + tap / p.kernel_w,
                   column * p.stride_w - p.padding_w + tap % p.kernel_w, zeros) +
                 channel,
             inputs + i * x_step + (at - begin), floats);
        at += floats;
      }
    });
    for (int from = 0; from < width; from += kPanel) {
      const int panel = std::min(kPanel, width - from);
      multiply_panel(p.k, panel, count, {gradients, 1, dy_step}, inputs + from, x_step,
                     sums + int64_t{p.k} * from, panel, first > 0);
    }
  }
  for (int k = 0; k < p.k; ++k)
    for (int from = 0; from < width; from += kPanel) {
      const int panel = std::min(kPanel, width - from);
      blend(alpha, sums + int64_t{p.k} * from + int64_t{k} * panel, beta, dw + k * columns + begin + from,
            panel);
    }
}

template <typename T>
cudaError_t filter_gradient(Device& device, const ConvolutionProblem& p, float alpha, const T* x, const T* dy,
                            float beta, T* dw) {
  const int columns = p.kernel_h * p.kernel_w * p.c;
  const int64_t panels = divide_up(columns, kPanel), threads = config().threads;
  const int64_t fitting = std::max<int64_t>(1, kSumFloats / (int64_t{p.k} * kPanel));
  // Groups of panels: a multiple of the threads, and such that a group's sums fit. No sum depends on them.
  const int64_t groups = std::min(panels, divide_up(divide_up(panels, fitting), threads) * threads);
  return share_each(device, groups, [&](int group) {
    const int begin = static_cast<int>(panels * group / groups) * kPanel;
    const int end = std::min(columns, static_cast<int>(panels * (group + 1) / groups) * kPanel);
    filter_panels(p, alpha, x, dy, begin, end, beta, dw);
  });
}

template <typename T>
cudaError_t run(Device& device, const ConvolutionProblem& p, float alpha, const ConvolutionData& data,
                void* workspace, float beta) {
  float* const packed = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(workspace) + 63) / 64 * 64);
  T *const x = static_cast<T*>(data.x), *const w = static_cast<T*>(data.w),
           *const y = static_cast<T*>(data.y);
  switch (p.pass) {
    case Pass::forward:
      return correlate<T>(device, p, alpha, x, w, packed, beta, y);
    case Pass::backward_data:
      return correlate<T>(device, p, alpha, y, w, packed, beta, x);
    default:
      return filter_gradient<T>(device, p, alpha, x, y, beta, w);
  }
}

}  // namespace

bool supports(const ConvolutionProblem& p) {
  return p.activations == Layout::nhwc && p.filter == Layout::nhwc && p.c % 16 == 0 && p.k % 16 == 0;
}

size_t workspace_bytes(const ConvolutionProblem& p) {
  // The packed weights; they are aligned here.
  return p.pass == Pass::backward_filter ? 0 : (p.w_count() + kLine) * sizeof(float);
}

cudaError_t run(Device& device, const ConvolutionProblem& p, float alpha, ConvolutionData data,
                void* workspace, float beta) {
  return p.arithmetic == Arithmetic::float32 ? run<float>(device, p, alpha, data, workspace, beta)
                                             : run<__nv_bfloat16>(device, p, alpha, data, workspace, beta);
}

}  // namespace hostcuda::implicit_gemm

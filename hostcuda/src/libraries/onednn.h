// Everything of oneDNN whose interface differs between versions 2 (Debian 12) and 3 (Debian 13), and how many
// threads it uses. Version 3 has no operation descriptors: a primitive descriptor takes their arguments.
// Source: oneDNN's developer guide for 3.0, "Convolution".
#pragma once

#include <omp.h>

#include <latch>
#include <oneapi/dnnl/dnnl.hpp>
#include <string_view>
#include <thread>
#include <vector>

#include <hostcuda/launch.h>

namespace hostcuda::onednn {

inline const dnnl::engine& cpu() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

// The OpenMP threads that a call may use. Only one where races are looked for: the runtime library of OpenMP
// is not instrumented, so its hand-overs would look like races.
inline int call_threads() {
#if defined(__SANITIZE_THREAD__)
  return 1;
#else
  return threads_per_device();
#endif
}

// Starts as many threads as OpenMP is about to start for the calling thread, and ends them again: it ends the
// whole program where it gets none, while this throws std::system_error.
inline void check_threads_can_be_had(int threads) {
  thread_local int had = 1;
  if (threads <= had) return;
  std::latch all_are_there(1);
  std::vector<std::thread> tried;
  tried.reserve(static_cast<size_t>(threads - 1));
  try {
    while (static_cast<int>(tried.size()) < threads - 1) tried.emplace_back([&] { all_are_there.wait(); });
  } catch (...) {
    all_are_there.count_down();
    for (std::thread& one : tried) one.join();
    throw;
  }
  all_are_there.count_down();
  for (std::thread& one : tried) one.join();
  had = threads;
}

// While one lives, oneDNN on the calling thread uses `threads` threads. Throws std::system_error where they
// cannot be had.
class ThreadScope {
 public:
  explicit ThreadScope(int threads) : before_(omp_get_max_threads()), changed_(before_ != threads) {
    check_threads_can_be_had(threads);
    if (changed_) omp_set_num_threads(threads);
  }
  ~ThreadScope() {
    if (changed_) omp_set_num_threads(before_);
  }
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

 private:
  const int before_;
  const bool changed_;
};

inline dnnl::primitive_attr caller_gives_scratch() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

// oneDNN's plain loops, which take a hundred times as long as its code for a processor.
inline bool is_reference(const dnnl::primitive_desc_base& description) {
  return std::string_view(description.impl_info_str()).starts_with("ref");
}

// x, w, y: the input, weights and output, or their gradients; padding is the same on both sides. A backward
// pass needs to know its forward pass, which has weights where the backward one may have a wider gradient.
struct ConvolutionOperands {
  dnnl::memory::desc x, w, y, forward_w;
  dnnl::memory::dims strides, padding;
};

#if DNNL_VERSION_MAJOR < 3

inline auto forward(const ConvolutionOperands& o, const dnnl::primitive_attr& attributes) {
  return dnnl::convolution_forward::primitive_desc(
      {dnnl::prop_kind::forward_training, dnnl::algorithm::convolution_direct, o.x, o.forward_w, o.y,
       o.strides, o.padding, o.padding},
      attributes, cpu());
}

inline auto backward_data(const ConvolutionOperands& o, const dnnl::primitive_attr& attributes) {
  return dnnl::convolution_backward_data::primitive_desc(
      {dnnl::algorithm::convolution_direct, o.x, o.w, o.y, o.strides, o.padding, o.padding}, attributes,
      cpu(), forward(o, attributes));
}

inline auto backward_weights(const ConvolutionOperands& o, const dnnl::primitive_attr& attributes) {
  return dnnl::convolution_backward_weights::primitive_desc(
      {dnnl::algorithm::convolution_direct, o.x, o.w, o.y, o.strides, o.padding, o.padding}, attributes,
      cpu(), forward(o, attributes));
}

inline auto matmul(const dnnl::memory::desc& left, const dnnl::memory::desc& right,
                   const dnnl::memory::desc& result) {
  return dnnl::matmul::primitive_desc({left, right, result}, caller_gives_scratch(), cpu());
}

#else

inline auto forward(const ConvolutionOperands& o, const dnnl::primitive_attr& attributes) {
  return dnnl::convolution_forward::primitive_desc(cpu(), dnnl::prop_kind::forward_training,
                                                   dnnl::algorithm::convolution_direct, o.x, o.forward_w, o.y,
                                                   o.strides, o.padding, o.padding, attributes);
}

inline auto backward_data(const ConvolutionOperands& o, const dnnl::primitive_attr& attributes) {
  return dnnl::convolution_backward_data::primitive_desc(cpu(), dnnl::algorithm::convolution_direct, o.x, o.w,
                                                         o.y, o.strides, o.padding, o.padding,
                                                         forward(o, attributes), attributes);
}

inline auto backward_weights(const ConvolutionOperands& o, const dnnl::primitive_attr& attributes) {
  return dnnl::convolution_backward_weights::primitive_desc(cpu(), dnnl::algorithm::convolution_direct, o.x,
                                                            o.w, o.y, o.strides, o.padding, o.padding,
                                                            forward(o, attributes), attributes);
}

inline auto matmul(const dnnl::memory::desc& left, const dnnl::memory::desc& right,
                   const dnnl::memory::desc& result) {
  return dnnl::matmul::primitive_desc(cpu(), left, right, result, caller_gives_scratch());
}

#endif

}  // namespace hostcuda::onednn

// A Tensor is a handle to contiguous memory on one device: a shape, an element type, shared storage, and what
// autograd needs to know. Copying the handle shares everything; reshape and slice are views.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/device.h"

namespace lockstep {

// Networks compute in float32 or bfloat16; float16 is only stored, moved and summed over devices.
enum class DType { float32, bfloat16, float16, int32, uint8 };

size_t size_of(DType dtype);
const char* name_of(DType dtype);
[[noreturn]] void throw_not_float(const char* what, DType dtype);

template <typename T>
inline constexpr DType kDType = T::unknown_element_type;
template <>
inline constexpr DType kDType<float> = DType::float32;
template <>
inline constexpr DType kDType<__nv_bfloat16> = DType::bfloat16;
template <>
inline constexpr DType kDType<__half> = DType::float16;
template <>
inline constexpr DType kDType<int32_t> = DType::int32;
template <>
inline constexpr DType kDType<uint8_t> = DType::uint8;

// Calls f with a value of the element type that `dtype` names, where that is a floating-point type, else
// throws; `what` names what is being done.
template <typename F>
auto for_float_type(const char* what, DType dtype, F f) {
  if (dtype == DType::float32) return f(float());
  if (dtype == DType::bfloat16) return f(__nv_bfloat16());
  throw_not_float(what, dtype);
}

// Row-major; activations are [batch, height, width, channels].
using Shape = std::vector<int64_t>;

int64_t element_count(const Shape& shape);
std::string to_string(const Shape& shape);  // "[256, 24, 24, 6]"

struct Node;         // an operation in the autograd graph, core/autograd.h
struct TensorState;  // core/tensor.cc and core/autograd.cc

class Tensor {
 public:
  Tensor() = default;  // undefined: no memory, no shape

  // Memory from the device's pool, not initialised. Throws for negative dimensions.
  static Tensor empty(const Shape& shape, const Device& device, DType dtype = DType::float32);
  static Tensor zeros(const Shape& shape, const Device& device, DType dtype = DType::float32);
  // Copies `values` (as many as the shape holds) to the device and waits for it: they may change afterwards.
  template <typename T>
  static Tensor from_host(const std::vector<T>& values, const Shape& shape, const Device& device);
  // Copies to the host and waits for it.
  template <typename T>
  std::vector<T> to_host() const;
  // The value of a tensor with one float element; waits for it. Where that is NaN, throws for a label that
  // was no class on any device (Device::check_labels).
  float item() const;

  bool defined() const { return state_ != nullptr; }
  // The same for all handles of one tensor, and for no other tensor at the same time; null where undefined.
  const void* identity() const { return state_.get(); }
  const Shape& shape() const;
  int64_t dim(int i) const;  // negative i counts from the end
  int64_t size() const;      // number of elements
  size_t bytes() const;
  DType dtype() const;
  Device device() const;
  // Device memory; throws where T is not the element type. Null for 0 elements.
  template <typename T>
  T* data() const;

  // The same memory under another shape of as many elements; gradients flow through.
  Tensor reshape(const Shape& shape) const;
  // Rows [begin, end) along the first dimension, the same memory; gradients do not flow through: throws for a
  // tensor with a history.
  Tensor slice(int64_t begin, int64_t end) const;
  // The same memory without a history.
  Tensor detach() const;
  // New memory with the same values, without a history: on `device`, which may be this one.
  Tensor copy_to(const Device& device) const;
  // Overwrites this tensor's memory with the values of `source` (same shape and type, any device). The copy
  // is ordered after the work enqueued so far on both devices' streams, and before what comes next on them.
  void copy_from(const Tensor& source) const;
  // Overwrites this tensor's memory with zeros.
  void set_to_zero() const;
  // To be called by whoever overwrites this tensor's memory through data(): backward then refuses to read
  // what forward saw there. A tensor that was just made needs no call, nor does anything that Lockstep itself
  // writes.
  void mark_overwritten() const;

  // True for a leaf that wants a gradient and for everything computed from one.
  bool requires_grad() const;
  // Makes a leaf want a gradient; throws for a tensor that an operation produced.
  Tensor& set_requires_grad(bool on);
  // The gradient that backward() summed here; undefined before. Only leaves have one.
  Tensor grad() const;
  // Sets or (undefined) drops the gradient; the next backward adds to what is set.
  void set_grad(const Tensor& gradient) const;
  // The same with memory that holds zeros: backward may then write a gradient there instead of adding to it.
  void set_zero_grad(const Tensor& zeros) const;
  // True where backward() has added to the gradient since it was set: a parameter that was not used has none.
  bool grad_written() const;

  // A bfloat16 copy that is kept with a float32 tensor; undefined where none is, or the tensor was
  // overwritten since. Whoever overwrites both, as an optimizer does, keeps it again.
  Tensor rounded() const;
  void keep_rounded(const Tensor& copy) const;
  // That copy where nobody else holds it, so that it may be overwritten; also where it is out of date.
  Tensor rounded_to_overwrite() const;

 private:
  friend struct TensorState;
  explicit Tensor(std::shared_ptr<TensorState> state) : state_(std::move(state)) {}
  const TensorState& state() const;
  std::shared_ptr<TensorState> state_;
};

// Throws where a list has one tensor twice: what is done to each would be done to it twice. `what` is who
// asks.
void check_distinct(const char* what, const std::vector<Tensor>& parameters);

}  // namespace lockstep

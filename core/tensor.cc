#include "core/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstring>
#include <unordered_map>

#include "core/autograd.h"
#include "core/peer.h"
#include "core/pool.h"
#include "core/stream.h"
#include "core/tensor_state.h"
#include "kernels/check.h"

namespace lockstep {

size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::uint8:
      return 1;
    case DType::bfloat16:
    case DType::float16:
      return 2;
    default:
      return 4;
  }
}

const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return "float32";
    case DType::bfloat16:
      return "bfloat16";
    case DType::float16:
      return "float16";
    case DType::int32:
      return "int32";
    case DType::uint8:
      return "uint8";
  }
  return "unknown";
}

void throw_not_float(const char* what, DType dtype) {
  throw Error(fmt::format("{}: a {} tensor: use float32 or bfloat16", what, name_of(dtype)));
}

int64_t element_count(const Shape& shape) {
  int64_t count = 1;
  for (const int64_t dim : shape) {
    if (dim < 0)
      throw Error(fmt::format("a tensor of shape {}: dimensions must not be negative", to_string(shape)));
    if (__builtin_mul_overflow(count, dim, &count))
      throw Error(fmt::format("a tensor of shape {}: too many elements", to_string(shape)));
  }
  return count;
}

std::string to_string(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Storage::Storage(const Device& on, size_t bytes) : device(on), memory(on.pool().allocate(bytes)) {}
Storage::~Storage() {
  device.pool().release(memory);
}

const TensorState& Tensor::state() const {
  if (!state_) throw Error("an undefined tensor was used where a value is needed");
  return *state_;
}

Tensor Tensor::empty(const Shape& shape, const Device& device, DType dtype) {
  const int64_t size = element_count(shape);
  auto storage = std::make_shared<Storage>(device, static_cast<size_t>(size) * size_of(dtype));
  return TensorState::wrap(
      {.storage = std::move(storage), .offset = 0, .shape = shape, .size = size, .dtype = dtype});
}

Tensor Tensor::zeros(const Shape& shape, const Device& device, DType dtype) {
  Tensor result = empty(shape, device, dtype);
  result.set_to_zero();
  return result;
}

template <typename T>
Tensor Tensor::from_host(const std::vector<T>& values, const Shape& shape, const Device& device) {
  if (static_cast<int64_t>(values.size()) != element_count(shape))
    throw Error(
        fmt::format("from_host: {} values for a tensor of shape {}", values.size(), to_string(shape)));
  const Tensor result = empty(shape, device, kDType<T>);
  if (result.size() == 0) return result;
  const DeviceGuard guard(device);
  LOCKSTEP_CUDA(cudaMemcpyAsync(result.data<T>(), values.data(), result.bytes(), cudaMemcpyHostToDevice,
                                device.stream()));
  device.synchronize();  // the caller may free or change its values now, wherever the driver reads them from
  return result;
}

template <typename T>
std::vector<T> Tensor::to_host() const {
  std::vector<T> values(static_cast<size_t>(size()));
  if (values.empty()) return values;
  const DeviceGuard guard(device());
  LOCKSTEP_CUDA(
      cudaMemcpyAsync(values.data(), data<T>(), bytes(), cudaMemcpyDeviceToHost, device().stream()));
  device().synchronize();
  return values;
}

float Tensor::item() const {
  if (size() != 1)
    throw Error(fmt::format("item: a tensor of shape {} has not one element", to_string(shape())));
  const float value = to_host<float>()[0];
  if (std::isnan(value)) lockstep::check_labels();  // why a loss is no number
  return value;
}

const Shape& Tensor::shape() const {
  return state().shape;
}

int64_t Tensor::dim(int i) const {
  const int rank = static_cast<int>(shape().size());
  const int index = i < 0 ? i + rank : i;
  if (index < 0 || index >= rank)
    throw Error(fmt::format("dim({}) of a tensor of shape {}", i, to_string(shape())));
  return shape()[static_cast<size_t>(index)];
}

int64_t Tensor::size() const {
  return state().size;
}
size_t Tensor::bytes() const {
  return static_cast<size_t>(size()) * size_of(dtype());
}
DType Tensor::dtype() const {
  return state().dtype;
}
Device Tensor::device() const {
  return state().storage->device;
}

template <typename T>
T* Tensor::data() const {
  if (kDType<T> != dtype())
    throw Error(fmt::format("a tensor of {} and shape {} was read as {}: convert it first", name_of(dtype()),
                            to_string(shape()), name_of(kDType<T>)));
  if (size() == 0) return nullptr;
  return reinterpret_cast<T*>(state().address());
}

template Tensor Tensor::from_host(const std::vector<float>&, const Shape&, const Device&);
template Tensor Tensor::from_host(const std::vector<__nv_bfloat16>&, const Shape&, const Device&);
template Tensor Tensor::from_host(const std::vector<__half>&, const Shape&, const Device&);
template Tensor Tensor::from_host(const std::vector<int32_t>&, const Shape&, const Device&);
template Tensor Tensor::from_host(const std::vector<uint8_t>&, const Shape&, const Device&);
template std::vector<float> Tensor::to_host() const;
template std::vector<__nv_bfloat16> Tensor::to_host() const;
template std::vector<__half> Tensor::to_host() const;
template std::vector<int32_t> Tensor::to_host() const;
template std::vector<uint8_t> Tensor::to_host() const;
template float* Tensor::data() const;
template __nv_bfloat16* Tensor::data() const;
template __half* Tensor::data() const;
template int32_t* Tensor::data() const;
template uint8_t* Tensor::data() const;

Tensor Tensor::reshape(const Shape& to) const {
  if (element_count(to) != size())
    throw Error(fmt::format("reshape: {} has {} elements, {} has {}", to_string(shape()), size(),
                            to_string(to), element_count(to)));
  const TensorState& from = state();
  const Tensor view = TensorState::wrap(
      {.storage = from.storage, .offset = from.offset, .shape = to, .size = from.size, .dtype = from.dtype});
  return record("reshape", view, {*this}, [before = shape()](const Tensor& gradient) {
    return std::vector<Tensor>{gradient.reshape(before)};
  });
}

Tensor Tensor::slice(int64_t begin, int64_t end) const {
  const TensorState& from = state();
  if (from.producer) throw Error("slice: the tensor has a history; detach() it first");
  if (from.shape.empty() || begin < 0 || begin > end || end > from.shape[0])
    throw Error(
        fmt::format("slice: rows {} to {} of a tensor of shape {}", begin, end, to_string(from.shape)));
  Shape rows = from.shape;
  rows[0] = end - begin;
  const int64_t row_size = from.shape[0] == 0 ? 0 : from.size / from.shape[0];
  return TensorState::wrap(
      {.storage = from.storage,
       .offset = from.offset + static_cast<size_t>(begin * row_size) * size_of(from.dtype),
       .shape = rows,
       .size = row_size * rows[0],
       .dtype = from.dtype});
}

Tensor Tensor::detach() const {
  const TensorState& from = state();
  return TensorState::wrap({.storage = from.storage,
                            .offset = from.offset,
                            .shape = from.shape,
                            .size = from.size,
                            .dtype = from.dtype});
}

Tensor Tensor::copy_to(const Device& target) const {
  const Tensor copy = empty(shape(), target, dtype());
  copy.copy_from(*this);
  return copy;
}

void Tensor::copy_from(const Tensor& source) const {
  if (source.shape() != shape() || source.dtype() != dtype())
    throw Error(fmt::format("copy_from: {} {} into {} {}", name_of(source.dtype()), to_string(source.shape()),
                            name_of(dtype()), to_string(shape())));
  if (size() == 0) return;
  mark_overwritten();
  std::byte* destination = state().address();
  const std::byte* origin = source.state().address();
  const cudaStream_t stream = device().stream();
  if (source.device() == device()) {
    const DeviceGuard guard(device());
    LOCKSTEP_CUDA(cudaMemcpyAsync(destination, origin, bytes(), cudaMemcpyDeviceToDevice, stream));
    return;
  }
  // The copy runs on the destination's stream; the source's stream waits for it before it may reuse the
  // memory.
  {
    const DeviceGuard guard(source.device());
    const Event ready;
    ready.record(source.device().stream());
    stream_wait(stream, ready);
  }
  {
    const DeviceGuard guard(device());
    peer_copy(destination, device(), origin, source.device(), bytes(), stream);
    const Event copied;
    copied.record(stream);
    source.device().wait(copied);
  }
}

void Tensor::set_to_zero() const {
  if (size() == 0) return;
  mark_overwritten();
  const DeviceGuard guard(device());
  LOCKSTEP_CUDA(cudaMemsetAsync(state().address(), 0, bytes(), device().stream()));
}

void Tensor::mark_overwritten() const {
  ++state().storage->version;
}

bool Tensor::requires_grad() const {
  return state().requires_grad;
}

Tensor& Tensor::set_requires_grad(bool on) {
  if (state().producer) throw Error("set_requires_grad: only a leaf can choose; detach() the tensor first");
  if (on && dtype() != DType::float32 && dtype() != DType::bfloat16)
    throw Error(fmt::format("set_requires_grad: a {} tensor has no gradient", name_of(dtype())));
  state_->requires_grad = on;
  return *this;
}

Tensor Tensor::grad() const {
  return state().gradient;
}

void Tensor::set_grad(const Tensor& gradient) const {
  if (gradient.defined() && (gradient.shape() != shape() || gradient.dtype() != dtype()))
    throw Error(fmt::format("set_grad: a {} gradient of shape {} for a {} tensor of shape {}",
                            name_of(gradient.dtype()), to_string(gradient.shape()), name_of(dtype()),
                            to_string(shape())));
  if (gradient.defined() && gradient.device() != device())
    throw Error(fmt::format("set_grad: the gradient is on device {}, the tensor on device {}",
                            gradient.device().index(), device().index()));
  (void)state();
  state_->gradient = gradient;
  state_->gradient_written = false;
  state_->gradient_is_zero = false;
  state_->gradient_lent = false;
}

void Tensor::set_zero_grad(const Tensor& zeros) const {
  set_grad(zeros);
  state_->gradient_is_zero = true;
  state_->gradient_foreign_writes = zeros.state().storage->foreign_writes();
}

Tensor Tensor::rounded() const {
  const TensorState& own = state();
  return own.rounded.defined() && own.rounded_version == own.storage->version ? own.rounded : Tensor();
}

void Tensor::keep_rounded(const Tensor& copy) const {
  if (copy.shape() != shape() || copy.dtype() != DType::bfloat16 || copy.device() != device())
    throw Error(fmt::format("keep_rounded: a {} copy of shape {} of a tensor of shape {}",
                            name_of(copy.dtype()), to_string(copy.shape()), to_string(shape())));
  state_->rounded = copy;
  state_->rounded_version = state_->storage->version;
}

Tensor Tensor::rounded_to_overwrite() const {
  const Tensor& copy = state().rounded;
  if (!copy.defined() || copy.state_.use_count() > 1 || copy.state_->storage.use_count() > 1) return {};
  return copy;
}

bool Tensor::grad_written() const {
  return state().gradient_written;
}

void check_distinct(const char* what, const std::vector<Tensor>& parameters) {
  std::unordered_map<const void*, size_t> seen;
  for (size_t i = 0; i < parameters.size(); ++i)
    if (const auto [first, added] = seen.emplace(parameters[i].identity(), i); !added)
      throw Error(
          fmt::format("{}: parameters {} and {} are one tensor: list it once", what, first->second, i));
}

}  // namespace lockstep

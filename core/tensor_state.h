// What is behind a Tensor handle; for core/tensor.cc and core/autograd.cc only.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "core/tensor.h"

namespace lockstep {

// A block of a device's pool, given back when the last view of it is gone.
struct Storage {
  Storage(const Device& on, size_t bytes);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  Device device;
  void* memory;
  std::atomic<uint64_t> version = 0;  // how often the memory was overwritten, through whatever handle
};

struct TensorState {
  std::shared_ptr<Storage> storage;
  size_t offset;  // bytes into the storage
  Shape shape;
  int64_t size;  // elements
  DType dtype;
  bool requires_grad = false;
  std::shared_ptr<Node> producer = nullptr;  // the operation that made it; null for leaves
  Tensor gradient = {};                      // of leaves
  bool gradient_written = false;             // by backward, since it was set

  std::byte* address() const { return static_cast<std::byte*>(storage->memory) + offset; }
  static Tensor wrap(TensorState state) { return Tensor(std::make_shared<TensorState>(std::move(state))); }
  static const std::shared_ptr<TensorState>& of(const Tensor& tensor) { return tensor.state_; }
};

}  // namespace lockstep

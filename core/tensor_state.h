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
  std::atomic<uint64_t> gradients_written = 0;  // how often of that by backward, as a leaf's gradient
  // Times that somebody else wrote.
  uint64_t foreign_writes() const { return version - gradients_written; }
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
  bool gradient_is_zero = false;             // was when it was set, with so many foreign writes
  uint64_t gradient_foreign_writes = 0;
  bool gradient_lent = false;    // to a backward function that writes it in place
  Tensor rounded = {};           // a bfloat16 copy of a leaf, made of its values
  uint64_t rounded_version = 0;  // of the leaf's memory

  std::byte* address() const { return static_cast<std::byte*>(storage->memory) + offset; }
  static Tensor wrap(TensorState state) { return Tensor(std::make_shared<TensorState>(std::move(state))); }
  static const std::shared_ptr<TensorState>& of(const Tensor& tensor) { return tensor.state_; }
};

}  // namespace lockstep

// The one owning handle: CUDA's streams and events and the libraries' contexts are all "create, use,
// destroy".
#pragma once

#include <utility>

namespace lockstep {

// Owns a T and calls kDestroy(T) once, when it still holds one. Move-only. The status that kDestroy returns
// is dropped: a destructor never throws, and at process exit the runtime may be gone already.
template <typename T, auto kDestroy>
class Handle {
 public:
  Handle() = default;
  explicit Handle(T value) : value_(value) {}
  Handle(Handle&& other) noexcept : value_(std::exchange(other.value_, T{})) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  ~Handle() {
    if (value_ != T{}) (void)kDestroy(value_);
  }

  T get() const { return value_; }

 private:
  T value_{};
};

}  // namespace lockstep

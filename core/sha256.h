// SHA-256 over bytes in host memory, and over tensors: a fingerprint to compare two runs by, and a checksum
// that tells a damaged file.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace lockstep {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void update(std::span<const std::byte> bytes);
  void update(const std::string& text);
  // The digest of all bytes so far, 64 hexadecimal digits; to be called once, at the end.
  std::string hex();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

// Over the bytes of all tensors (float32, little-endian) in their order. Waits for the devices.
std::string weights_sha256(const std::vector<Tensor>& parameters);

}  // namespace lockstep

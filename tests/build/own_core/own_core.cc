// Its own core/tensor.h and Lockstep's, in one file.
#include "core/tensor.h"

#include <lockstep/core/device.h>
#include <lockstep/core/tensor.h>
#include <lockstep/parallel/trainer.h>

#include <cstdio>

int main() {
  const auto devices = lockstep::make_devices(2);
  const auto there = lockstep::Tensor::from_host<float>({0, 1, 2}, {3}, devices[0]).copy_to(devices[1]);
  const float ours = there.to_host<float>()[2];
  std::printf("%g\n", static_cast<double>(own_number() + ours));
}

// A program outside Lockstep's tree, built against the installed package: what a user would write.
#include <cstdio>

#include "core/device.h"
#include "core/tensor.h"

int main() {
  const auto devices = lockstep::make_devices(2);
  const auto there = lockstep::Tensor::from_host<float>({1, 2, 3}, {3}, devices[0]).copy_to(devices[1]);
  std::printf("%s\n%g\n", lockstep::device_summary(devices).c_str(), there.to_host<float>()[2]);
}

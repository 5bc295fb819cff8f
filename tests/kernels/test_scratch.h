// What a sum that many blocks share needs, for one test: a workspace with guards, and tickets, which must be
// zeros again afterwards.
#pragma once

#include "kernels/scratch.h"
#include "tests/kernels/device_buffer.h"

namespace lockstep::test {

class TestScratch {
 public:
  explicit TestScratch(size_t bytes) : workspace_(bytes, 0), tickets_(kernels::kTickets, 0u) {}
  operator kernels::SumScratch() const { return {workspace_.data(), tickets_.data()}; }
  // Waits for the device.
  void check() const {
    workspace_.to_host();  // for its guards
    for (const unsigned ticket : tickets_.to_host()) ASSERT_EQ(ticket, 0u);
  }

 private:
  DeviceBuffer<uint8_t> workspace_;
  DeviceBuffer<unsigned> tickets_;
};

}  // namespace lockstep::test

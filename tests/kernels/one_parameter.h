// The list of a single parameter for an optimizer's update, in device memory.
#pragma once

#include <vector>

#include "kernels/update.h"
#include "tests/kernels/device_buffer.h"

namespace lockstep::test {

class OneParameter {
 public:
  OneParameter(const DeviceBuffer<float>& weights, const DeviceBuffer<float>& gradient,
               const DeviceBuffer<float>* first_state = nullptr,
               const DeviceBuffer<float>* second_state = nullptr)
      : chunks_(chunks_of({weights.data(), gradient.data(), first_state ? first_state->data() : nullptr,
                           second_state ? second_state->data() : nullptr, nullptr, 0, false, 1.0f},
                          weights.size())) {}
  kernels::UpdateList list() const { return {chunks_.data(), static_cast<int64_t>(chunks_.size())}; }

 private:
  static std::vector<kernels::UpdateChunk> chunks_of(const kernels::UpdateChunk& whole, size_t size) {
    std::vector<kernels::UpdateChunk> chunks;
    kernels::append_chunks(whole, static_cast<int64_t>(size), chunks);
    return chunks;
  }
  DeviceBuffer<kernels::UpdateChunk> chunks_;
};

}  // namespace lockstep::test

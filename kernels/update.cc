#include "kernels/update.h"

#include <algorithm>

namespace lockstep::kernels {

void append_chunks(const UpdateChunk& whole, int64_t size, std::vector<UpdateChunk>& chunks) {
  constexpr int64_t kChunk = 1 << 13;  // ResNet-18's 11 million parameters are some 1,400 blocks
  const auto aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; };
  for (int64_t begin = 0; begin < size; begin += kChunk) {
    UpdateChunk chunk = whole;
    chunk.weights += begin;
    chunk.gradient += begin;
    if (chunk.first_state != nullptr) chunk.first_state += begin;
    if (chunk.second_state != nullptr) chunk.second_state += begin;
    if (chunk.rounded != nullptr) chunk.rounded += begin;
    chunk.size = static_cast<int32_t>(std::min(kChunk, size - begin));
    chunk.aligned = aligned(chunk.weights) && aligned(chunk.gradient) && aligned(chunk.first_state) &&
                    aligned(chunk.second_state) && aligned(chunk.rounded);
    chunks.push_back(chunk);
  }
}

}  // namespace lockstep::kernels

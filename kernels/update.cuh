// One launch for the update of many parameters, wherever these lie: a block takes a chunk of one of them from
// a list in device memory. What is done to an element is a rule: rule(weight, gradient, state, state,
// decays).
#pragma once

#include "kernels/launch.cuh"
#include "kernels/pack.cuh"
#include "kernels/update.h"

namespace lockstep::kernels {

namespace detail {

// As fibers: see LOCKSTEP_COMPILED_ALONE.
template <typename Rule>
LOCKSTEP_COMPILED_ALONE __device__ void update_one(const Rule& rule, float& weight, float gradient,
                                                   float& first, float& second, float decays) {
  rule(weight, gradient, first, second, decays);
}

// Elements [i, i + kCount) of a chunk; a state that the rule does not have is not touched.
template <int kCount, typename Rule>
__device__ void update_pack(const UpdateChunk& c, int64_t i, const Rule& rule, float factor) {
  const auto load = [](const float* p) {
    if constexpr (kCount == 1)
      return Pack<1>{{*p}};
    else
      return load_pack<kCount>(p);
  };
  const auto store = [](float* p, const Pack<kCount>& pack) {
    if constexpr (kCount == 1)
      *p = pack[0];
    else
      store_pack(p, pack);
  };
  Pack<kCount> weight = load(c.weights + i), first = {}, second = {};
  const Pack<kCount> gradient = load(c.gradient + i);
  if constexpr (Rule::kStates > 0) first = load(c.first_state + i);
  if constexpr (Rule::kStates > 1) second = load(c.second_state + i);
  for (int j = 0; j < kCount; ++j)
    update_one(rule, weight.value[j], gradient[j] * factor, first.value[j], second.value[j], c.decays);
  store(c.weights + i, weight);
  if constexpr (Rule::kStates > 0) store(c.first_state + i, first);
  if constexpr (Rule::kStates > 1) store(c.second_state + i, second);
  if (c.rounded == nullptr) return;
  if constexpr (kCount == 8)
    store_pack(c.rounded + i, weight);
  else
    for (int j = 0; j < kCount; ++j) c.rounded[i + j] = from_float<__nv_bfloat16>(weight[j]);
}

// One thread for all of a chunk: plain loops, which vectorise.
template <typename Rule>
void update_chunk(const UpdateChunk& c, const Rule& from, float factor) {
  const Rule rule = from;
  float* __restrict__ const weights = c.weights;
  const float* __restrict__ const gradient = c.gradient;
  [[maybe_unused]] float* __restrict__ const first_state = c.first_state;
  [[maybe_unused]] float* __restrict__ const second_state = c.second_state;
  const float decays = c.decays;
  const int64_t size = c.size;
  for (int64_t i = 0; i < size; ++i) {
    float weight = weights[i], first = 0, second = 0;
    if constexpr (Rule::kStates > 0) first = first_state[i];
    if constexpr (Rule::kStates > 1) second = second_state[i];
    rule(weight, gradient[i] * factor, first, second, decays);
    weights[i] = weight;
    if constexpr (Rule::kStates > 0) first_state[i] = first;
    if constexpr (Rule::kStates > 1) second_state[i] = second;
  }
  __nv_bfloat16* __restrict__ const rounded = c.rounded;
  if (rounded == nullptr) return;
  for (int64_t i = 0; i < size; ++i) rounded[i] = from_float<__nv_bfloat16>(weights[i]);
}

}  // namespace detail

template <int kThreads, typename Rule>
__global__ void update_kernel(const UpdateChunk* __restrict__ chunks, Rule rule, GradientClip clip) {
  const UpdateChunk c = chunks[blockIdx.x];
  const float factor = clip.factor();
  if constexpr (kThreads == 1) {
    detail::update_chunk(c, rule, factor);
  } else {
    constexpr int kPack = 8;
    const int64_t packed = c.aligned ? c.size / kPack * kPack : 0;
    for (int64_t i : block_stride<kThreads>(packed / kPack))
      detail::update_pack<kPack>(c, i * kPack, rule, factor);
    for (int64_t i : block_stride<kThreads>(c.size - packed))
      detail::update_pack<1>(c, packed + i, rule, factor);
  }
}

template <typename Rule>
void launch_update(const UpdateList& list, const Rule& rule, const GradientClip& clip, LaunchStream stream) {
  if (list.count == 0) return;
  launch_blocks<256>([](auto threads) { return update_kernel<threads(), Rule>; },
                     dim3(static_cast<unsigned>(list.count)), stream, list.chunks, rule, clip);
}

}  // namespace lockstep::kernels

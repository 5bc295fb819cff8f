// What a plan makes of given numbers, computed on the host, one transfer after the other: the oracle for
// whoever carries plans out. It holds for every plan that the checker accepts, and it adds in the order in
// which the executor does, so that the bits agree.
#pragma once

#include <type_traits>
#include <vector>

#include "parallel/collective/plan.h"

namespace lockstep::collective {

// An addition as the kernels do it: in float, rounded to the type.
struct AddInFloat {
  template <typename T>
  T operator()(const T& sum, const T& term) const {
    return static_cast<T>(static_cast<float>(sum) + static_cast<float>(term));
  }
};

// A fused plan: every slice is summed from rank 0 to the last, in float, and rounded once.
template <typename T, typename Combine>
void carry_out_fused(const Plan& plan, std::vector<std::vector<T>>& buffers, const Combine& combine) {
  using Wide = std::conditional_t<std::is_integral_v<T>, T, float>;
  const std::vector<std::vector<T>> before = buffers;
  for (const Transfer& t : plan.transfers) {
    if (t.action == Action::add) continue;  // the copies name the same slices
    for (auto i = static_cast<size_t>(t.slice.begin); i < static_cast<size_t>(t.slice.end); ++i) {
      Wide sum = static_cast<Wide>(before[0][i]);
      for (size_t r = 1; r < before.size(); ++r) sum = combine(sum, static_cast<Wide>(before[r][i]));
      for (const int rank : {t.source, t.destination})
        buffers[static_cast<size_t>(rank)][i] = static_cast<T>(sum);
    }
  }
}

// Carries `plan` out on buffers[rank], each of plan.count elements. `combine(sum, term)` is what the plan's
// additions do.
template <typename T, typename Combine = AddInFloat>
void carry_out(const Plan& plan, std::vector<std::vector<T>>& buffers, const Combine& combine = {}) {
  if (plan.fused) return carry_out_fused(plan, buffers, combine);
  for (const Transfer& t : plan.transfers) {
    const std::vector<T>& source = buffers[static_cast<size_t>(t.source)];
    std::vector<T>& destination = buffers[static_cast<size_t>(t.destination)];
    for (auto i = static_cast<size_t>(t.slice.begin); i < static_cast<size_t>(t.slice.end); ++i)
      destination[i] = t.action == Action::add ? combine(destination[i], source[i]) : source[i];
  }
}

// The same from the ranks' values to what every rank holds in the end.
template <typename T, typename Combine = AddInFloat>
std::vector<std::vector<T>> carried_out(const Plan& plan, std::vector<std::vector<T>> values,
                                        const Combine& combine = {}) {
  carry_out(plan, values, combine);
  return values;
}

}  // namespace lockstep::collective

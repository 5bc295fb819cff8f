// Prefix sums over a group, in the order of ranks.
#pragma once

#include <cooperative_groups/reduce.h>

namespace cooperative_groups {

template <typename T, typename Operation = plus<T>>
T inclusive_scan(const lane_group& group, const T& value, Operation operation = {},
                 const detail::Site& site = detail::Site::current()) {
  T result = value;
  for (unsigned rank = 0, started = 0; rank < group.size(); ++rank) {
    const T other = group.shfl(value, rank, site);
    if (rank > group.thread_rank()) continue;
    result = started != 0 ? operation(result, other) : other;
    started = 1;
  }
  return result;
}

// The first thread gets a T{}.
template <typename T, typename Operation = plus<T>>
T exclusive_scan(const lane_group& group, const T& value, Operation operation = {},
                 const detail::Site& site = detail::Site::current()) {
  const T up_to_here = inclusive_scan(group, value, operation, site);
  const T before = group.shfl_up(up_to_here, 1, site);
  return group.thread_rank() == 0 ? T{} : before;
}

}  // namespace cooperative_groups

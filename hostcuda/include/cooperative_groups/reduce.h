// reduce(group, value, operation): the same result in every thread, combined in the order of ranks.
#pragma once

#include <cooperative_groups.h>

namespace cooperative_groups {

template <typename T = void>
struct plus {
  T operator()(const T& a, const T& b) const { return a + b; }
};
template <typename T = void>
struct less {
  T operator()(const T& a, const T& b) const { return b < a ? b : a; }
};
template <typename T = void>
struct greater {
  T operator()(const T& a, const T& b) const { return a < b ? b : a; }
};
template <typename T = void>
struct bit_and {
  T operator()(const T& a, const T& b) const { return a & b; }
};
template <typename T = void>
struct bit_or {
  T operator()(const T& a, const T& b) const { return a | b; }
};
template <typename T = void>
struct bit_xor {
  T operator()(const T& a, const T& b) const { return a ^ b; }
};

template <typename T, typename Operation>
T reduce(const lane_group& group, const T& value, Operation operation,
         const detail::Site& site = detail::Site::current()) {
  T result = group.shfl(value, 0, site);
  for (unsigned rank = 1; rank < group.size(); ++rank)
    result = operation(result, group.shfl(value, rank, site));
  return result;
}

}  // namespace cooperative_groups

// Short names for the slices of a plan: the pieces between the places where any transfer begins or ends are
// a, b, c and so on, and a slice is named after its pieces.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/collective/plan.h"

namespace lockstep::apps {

class SliceNames {
 public:
  explicit SliceNames(const collective::Plan& plan);

  // Where pieces begin and end, from 0 to the number of elements.
  const std::vector<int64_t>& cuts() const { return cuts_; }
  size_t pieces() const { return cuts_.size() - 1; }
  // "a", "bc", "a-h"; piece 26 is "a1".
  std::string name(const collective::Slice& slice) const;
  // A colour, "hsl(200, 70%, 40%)", by where the middle of the slice lies.
  std::string colour(const collective::Slice& slice) const;

 private:
  std::vector<int64_t> cuts_;
};

}  // namespace lockstep::apps

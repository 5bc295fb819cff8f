// The algorithm that docs/allreduce.md writes: built as it stands on the page, proved, and run.
#include <gtest/gtest.h>

#include "parallel/collective/allreduce.h"
#include "parallel/collective/serial.h"
#include "tests/parallel/buffers.h"
#include "tests/parallel/violation.h"

namespace lockstep::collective {

Plan page_algorithm(int ranks, int64_t count);  // the page's

namespace {

TEST(OwnAlgorithm, IsProvedAndRuns) {
  for (int n = 1; n <= 33; ++n)
    for (const int64_t count : {0, 1, 1001})
      EXPECT_EQ(violation(page_algorithm(n, count)), "") << n << " ranks";
  for (const int n : {1, 2, 3, 8}) {
    const Values values = small_integers(n, 1001);
    const Buffers buffers(make_devices(n), values);
    allreduce(buffers.data(), page_algorithm);
    EXPECT_TRUE(buffers.all_hold(sum_of(values))) << n << " ranks";
    EXPECT_TRUE(buffers.all_hold(carried_out(page_algorithm(n, 1001), values).front())) << n << " ranks";
  }
}

}  // namespace
}  // namespace lockstep::collective

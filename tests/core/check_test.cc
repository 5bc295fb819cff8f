// What a failed check says: the place within the project, and nothing of the machine that it was built on.
#include <gtest/gtest.h>

#include "kernels/check.h"
#include "tests/error_of.h"

namespace lockstep {
namespace {

TEST(Check, NamesThePlaceWithinTheProject) {
  const std::string said = error_of([] { LOCKSTEP_CUDA(cudaSetDevice(-1)); });
  EXPECT_EQ(said.find("cudaSetDevice(-1) failed: invalid device ordinal (cudaErrorInvalidDevice), device "),
            0U);
  EXPECT_NE(said.find(", tests/core/check_test.cc:"), std::string::npos) << said;
}

}  // namespace
}  // namespace lockstep

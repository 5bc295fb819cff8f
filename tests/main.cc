// The main function of every test program: prints at the end how many tests were skipped, so that a run
// that tested nothing cannot look like one that passed.
#include <gtest/gtest.h>

#include <cstdio>

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const int status = RUN_ALL_TESTS();
  const int skipped = testing::UnitTest::GetInstance()->skipped_test_count();
  if (skipped > 0) std::printf("%d skipped (each says why above)\n", skipped);
  return status;
}

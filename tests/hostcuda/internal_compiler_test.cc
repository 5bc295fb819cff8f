// Constants are what was written: g++ 12.2 for AVX-512 fills 32 or 64 bytes with the first eight where the
// rest of those that differ is 0, unless cmake/LockstepCompile.cmake prevents it.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <sstream>
#include <string>

namespace {

// Text is no constant of the kind.
template <typename T, size_t n>
std::string text(const T (&values)[n]) {
  std::ostringstream out;
  for (const T& value : values) out << value;
  return out.str();
}

// Each copies a constant, and is not seen through.
[[gnu::noipa]] void copy_integers(int64_t* to) {
  const int64_t values[] = {1, 1, 0, 0};
  std::memcpy(to, values, sizeof values);
}
[[gnu::noipa]] void copy_floats(float* to) {
  const float values[] = {2, 3, 2, 3, 2, 3, 0, 0};
  std::memcpy(to, values, sizeof values);
}
[[gnu::noipa]] void copy_64_bytes(int64_t* to) {
  const int64_t values[] = {3, 3, 3, 3, 0, 0, 0, 0};
  std::memcpy(to, values, sizeof values);
}

}  // namespace

TEST(Compiler, ConstantsThatEndWithZerosAreWhatWasWritten) {
  int64_t four[4], eight[8];
  float floats[8];
  copy_integers(four);
  copy_64_bytes(eight);
  copy_floats(floats);
  EXPECT_EQ(text(four), "1100");
  EXPECT_EQ(text(eight), "33330000");
  EXPECT_EQ(text(floats), "23232300");
}

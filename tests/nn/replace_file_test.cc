// Replacing a file: readers see the old content or the new one, and a failure leaves the old one and no
// other.
#include "nn/io/replace_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <span>
#include <thread>
#include <vector>

#include "tests/full_disk.h"
#include "tests/nn/idx_files.h"

namespace lockstep::data {
namespace {

void replace_with(const std::filesystem::path& path, const Bytes& first, const Bytes& second = {}) {
  const std::vector<std::span<const std::byte>> parts = {std::as_bytes(std::span(first)),
                                                         std::as_bytes(std::span(second))};
  replace_file(path, parts);
}

Bytes content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

int64_t files_in(const TemporaryFolder& folder) {
  const std::filesystem::directory_iterator files(folder.path());
  return std::distance(begin(files), end(files));
}

TEST(ReplaceFile, WritesThePartsOneAfterTheOther) {
  const TemporaryFolder folder;
  const auto path = folder.write("x", {9, 9, 9, 9});
  replace_with(path, {1, 2}, {3});
  EXPECT_EQ(content_of(path), (Bytes{1, 2, 3}));
  replace_with(path, {});
  EXPECT_EQ(content_of(path), Bytes{});
  EXPECT_EQ(files_in(folder), 1);
}

TEST(ReplaceFile, TakesANameWithoutAFolder) {
  const TemporaryFolder folder;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  replace_with("x", {1});
  std::filesystem::current_path(before);
  EXPECT_EQ(content_of(folder.path() / "x"), Bytes{1});
}

TEST(ReplaceFile, NamesAPlaceThatCannotBeWritten) {
  const TemporaryFolder folder;
  const auto missing = folder.path() / "none" / "x";
  EXPECT_EQ(error_of([&] { replace_with(missing, {1}); }),
            missing.string() + ": cannot write: No such file or directory");
  const auto occupied = folder.path() / "folder";
  std::filesystem::create_directory(occupied);
  EXPECT_EQ(error_of([&] { replace_with(occupied, {1}); }),
            occupied.string() + ": cannot write: Is a directory");
  EXPECT_EQ(files_in(folder), 1) << "the folder, and no temporary file beside it";
}

TEST(ReplaceFile, LeavesTheOldFileAndNoOtherWhereTheDiskIsFull) {
  const TemporaryFolder folder;
  const auto path = folder.write("x", {1, 2, 3});
  {
    const FileSizeLimit limit(1 << 16);
    EXPECT_EQ(error_of([&] { replace_with(path, Bytes(1 << 20)); }),
              path.string() + ": cannot write: File too large");
  }
  EXPECT_EQ(files_in(folder), 1);
  EXPECT_EQ(content_of(path), (Bytes{1, 2, 3}));
}

TEST(ReplaceFile, OverwritesWhatAKilledProcessLeft) {
  const TemporaryFolder folder;
  folder.write("x." + std::to_string(getpid()) + ".partial", Bytes(1000));
  replace_with(folder.path() / "x", {1});
  EXPECT_EQ(content_of(folder.path() / "x"), Bytes{1});
  EXPECT_EQ(files_in(folder), 1);
}

TEST(ReplaceFile, ShowsReadersTheOldContentOrTheNewOneAndNothingBetween) {
  constexpr size_t kSize = 1 << 20;
  const TemporaryFolder folder;
  const auto path = folder.path() / "x";
  replace_with(path, Bytes(kSize, 0), Bytes(kSize, 0));
  std::atomic<bool> done = false;
  std::jthread writer([&] {
    for (uint8_t value = 1; value <= 30; ++value)
      replace_with(path, Bytes(kSize, value), Bytes(kSize, value));
    done = true;
  });
  while (!done) {
    const Bytes content = content_of(path);
    ASSERT_EQ(content.size(), 2 * kSize);
    ASSERT_EQ(std::count(content.begin(), content.end(), content[0]), 2 * kSize);
  }
  writer.join();
  EXPECT_EQ(content_of(path)[0], 30);
}

}  // namespace
}  // namespace lockstep::data

// Checkpoints of a made-up model in a folder of their own, for tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>

#include "nn/io/checkpoint.h"
#include "tests/nn/idx_files.h"

namespace lockstep::nn {

namespace fs = std::filesystem;
using data::Bytes;
using data::HostTensor;

inline HostTensor tensor(const std::string& name, const std::vector<float>& values) {
  HostTensor result{.name = name,
                    .dtype = data::StoredType::f32,
                    .shape = {static_cast<int64_t>(values.size())},
                    .bytes = std::vector<std::byte>(values.size() * sizeof(float))};
  std::memcpy(result.bytes.data(), values.data(), result.bytes.size());
  return result;
}

inline Checkpoint checkpoint(int64_t step) {
  const auto s = static_cast<float>(step);
  HostTensor draws{.name = "drop.step", .dtype = data::StoredType::i64, .shape = {}, .bytes = {}};
  draws.bytes.resize(sizeof(int64_t), std::byte{3});
  return {
      .step = step,
      .weights = {tensor("fc.weight", {s, 2, 3}), tensor("fc.bias", {-s})},
      .model = {{"model", "small"}, {"variant", "a \"quoted\" one"}},
      .optimizer = {tensor("fc.weight.velocity", {s, s, s})},
      .replicas = {{draws, tensor("norm.running_mean", {s})}, {draws, tensor("norm.running_mean", {s + 1})}},
      .run = {{"epoch", "3"}, {"option.--lr", "0.1"}, {"loss", "1.5000000000000002"}}};
}

class CheckpointFolder : public testing::Test {
 protected:
  void save(std::initializer_list<int64_t> steps, int64_t keep = 10) const {
    CheckpointWriter writer(path(), keep);
    for (const int64_t step : steps) writer.save(checkpoint(step));
  }

  fs::path path() const { return folder_.path() / "run" / "checkpoints"; }

  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& file : fs::directory_iterator(path())) names.push_back(file.path().filename().string());
    std::ranges::sort(names);
    return names;
  }

  static Bytes content_of(const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  static void put(const fs::path& file, const Bytes& bytes) {
    std::ofstream out(file, std::ios::binary);
    out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    ASSERT_TRUE(out.flush());
  }

  // In place: a file that is cut off and written anew is flushed to the disk by some file systems.
  static void flip(const fs::path& file, size_t bit) {
    std::fstream both(file, std::ios::binary | std::ios::in | std::ios::out);
    const auto at = static_cast<std::streamoff>(bit / 8);
    const int before = both.seekg(at).get();
    both.seekp(at).put(static_cast<char>(before ^ (1 << bit % 8)));
    ASSERT_TRUE(both.flush());
  }

  // The newest of the checkpoints 1 and 2 is refused with a line that names `file` and says `reason`.
  void expect_refused(const fs::path& file, const std::string& reason) const {
    const FoundCheckpoint found = newest_checkpoint(path());
    EXPECT_EQ(found.checkpoint, checkpoint(1));
    ASSERT_EQ(found.refused.size(), 1U);
    EXPECT_NE(found.refused[0].find(file.string()), std::string::npos) << found.refused[0];
    EXPECT_NE(found.refused[0].find(reason), std::string::npos) << found.refused[0];
    EXPECT_EQ(found.refused[0].find('\n'), std::string::npos) << found.refused[0];
  }

  data::TemporaryFolder folder_;
};

}  // namespace lockstep::nn

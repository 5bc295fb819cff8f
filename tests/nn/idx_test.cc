// The IDX reader: what it reads, and that every kind of bad file is one exact line and never more than that.
#include "nn/data/idx.h"

#include <sys/stat.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/nn/idx_files.h"

namespace lockstep::data {
namespace {

Bytes counting(size_t n) {
  Bytes values(n);
  for (size_t i = 0; i < n; ++i) values[i] = static_cast<uint8_t>(i * 7 + i / 256);
  return values;
}

Bytes images_file(uint32_t rows) {
  return idx_header(0x803, {rows, 4, 5}) + counting(size_t{rows} * 20);
}

// What read_idx says about a file of these bytes, after the file's name and ": ".
std::string complaint(const Bytes& bytes, int rank = 3) {
  const TemporaryFolder folder;
  const auto path = folder.write("x.gz", bytes);
  const std::string message = error_of([&] { read_idx(path, rank); });
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  const std::string start = path.string() + ": ";
  EXPECT_EQ(message.substr(0, start.size()), start);
  return message.substr(std::min(start.size(), message.size()));
}

TEST(ReadIdx, ReadsPlainAndPackedFilesAlikeWhateverTheirName) {
  const TemporaryFolder folder;
  const Bytes file = images_file(3);
  for (const auto& path : {folder.write("plain", file), folder.write("plain.gz", file),
                           folder.write("packed", gzip(file)), folder.write("packed.gz", gzip(file))}) {
    SCOPED_TRACE(path.string());
    const IdxArray array = read_idx(path, 3);
    EXPECT_EQ(array.shape, (std::vector<int64_t>{3, 4, 5}));
    EXPECT_EQ(array.values, counting(60));
  }
}

TEST(ReadIdx, ReadsLabels) {
  const TemporaryFolder folder;
  const IdxArray array = read_idx(folder.write("labels", idx_header(0x801, {3}) + Bytes{1, 2, 3}), 1);
  EXPECT_EQ(array.shape, std::vector<int64_t>{3});
  EXPECT_EQ(array.values, (Bytes{1, 2, 3}));
}

TEST(ReadIdx, ReadsFilesLargerThanItsBuffersAndTakesNoMoreMemoryThanTheValues) {
  const TemporaryFolder folder;
  const Bytes file = images_file(150'001);  // 3 MB: several steps of the vector, the last one odd
  for (const auto& path : {folder.write("plain", file), folder.write("packed", gzip(file))}) {
    const IdxArray array = read_idx(path, 3);
    EXPECT_TRUE(array.values == counting(150'001 * 20)) << path;
    EXPECT_EQ(array.values.capacity(), array.values.size());
  }
}

TEST(ReadIdx, ReadsAGzipFileOfSeveralMembers) {
  const TemporaryFolder folder;
  const Bytes file = images_file(3);
  const auto middle = file.begin() + 21;
  const auto path = folder.write("two", gzip({file.begin(), middle}) + gzip({middle, file.end()}));
  EXPECT_EQ(read_idx(path, 3).values, counting(60));
}

TEST(ReadIdx, NamesAFileThatCannotBeRead) {
  const TemporaryFolder folder;
  const std::string here = folder.path().string();
  EXPECT_EQ(error_of([&] { read_idx(folder.path() / "none", 3); }),
            here + "/none: cannot open: No such file or directory");
  EXPECT_EQ(error_of([&] { read_idx(folder.path(), 3); }),
            here + ": found a directory, expected a regular file");
  ASSERT_EQ(mkfifo((folder.path() / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(error_of([&] { read_idx(folder.path() / "fifo", 3); }),
            here + "/fifo: found a FIFO, expected a regular file");
}

TEST(ReadIdx, NamesAnEmptyFile) {
  EXPECT_EQ(complaint({}), "offset 0: found an empty file, expected an IDX file");
  EXPECT_EQ(complaint(gzip({})), "offset 0: found the end of the file, expected a magic number of 4 bytes");
}

TEST(ReadIdx, NamesAWrongMagicNumber) {
  const auto with = [](uint32_t magic) { return complaint(idx_header(magic, {1, 2, 2}) + counting(4)); };
  const std::string wanted = ", expected 0x00000803 (images)";
  EXPECT_EQ(with(0x801), "offset 0: found magic 0x00000801 (labels)" + wanted);
  EXPECT_EQ(with(0xd03), "offset 0: found magic 0x00000d03 (float32, rank 3)" + wanted);
  EXPECT_EQ(with(0x804), "offset 0: found magic 0x00000804 (unsigned bytes, rank 4)" + wanted);
  EXPECT_EQ(with(0x3c68746d), "offset 0: found magic 0x3c68746d (not an IDX file)" + wanted);
  EXPECT_EQ(complaint(gzip(images_file(1)), 1),
            "offset 0: found magic 0x00000803 (images), expected 0x00000801 (labels)");
}

TEST(ReadIdx, NamesTheOffsetWhereAPlainFileIsCutShort) {
  const Bytes file = images_file(3);
  const auto cut = [&](size_t n) { return complaint({file.begin(), file.begin() + static_cast<long>(n)}); };
  EXPECT_EQ(cut(3), "offset 3: found the end of the file, expected a magic number of 4 bytes");
  EXPECT_EQ(cut(4), "offset 4: found the end of the file, expected dimension 1 of 3");
  EXPECT_EQ(cut(15), "offset 15: found the end of the file, expected dimension 3 of 3");
  EXPECT_EQ(cut(16), "offset 16: found the end of the file, expected 76 bytes");
  EXPECT_EQ(cut(75), "offset 75: found the end of the file, expected 76 bytes");
}

TEST(ReadIdx, NamesTheOffsetWhereWhatWasPackedIsCutShort) {
  const Bytes file = images_file(3);
  EXPECT_EQ(complaint(gzip({file.begin(), file.begin() + 70})),
            "offset 70: found the end of the file, expected 76 bytes");
}

TEST(ReadIdx, RefusesEveryTruncationOfAGzipStream) {
  const Bytes packed = gzip(images_file(3));
  for (size_t n = 2; n < packed.size(); ++n)
    EXPECT_EQ(
        complaint({packed.begin(), packed.begin() + static_cast<long>(n)}),
        "gzip offset " + std::to_string(n) + ": found the end of the file, expected more of the gzip stream");
}

TEST(ReadIdx, NamesDamageInAGzipStream) {
  Bytes packed = gzip(images_file(3));
  Bytes wrong_method = packed;
  wrong_method[2] = 7;
  EXPECT_NE(complaint(wrong_method).find("found damage (unknown compression method), expected a gzip stream"),
            std::string::npos);
  packed[packed.size() - 8] ^= 1;  // the checksum
  EXPECT_NE(complaint(packed).find("found damage (incorrect data check), expected a gzip stream"),
            std::string::npos);
}

TEST(ReadIdx, RefusesBytesAfterTheEnd) {
  const Bytes file = images_file(3);
  const Bytes more = {0};
  EXPECT_EQ(complaint(file + more), "offset 76: found more bytes, expected the end of the file");
  EXPECT_EQ(complaint(gzip(file + more)), "offset 76: found more bytes, expected the end of the file");
  EXPECT_EQ(complaint(gzip(file) + more),
            "gzip offset " + std::to_string(gzip(file).size()) +
                ": found bytes after the gzip stream, expected the end of the file");
}

TEST(ReadIdx, RefusesAbsurdDimensionsBeforeItTakesMemoryForThem) {
  const auto with = [](uint32_t a, uint32_t b, uint32_t c) {
    return complaint(gzip(idx_header(0x803, {a, b, c}) + counting(100)));
  };
  const std::string limit = " (at most 1073741824 values in all)";
  EXPECT_EQ(with(0, 28, 28), "offset 4: found dimension 1 of 3: 0, expected 1 to 1073741824" + limit);
  EXPECT_EQ(with(2, 0, 28), "offset 8: found dimension 2 of 3: 0, expected 1 to 536870912" + limit);
  EXPECT_EQ(with(0xffffffff, 1, 1),
            "offset 4: found dimension 1 of 3: 4294967295, expected 1 to 1073741824" + limit);
  EXPECT_EQ(with(65536, 65536, 65536),
            "offset 8: found dimension 2 of 3: 65536, expected 1 to 16384" + limit);
  // Within the limit: memory is taken as bytes arrive, and they soon stop arriving.
  EXPECT_EQ(with(1024, 1024, 1024), "offset 116: found the end of the file, expected 1073741840 bytes");
}

// Damaged files of all kinds: never a crash (the sanitizers watch), never another exception, and never a
// silently different result: what is read has the size that the header gives.
TEST(ReadIdx, SurvivesRandomDamage) {
  const unsigned seed = 20240611;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const auto below = [&](size_t n) { return static_cast<size_t>(random()) % n; };
  const TemporaryFolder folder;
  int refused = 0, read = 0;
  for (int round = 0; round < 4000; ++round) {
    Bytes bytes = images_file(static_cast<uint32_t>(1 + below(40)));
    const bool damage_before_packing = below(2) == 0;
    if (!damage_before_packing && below(2) == 0) bytes = gzip(bytes);
    for (size_t times = 1 + below(4); times > 0 && !bytes.empty(); --times) {
      const size_t at = below(below(2) == 0 ? std::min<size_t>(bytes.size(), 24) : bytes.size());
      const auto place = bytes.begin() + static_cast<long>(at);
      switch (below(4)) {
        case 0:
          *place = static_cast<uint8_t>(random());
          break;
        case 1:
          *place ^= static_cast<uint8_t>(1U << below(8));
          break;
        case 2:
          bytes.erase(place, bytes.end() - static_cast<long>(below(bytes.size() - at)));
          break;
        case 3:
          bytes.insert(place, 1 + below(9), static_cast<uint8_t>(random()));
          break;
      }
    }
    if (damage_before_packing) bytes = gzip(bytes);
    const auto path = folder.write("damaged", bytes);
    try {
      const IdxArray array = read_idx(path, 3);
      int64_t count = 1;
      for (const int64_t size : array.shape) count *= size;
      ASSERT_EQ(array.shape.size(), 3U) << "round " << round;
      ASSERT_EQ(static_cast<int64_t>(array.values.size()), count) << "round " << round;
      ++read;
    } catch (const Error& error) {
      ASSERT_EQ(std::string(error.what()).rfind(path.string() + ": ", 0), 0U) << error.what();
      ++refused;
    }
  }
  // Damage among the values alone cannot be noticed in a plain file, so both must occur.
  EXPECT_GT(refused, 1000);
  EXPECT_GT(read, 100);
}

}  // namespace
}  // namespace lockstep::data

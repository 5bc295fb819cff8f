// Fashion-MNIST: where it is looked for, what is checked, and the constants against the real set.
#include "nn/data/fashion_mnist.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>

#include "tests/nn/idx_files.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

const std::string kTrainImages = "train-images-idx3-ubyte", kTrainLabels = "train-labels-idx1-ubyte",
                  kTestImages = "t10k-images-idx3-ubyte", kTestLabels = "t10k-labels-idx1-ubyte";

Bytes images(uint32_t rows, uint8_t value) {
  return idx_header(0x803, {rows, 28, 28}) + Bytes(size_t{rows} * 784, value);
}

Bytes labels(const Bytes& values) {
  return idx_header(0x801, {static_cast<uint32_t>(values.size())}) + values;
}

// A small complete set: 5 training rows (packed) and 2 test rows (plain).
void write_set(const TemporaryFolder& folder) {
  folder.write(kTrainImages + ".gz", gzip(images(5, 11)));
  folder.write(kTrainLabels + ".gz", gzip(labels({0, 9, 1, 8, 2})));
  folder.write(kTestImages, images(2, 22));
  folder.write(kTestLabels, labels({3, 4}));
}

// Sets LOCKSTEP_DATA and the current directory for one test, and puts both back.
class Surroundings {
 public:
  Surroundings(const std::string& variable, const fs::path& directory) : directory_(fs::current_path()) {
    if (const char* value = std::getenv("LOCKSTEP_DATA")) variable_ = value;
    setenv("LOCKSTEP_DATA", variable.c_str(), 1);
    fs::current_path(directory);
  }
  ~Surroundings() {
    if (variable_)
      setenv("LOCKSTEP_DATA", variable_->c_str(), 1);
    else
      unsetenv("LOCKSTEP_DATA");
    fs::current_path(directory_);
  }
  Surroundings(const Surroundings&) = delete;
  Surroundings& operator=(const Surroundings&) = delete;

 private:
  std::optional<std::string> variable_;
  fs::path directory_;
};

TEST(LoadFashionMnist, ReadsAllFourFilesPlainOrPacked) {
  const TemporaryFolder folder;
  write_set(folder);
  const FashionMnist set = load_fashion_mnist(folder.path());
  EXPECT_EQ(set.train.rows, 5);
  EXPECT_EQ(set.train.height, 28);
  EXPECT_EQ(set.train.width, 28);
  EXPECT_EQ(set.train.images, Bytes(5 * 784, 11));
  EXPECT_EQ(set.train.labels, (Bytes{0, 9, 1, 8, 2}));
  EXPECT_EQ(set.test.rows, 2);
  EXPECT_EQ(set.test.images, Bytes(2 * 784, 22));
  EXPECT_EQ(set.test.labels, (Bytes{3, 4}));
}

TEST(LoadFashionMnist, LimitsTheTrainingRowsOnly) {
  const TemporaryFolder folder;
  write_set(folder);
  const FashionMnist set = load_fashion_mnist(folder.path(), 3);
  EXPECT_EQ(set.train.rows, 3);
  EXPECT_EQ(set.train.images.size(), 3U * 784);
  EXPECT_EQ(set.train.labels, (Bytes{0, 9, 1}));
  EXPECT_EQ(set.test.rows, 2);
  for (const int64_t limit : {-1, 0, 6})
    EXPECT_EQ(error_of([&] { load_fashion_mnist(folder.path(), limit); }),
              "load_fashion_mnist: asked for the first " + std::to_string(limit) +
                  " training rows, expected 1 to 5");
}

TEST(LoadFashionMnist, RefusesImagesAndLabelsThatDifferInNumber) {
  const TemporaryFolder folder;
  write_set(folder);
  const auto path = folder.write(kTestLabels, labels({3, 4, 5}));
  EXPECT_EQ(error_of([&] { load_fashion_mnist(folder.path()); }),
            path.string() + ": offset 4: found 3 labels, expected 2, the number of images in " +
                (folder.path() / kTestImages).string());
}

TEST(LoadFashionMnist, ComparesShapesBeforeItReadsValues) {
  const TemporaryFolder folder;
  write_set(folder);
  // Nothing follows the header: whoever reads values says that they are missing.
  auto path = folder.write(kTestLabels, idx_header(0x801, {1 << 28}));
  EXPECT_EQ(error_of([&] { load_fashion_mnist(folder.path()); }),
            path.string() + ": offset 4: found 268435456 labels, expected 2, the number of images in " +
                (folder.path() / kTestImages).string());
  path = folder.write(kTrainImages, idx_header(0x803, {2, 1 << 14, 1 << 14}));
  EXPECT_EQ(error_of([&] { load_fashion_mnist(folder.path()); }),
            path.string() + ": offset 8: found images of 16384 x 16384, expected 28 x 28");
}

TEST(LoadFashionMnist, RefusesALabelOutsideTheClasses) {
  const TemporaryFolder folder;
  write_set(folder);
  const auto path = folder.write(kTrainLabels + ".gz", labels({0, 9, 1, 10, 255}));
  EXPECT_EQ(error_of([&] { load_fashion_mnist(folder.path()); }),
            path.string() + ": offset 11: found label 10 at index 3, expected 0 to 9");
}

TEST(LoadFashionMnist, RefusesImagesOfAnotherSize) {
  const TemporaryFolder folder;
  write_set(folder);
  const auto path = folder.write(kTestImages, idx_header(0x803, {2, 32, 32}) + Bytes(2048, 0));
  EXPECT_EQ(error_of([&] { load_fashion_mnist(folder.path()); }),
            path.string() + ": offset 8: found images of 32 x 32, expected 28 x 28");
}

TEST(FindFashionMnist, TakesTheArgumentThenTheVariableThenTheDataFolder) {
  const TemporaryFolder argument, variable, directory;
  write_set(argument);
  write_set(variable);
  const Surroundings with_variable(variable.path().string(), directory.path());
  EXPECT_EQ(find_fashion_mnist(argument.path().string()), argument.path());
  EXPECT_EQ(find_fashion_mnist(""), variable.path());

  const Surroundings without_variable("", directory.path());
  fs::create_directories(directory.path() / "data");
  fs::create_directory_symlink(argument.path(), directory.path() / "data/fashion-mnist");
  EXPECT_EQ(find_fashion_mnist(""), "data/fashion-mnist");
}

TEST(FindFashionMnist, DoesNotFallThroughFromAFolderAskedForByName) {
  const TemporaryFolder complete, broken;
  write_set(complete);
  write_set(broken);
  fs::remove(broken.path() / kTestLabels);
  const std::string missing =
      broken.path().string() + ": found neither " + kTestLabels + " nor " + kTestLabels + ".gz";
  {
    const Surroundings variable_complete(complete.path().string(), complete.path());
    EXPECT_EQ(error_of([&] { find_fashion_mnist(broken.path().string()); }), missing);
    EXPECT_EQ(error_of([&] { find_fashion_mnist("/no/such/folder"); }),
              "/no/such/folder: not a folder (asked for by --data-dir)");
  }
  const Surroundings variable_broken(broken.path().string(), complete.path());
  EXPECT_EQ(error_of([&] { find_fashion_mnist(""); }), missing);
}

TEST(FindFashionMnist, TakesTheFirstUsualFolderThatIsComplete) {
  const TemporaryFolder complete, broken, nothing;
  write_set(complete);
  write_set(broken);
  fs::remove(broken.path() / kTestLabels);
  const Surroundings none("", nothing.path());
  const std::array folders = {broken.path().c_str(), complete.path().c_str()};
  EXPECT_EQ(find_fashion_mnist("", folders), complete.path());
}

TEST(FindFashionMnist, TellsHowToGetTheSetWhereNoFolderHasIt) {
  const TemporaryFolder nothing;
  const Surroundings none("", nothing.path());
  const std::array folders = {"data/fashion-mnist", "/no/such/folder"};
  const std::string message = error_of([&] { find_fashion_mnist("", folders); });
  EXPECT_EQ(message.substr(0, message.find('\n')),
            "Fashion-MNIST: not found in data/fashion-mnist or /no/such/folder: install the package "
            "dataset-fashion-mnist (Debian, Ubuntu), or put these four files, plain or as .gz, into "
            "data/fashion-mnist or a folder named by --data-dir or LOCKSTEP_DATA");
  for (const std::string& name : {kTrainImages, kTrainLabels, kTestImages, kTestLabels})
    EXPECT_NE(message.find("\n  " + name), std::string::npos) << message;
}

// The real set, where it is installed: its size, its labels, and the constants recomputed from its bytes.
TEST(FashionMnistConstants, AreThoseOfTheTrainingPixels) {
  fs::path folder;
  try {
    folder = find_fashion_mnist("");
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  const FashionMnist set = load_fashion_mnist(folder);
  ASSERT_EQ(set.train.rows, 60000);
  ASSERT_EQ(set.test.rows, 10000);
  for (const ImageData* part : {&set.train, &set.test})
    for (int c = 0; c < kFashionMnistClasses; ++c)
      EXPECT_EQ(std::ranges::count(part->labels, c), part->rows / kFashionMnistClasses) << "class " << c;

  uint64_t sum = 0, squares = 0;  // exact: at most 47e6 * 255^2 = 3.1e12
  for (const uint64_t v : set.train.images) sum += v, squares += v * v;
  const double n = static_cast<double>(set.train.images.size());
  const double mean = static_cast<double>(sum) / n;
  const double variance = static_cast<double>(squares) / n - mean * mean;
  EXPECT_FLOAT_EQ(kFashionMnistMean, static_cast<float>(mean / 255));
  EXPECT_FLOAT_EQ(kFashionMnistStddev, static_cast<float>(std::sqrt(variance) / 255));
}

TEST(FashionMnistConstants, NameTenDifferentClasses) {
  EXPECT_EQ(std::set<std::string>(kFashionMnistClassNames.begin(), kFashionMnistClassNames.end()).size(),
            10U);
}

}  // namespace
}  // namespace lockstep::data

// Fashion-MNIST (Xiao, Rasul and Vollgraf, 2017): 60,000 training and 10,000 test images of 28 x 28 grey
// bytes in ten classes. Found on disk, read, and checked so that no kernel can trip over what it holds.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep::data {

struct ImageData {
  int64_t rows = 0;
  int height = 0, width = 0;
  std::vector<uint8_t> images;  // [rows, height, width]
  std::vector<uint8_t> labels;  // [rows], each in 0..9
};

struct FashionMnist {
  ImageData train, test;
};

inline constexpr int kFashionMnistClasses = 10;
inline constexpr std::array<const char*, kFashionMnistClasses> kFashionMnistClassNames = {
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"};

// Mean and standard deviation of the 60,000 * 784 training pixels divided by 255, from the exact integer sums
// of the bytes and of their squares (the population's deviation: divided by n).
inline constexpr float kFashionMnistMean = 0.28604060F;
inline constexpr float kFashionMnistStddev = 0.35302424F;

// Where the data set is looked for when nobody names a folder: beside the caller, and Debian's package.
inline constexpr std::array<const char*, 2> kFashionMnistFolders = {"data/fashion-mnist",
                                                                    "/usr/share/datasets/fashion-mnist"};

// The folder to read: `data_dir` where it is not empty, else $LOCKSTEP_DATA where that is set and not empty,
// else the first of the usual folders that holds all four files.
// Throws Error where a folder that was asked for by name lacks a file (there is no falling through), and,
// telling how to get the data set, where no folder has it.
std::filesystem::path find_fashion_mnist(const std::string& data_dir,
                                         std::span<const char* const> usual_folders = kFashionMnistFolders);

// Reads the four files, each plain or with .gz at the end of its name. train_limit: only the first so many
// training rows, in 1..rows. Throws Error where a file is bad (read_idx), images are not 28 x 28, images and
// labels differ in number, or a label is outside 0..9.
FashionMnist load_fashion_mnist(const std::filesystem::path& folder, std::optional<int64_t> train_limit = {});

}  // namespace lockstep::data

// A PNG file as RGB, for tests that look at what a program drew.
#pragma once

#include <png.h>

#include <array>
#include <filesystem>
#include <stdexcept>
#include <vector>

namespace lockstep::apps {

struct DecodedPng {
  explicit DecodedPng(const std::filesystem::path& path) {
    png_image image{};
    image.version = PNG_IMAGE_VERSION;
    if (png_image_begin_read_from_file(&image, path.c_str()) == 0) throw std::runtime_error(image.message);
    image.format = PNG_FORMAT_RGB;
    width = static_cast<int>(image.width);
    height = static_cast<int>(image.height);
    pixels.resize(static_cast<size_t>(width * height));
    if (png_image_finish_read(&image, nullptr, pixels.data(), 0, nullptr) == 0)
      throw std::runtime_error(image.message);
  }

  const std::array<uint8_t, 3>& at(int x, int y) const {
    return pixels.at(static_cast<size_t>(y * width + x));
  }

  int width, height;
  std::vector<std::array<uint8_t, 3>> pixels;
};

inline bool is_red(const std::array<uint8_t, 3>& pixel) {
  return pixel[0] > 150 && pixel[1] < 60 && pixel[2] < 60;
}

}  // namespace lockstep::apps

// PNG files, through libpng: written as 8-bit grey or RGB, and any of them read as 8-bit grey.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace lockstep::apps {

struct Image {
  int width = 0, height = 0;
  int channels = 1;             // 1: grey, 3: RGB
  std::vector<uint8_t> pixels;  // [height, width, channels]
};

// The image as grey: colours by their luminance, 16 bits rounded to 8, transparency over black. Memory is
// taken only for what the file is long enough to hold. Throws Error, in one line that begins with the file's
// name, where it cannot be read, is no PNG, is cut short or damaged, or has more than kMaxPngPixels.
Image read_png_as_grey(const std::filesystem::path& path);

// Writes the file as a whole or not at all (nn/io/replace_file.h). Throws Error where that fails.
void write_png(const std::filesystem::path& path, const Image& image);

inline constexpr int64_t kMaxPngPixels = int64_t{1} << 26;  // more than any camera's picture

}  // namespace lockstep::apps

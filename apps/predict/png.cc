// libpng's simplified interface, which needs no callbacks and no longjmp. The sizes that a header claims are
// held against the file's length before libpng sees it.
#include "apps/predict/png.h"

#include <fmt/format.h>
#include <png.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>

#include "core/printable.h"
#include "kernels/check.h"
#include "nn/io/file_kind.h"
#include "nn/io/open_file.h"
#include "nn/io/replace_file.h"

namespace lockstep::apps {
namespace {

// libpng's own structure, freed with it.
struct PngImage {
  PngImage() { image.version = PNG_IMAGE_VERSION; }
  ~PngImage() { png_image_free(&image); }
  PngImage(const PngImage&) = delete;
  PngImage& operator=(const PngImage&) = delete;

  png_image image{};
};

std::vector<uint8_t> read_file(const std::filesystem::path& path) {
  const data::File file = data::open_file(path);
  std::vector<uint8_t> bytes;
  std::array<uint8_t, 1 << 16> block;
  while (const size_t count = std::fread(block.data(), 1, block.size(), file.get()))
    bytes.insert(bytes.end(), block.begin(), block.begin() + static_cast<std::ptrdiff_t>(count));
  if (std::ferror(file.get()) != 0)
    throw Error(fmt::format("{}: cannot read: {}", printable(path.native()), std::strerror(errno)));
  return bytes;
}

int64_t integer_at(const std::vector<uint8_t>& bytes, size_t i) {
  return int64_t{bytes[i]} << 24 | int64_t{bytes[i + 1]} << 16 | int64_t{bytes[i + 2]} << 8 | bytes[i + 3];
}

// A file is a signature and chunks, the last one IEND; each is its length, four letters, data and a checksum.
// libpng stops at the last pixel and would not miss what is cut off behind it.
void check_complete(const std::vector<uint8_t>& bytes, const std::string& file) {
  constexpr std::array<uint8_t, 8> kSignature = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  constexpr size_t kAround = 12;  // bytes of a chunk that are not data
  if (!std::equal(bytes.begin(),
                  bytes.begin() + static_cast<std::ptrdiff_t>(std::min(bytes.size(), kSignature.size())),
                  kSignature.begin())) {
    const auto begin = std::span(bytes).first(std::min<size_t>(bytes.size(), 64));
    if (const data::FileKind kind = data::kind_of_file(std::as_bytes(begin)); !kind.name.empty())
      throw Error(fmt::format("{}: found {}, expected a PNG file: {}", file, kind.name, kind.advice));
    throw Error(fmt::format("{}: no PNG file: it begins with other bytes than one does", file));
  }
  for (size_t at = kSignature.size();;) {
    if (bytes.size() < at + kAround)
      throw Error(fmt::format("{}: cut short: {} bytes, without the end of a PNG file", file, bytes.size()));
    const auto length = static_cast<size_t>(integer_at(bytes, at));
    if (length > bytes.size() - at - kAround)
      throw Error(fmt::format("{}: cut short or damaged: a chunk of {} bytes at offset {} of {}", file,
                              length, at, bytes.size()));
    if (std::memcmp(&bytes[at + 4], "IEND", 4) == 0) return;
    at += kAround + length;
  }
}

// The data of the first chunk, IHDR, begin with width and height. Of a wrong IHDR libpng tells.
void check_size(const std::vector<uint8_t>& bytes, const std::string& file) {
  constexpr size_t kWidthAt = 16, kHeightAt = 20;
  // Deflate turns one byte into at most 1032, of eight pixels each.
  constexpr int64_t kMostPixelsAByte = 1032 * 8;
  if (bytes.size() < kHeightAt + 4) return;
  const int64_t width = integer_at(bytes, kWidthAt), height = integer_at(bytes, kHeightAt);
  if (width > 0 && height > kMaxPngPixels / width)
    throw Error(fmt::format("{}: claims {} x {} pixels, expected at most {} in all", file, width, height,
                            kMaxPngPixels));
  if (width * height / kMostPixelsAByte > static_cast<int64_t>(bytes.size()))
    throw Error(fmt::format("{}: claims {} x {} pixels, more than {} bytes can hold", file, width, height,
                            bytes.size()));
}

}  // namespace

Image read_png_as_grey(const std::filesystem::path& path) {
  const std::string file = printable(path.native());
  const std::vector<uint8_t> bytes = read_file(path);
  check_complete(bytes, file);
  check_size(bytes, file);
  PngImage png;
  const auto damaged = [&] { return Error(fmt::format("{}: cannot decode: {}", file, png.image.message)); };
  if (png_image_begin_read_from_memory(&png.image, bytes.data(), bytes.size()) == 0) throw damaged();
  png.image.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;  // 16 bits mean the same brightness as 8, not a linear scale
  png.image.format = PNG_FORMAT_GRAY;
  Image image{.width = static_cast<int>(png.image.width),
              .height = static_cast<int>(png.image.height),
              .channels = 1,
              .pixels = std::vector<uint8_t>(PNG_IMAGE_SIZE(png.image))};
  const png_color black{};
  if (png_image_finish_read(&png.image, &black, image.pixels.data(), 0, nullptr) == 0) throw damaged();
  return image;
}

void write_png(const std::filesystem::path& path, const Image& image) {
  PngImage png;
  png.image.width = static_cast<png_uint_32>(image.width);
  png.image.height = static_cast<png_uint_32>(image.height);
  png.image.format = image.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(png.image);
  std::vector<uint8_t> bytes(size);
  if (png_image_write_to_memory(&png.image, bytes.data(), &size, 0, image.pixels.data(), 0, nullptr) == 0)
    throw Error(fmt::format("{}: cannot encode: {}", printable(path.native()), png.image.message));
  const std::array<std::span<const std::byte>, 1> parts = {std::as_bytes(std::span(bytes.data(), size))};
  data::replace_file(path, parts);
}

}  // namespace lockstep::apps

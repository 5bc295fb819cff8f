// PNG files: what is written decodes to the same pixels, all kinds become the grey one would expect, and no
// file that is none, or is damaged, is taken for one.
#include "apps/predict/png.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

#include "tests/apps/decoded_png.h"
#include "tests/error_of.h"
#include "tests/nn/idx_files.h"

namespace lockstep::apps {
namespace {

using data::Bytes;
using data::operator+;
using data::TemporaryFolder;

Bytes big_endian(uint32_t value) {
  return {static_cast<uint8_t>(value >> 24), static_cast<uint8_t>(value >> 16),
          static_cast<uint8_t>(value >> 8), static_cast<uint8_t>(value)};
}

Bytes chunk(const std::string& type, const Bytes& data) {
  const Bytes body = Bytes(type.begin(), type.end()) + data;
  const auto sum = static_cast<uint32_t>(crc32(0, body.data(), static_cast<uInt>(body.size())));
  return big_endian(static_cast<uint32_t>(data.size())) + body + big_endian(sum);
}

Bytes packed(const Bytes& data) {
  uLongf size = compressBound(data.size());
  Bytes out(size);
  EXPECT_EQ(compress(out.data(), &size, data.data(), data.size()), Z_OK);
  out.resize(size);
  return out;
}

struct Header {
  uint32_t width, height;
  uint8_t bits, colour;  // 0 grey, 2 RGB, 3 palette, 4 grey with alpha, 6 RGB with alpha
  uint8_t interlaced = 0;
};

const Bytes kSignature = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};

// `rows`: what is packed, each row behind a byte of 0 (its filter).
Bytes png(const Header& header, const Bytes& rows, const Bytes& before_data = {}) {
  return kSignature +
         chunk("IHDR", big_endian(header.width) + big_endian(header.height) +
                           Bytes{header.bits, header.colour, 0, 0, header.interlaced}) +
         before_data + chunk("IDAT", packed(rows)) + chunk("IEND", {});
}

class Png : public testing::Test {
 protected:
  Bytes grey_of(const Bytes& file) {
    const Image image = read_png_as_grey(folder_.write("x.png", file));
    EXPECT_EQ(image.channels, 1);
    EXPECT_EQ(image.pixels.size(), static_cast<size_t>(image.width * image.height));
    return image.pixels;
  }

  // The message without the file's name, which it must begin with.
  std::string refusal(const Bytes& file) {
    const auto path = folder_.write("x.png", file);
    const std::string message = error_of([&] { read_png_as_grey(path); }), start = path.string() + ": ";
    EXPECT_EQ(message.substr(0, start.size()), start);
    EXPECT_EQ(message.find('\n'), message.npos);
    return message.substr(std::min(start.size(), message.size()));
  }

  TemporaryFolder folder_;
};

TEST_F(Png, WhatIsWrittenDecodesToTheSamePixels) {
  std::mt19937 random(1);
  for (const int channels : {1, 3}) {
    Image image{.width = 5, .height = 3, .channels = channels, .pixels = {}};
    for (int i = 0; i < 15 * channels; ++i) image.pixels.push_back(static_cast<uint8_t>(random()));
    const auto path = folder_.path() / "written.png";
    write_png(path, image);
    const DecodedPng decoded(path);
    EXPECT_EQ(decoded.width, 5);
    EXPECT_EQ(decoded.height, 3);
    for (int y = 0; y < 3; ++y)
      for (int x = 0; x < 5; ++x)
        for (int c = 0; c < 3; ++c)
          EXPECT_EQ(decoded.at(x, y)[static_cast<size_t>(c)],
                    image.pixels[static_cast<size_t>((y * 5 + x) * channels + (channels == 3 ? c : 0))]);
    if (channels == 1) {
      EXPECT_EQ(read_png_as_grey(path).pixels, image.pixels);
    }
  }
}

TEST_F(Png, ReadsGreyOfEveryDepthAndInterlaced) {
  EXPECT_EQ(grey_of(png({3, 1, 8, 0}, {0, 7, 128, 255})), (Bytes{7, 128, 255}));
  EXPECT_EQ(grey_of(png({4, 1, 1, 0}, {0, 0b10100000})), (Bytes{255, 0, 255, 0}));
  EXPECT_EQ(grey_of(png({2, 1, 4, 0}, {0, 0x3f})), (Bytes{0x33, 255}));
  EXPECT_EQ(grey_of(png({2, 1, 16, 0}, {0, 0x80, 0x80, 0x07, 0x07})), (Bytes{0x80, 7}));
  // Adam7: the first pass holds the top left pixel, the sixth the one beside it, the seventh the second row.
  EXPECT_EQ(grey_of(png({2, 2, 8, 0, 1}, {0, 10, 0, 20, 0, 30, 40})), (Bytes{10, 20, 30, 40}));
}

// Luminance weighs light, not the bytes, which are its square root, about (IEC 61966-2-1); the weights are
// those of ITU-R BT.709.
uint8_t grey(const std::array<uint8_t, 3>& rgb) {
  const auto light = [](double v) { return v <= 0.04045 ? v / 12.92 : std::pow((v + 0.055) / 1.055, 2.4); };
  const double y =
      0.2126 * light(rgb[0] / 255.) + 0.7152 * light(rgb[1] / 255.) + 0.0722 * light(rgb[2] / 255.);
  return static_cast<uint8_t>(
      std::lround(255 * (y <= 0.0031308 ? 12.92 * y : 1.055 * std::pow(y, 1 / 2.4) - 0.055)));
}

TEST_F(Png, TurnsColoursIntoTheirLuminance) {
  const std::array<std::array<uint8_t, 3>, 4> colours = {
      {{255, 0, 0}, {0, 255, 0}, {0, 0, 255}, {90, 90, 90}}};
  Bytes rows = {0}, palette;
  for (const auto& colour : colours) palette.insert(palette.end(), colour.begin(), colour.end());
  rows.insert(rows.end(), palette.begin(), palette.end());
  const Bytes from_rgb = grey_of(png({4, 1, 8, 2}, rows));
  const Bytes from_palette = grey_of(png({4, 1, 8, 3}, {0, 0, 1, 2, 3}, chunk("PLTE", palette)));
  ASSERT_EQ(from_rgb.size(), 4u);
  ASSERT_EQ(from_palette.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(from_rgb[i], grey(colours[i]), 1) << i;  // libpng rounds in fixed point
    EXPECT_NEAR(from_palette[i], grey(colours[i]), 1) << i;
  }
}

TEST_F(Png, ShowsTransparencyOverBlack) {
  EXPECT_EQ(grey_of(png({2, 1, 8, 4}, {0, 200, 0, 200, 255})), (Bytes{0, 200}));
  EXPECT_EQ(grey_of(png({2, 1, 8, 6}, {0, 90, 90, 90, 255, 9, 9, 9, 0})), (Bytes{90, 0}));
}

TEST_F(Png, RefusesWhatIsNoPng) {
  EXPECT_EQ(refusal({'G', 'I', 'F', '8', '9', 'a'}), "no PNG file: it begins with other bytes than one does");
  EXPECT_EQ(refusal({}), "cut short: 0 bytes, without the end of a PNG file");
  EXPECT_EQ(error_of([&] { read_png_as_grey(folder_.path() / "none.png"); }),
            (folder_.path() / "none.png").string() + ": cannot open: No such file or directory");
  EXPECT_EQ(error_of([&] { read_png_as_grey(folder_.path()); }),
            folder_.path().string() + ": found a directory, expected a regular file");
}

TEST_F(Png, RefusesAbsurdSizesByTheirHeader) {
  EXPECT_EQ(refusal(png({1U << 31, 1U << 31, 8, 0}, {0})),
            "claims 2147483648 x 2147483648 pixels, expected at most 67108864 in all");
  EXPECT_EQ(refusal(png({8192, 8192, 8, 0}, {0})).substr(0, 36), "claims 8192 x 8192 pixels, more than");
  refusal(png({0, 5, 8, 0}, {0}));
  refusal(png({5, 5, 3, 0}, {0}));
}

TEST_F(Png, RefusesEveryFileThatIsCutShort) {
  const Bytes whole = png({2, 2, 8, 0, 1}, {0, 10, 0, 20, 0, 30, 40});
  for (size_t length = 0; length < whole.size(); ++length) {
    SCOPED_TRACE(length);
    EXPECT_EQ(refusal(Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length))).substr(0, 9),
              "cut short");
  }
}

TEST_F(Png, RefusesTooFewPixelsAndDamage) {
  refusal(png({2, 2, 8, 0}, {0, 1, 2}));
  Bytes damaged = png({2, 1, 8, 0}, {0, 1, 2});
  damaged[45] ^= 1;  // in IDAT: its checksum no longer holds
  refusal(damaged);
}

}  // namespace
}  // namespace lockstep::apps

// The contact sheet, decoded again: every image is there, pixel by pixel, and wrong predictions, and only
// those, are marked.
#include "apps/predict/contact_sheet.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <random>

#include "apps/predict/font.h"
#include "tests/apps/decoded_png.h"
#include "tests/nn/idx_files.h"

namespace lockstep::apps {
namespace {

constexpr int kImages = 7, kWidth = 6, kHeight = 8;

class Sheet : public testing::Test {
 protected:
  Sheet() {
    std::mt19937 random(3);
    pixels_.resize(kImages);
    for (int i = 0; i < kImages; ++i) {
      for (int k = 0; k < kWidth * kHeight; ++k)
        pixels_[static_cast<size_t>(i)].push_back(static_cast<uint8_t>(random()));
      images_.push_back({pixels_[static_cast<size_t>(i)], wrong(i) ? "Shirt" : "Ankle boot", "Ankle boot"});
    }
    const auto path = folder_.path() / "sheet.png";
    write_png(path, contact_sheet(header_, images_, kWidth, kHeight));
    sheet_ = std::make_unique<DecodedPng>(path);
  }

  static bool wrong(int i) { return i == 2 || i == 5; }
  // Red pixels in a rectangle.
  int red(int left, int top, int width, int height) const {
    int count = 0;
    for (int y = top; y < top + height; ++y)
      for (int x = left; x < left + width; ++x) count += is_red(sheet_->at(x, y));
    return count;
  }

  const std::vector<std::string> header_ = {"a model", "accuracy 0.5"};
  std::vector<std::vector<uint8_t>> pixels_;
  std::vector<SheetImage> images_;
  SheetLayout layout_{kImages, kWidth, kHeight, 10, 2, 12};
  data::TemporaryFolder folder_;
  std::unique_ptr<DecodedPng> sheet_;
};

TEST_F(Sheet, HasRoomForAllImages) {
  EXPECT_EQ(sheet_->width, layout_.width);
  EXPECT_EQ(sheet_->height, layout_.height);
  for (int i = 0; i < kImages; ++i) {
    EXPECT_GE(layout_.image_left(i), SheetLayout::kFrame);
    EXPECT_LE(layout_.image_left(i) + kWidth * SheetLayout::kScale + SheetLayout::kFrame, layout_.width);
    EXPECT_LT(layout_.label_top(i) + 4 * kGlyphHeight, layout_.height);
    for (int j = 0; j < i; ++j)
      EXPECT_TRUE(std::abs(layout_.image_left(i) - layout_.image_left(j)) >= layout_.tile_width ||
                  std::abs(layout_.image_top(i) - layout_.image_top(j)) >= layout_.tile_height)
          << j << " and " << i;
  }
}

TEST_F(Sheet, ShowsEveryImageScaledByAWholeNumber) {
  for (int i = 0; i < kImages; ++i)
    for (int y = 0; y < kHeight * SheetLayout::kScale; ++y)
      for (int x = 0; x < kWidth * SheetLayout::kScale; ++x) {
        const int from_right = kWidth * SheetLayout::kScale + SheetLayout::kFrame - x;
        if (wrong(i) && from_right <= SheetLayout::kBadge && y + SheetLayout::kFrame < SheetLayout::kBadge)
          continue;
        const uint8_t grey =
            pixels_[static_cast<size_t>(i)]
                   [static_cast<size_t>(y / SheetLayout::kScale * kWidth + x / SheetLayout::kScale)];
        const std::array<uint8_t, 3> want = {grey, grey, grey};
        ASSERT_EQ(sheet_->at(layout_.image_left(i) + x, layout_.image_top(i) + y), want)
            << "image " << i << ", x " << x << ", y " << y;
      }
}

TEST_F(Sheet, FramesWrongPredictionsInRedAndOnlyThose) {
  constexpr int kFrame = SheetLayout::kFrame;
  constexpr int kFullWidth = kWidth * SheetLayout::kScale + 2 * kFrame;
  constexpr int kFullHeight = kHeight * SheetLayout::kScale + 2 * kFrame;
  for (int i = 0; i < kImages; ++i) {
    SCOPED_TRACE(i);
    const int left = layout_.image_left(i) - kFrame, top = layout_.image_top(i) - kFrame;
    const int text =
        red(left, layout_.label_top(i), kFullWidth, layout_.height - layout_.label_top(i) > 40 ? 40 : 20);
    if (!wrong(i)) {
      EXPECT_EQ(red(left, top, kFullWidth, kFullHeight), 0);
      EXPECT_EQ(text, 0);
      continue;
    }
    EXPECT_EQ(red(left, top, kFrame, kFullHeight), kFrame * kFullHeight);
    EXPECT_EQ(red(left, top + kFullHeight - kFrame, kFullWidth, kFrame), kFullWidth * kFrame);
    const int below_badge = kFullHeight - SheetLayout::kBadge;
    EXPECT_EQ(red(left + kFullWidth - kFrame, top + SheetLayout::kBadge, kFrame, below_badge),
              kFrame * below_badge);
    EXPECT_GT(text, 100);
  }
}

// For eyes and printers without colour.
TEST_F(Sheet, CrossesWrongPredictions) {
  for (int i = 0; i < kImages; ++i) {
    if (!wrong(i)) continue;
    const int left =
        layout_.image_left(i) + kWidth * SheetLayout::kScale + SheetLayout::kFrame - SheetLayout::kBadge;
    const int top = layout_.image_top(i) - SheetLayout::kFrame;
    const int middle = SheetLayout::kBadge / 2;
    const std::array<uint8_t, 3> white = {255, 255, 255};
    for (const int offset : {-5, 0, 5})
      for (const int sign : {-1, 1})
        EXPECT_EQ(sheet_->at(left + middle + offset, top + middle + sign * offset), white);
    EXPECT_TRUE(is_red(sheet_->at(left + middle, top + 2)));
    EXPECT_TRUE(is_red(sheet_->at(left + 2, top + middle)));
  }
}

TEST(SheetLayout, IsAboutOneAndAHalfTimesAsWideAsHigh) {
  for (const int count : {12, 40, 100, 1000}) {
    const SheetLayout layout(count, 28, 28, 11, 3, 60);
    EXPECT_NEAR(static_cast<double>(layout.width) / layout.height, 1.5, 0.6) << count;  // whole tiles
  }
}

TEST(SheetLayout, KeepsALongHeaderInside) {
  const SheetLayout layout(1, 28, 28, 11, 1, 100);
  EXPECT_GE(layout.width, 100 * 2 * (kGlyphWidth + 1));
  EXPECT_EQ(layout.columns, 1);
}

TEST(Font, HasADifferentPictureForEveryCharacter) {
  std::vector<std::vector<bool>> pictures;
  for (char c = ' '; c <= '~'; ++c) {
    std::vector<bool> picture;
    for (int y = 0; y < kGlyphHeight; ++y)
      for (int x = 0; x < kGlyphWidth; ++x) picture.push_back(glyph_pixel(c, x, y));
    EXPECT_EQ(std::count(picture.begin(), picture.end(), true) > 0, c != ' ') << c;
    EXPECT_EQ(std::find(pictures.begin(), pictures.end(), picture), pictures.end()) << c;
    pictures.push_back(picture);
  }
  EXPECT_TRUE(glyph_pixel('\xe4', 1, 0));  // as '?'
}

}  // namespace
}  // namespace lockstep::apps

#include "apps/predict/contact_sheet.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "apps/predict/font.h"

namespace lockstep::apps {
namespace {

constexpr int kText = 2;  // the font's pixels become squares of this side
constexpr int kAdvance = (kGlyphWidth + 1) * kText, kLine = (kGlyphHeight + 1) * kText;
constexpr int kMargin = 16, kGap = 14;

using Colour = std::array<uint8_t, 3>;
constexpr Colour kWhite{255, 255, 255}, kDark{32, 32, 32}, kGrey{112, 112, 112}, kRed{208, 0, 24};

int text_width(size_t characters) {
  return characters == 0 ? 0 : static_cast<int>(characters) * kAdvance - kText;
}

class Canvas {
 public:
  Canvas(int width, int height)
      : image_{.width = width,
               .height = height,
               .channels = 3,
               .pixels =
                   std::vector<uint8_t>(3 * static_cast<size_t>(width) * static_cast<size_t>(height), 255)} {}

  void fill(int left, int top, int width, int height, const Colour& colour) {
    for (int y = top; y < top + height; ++y)
      for (int x = left; x < left + width; ++x)
        std::copy(colour.begin(), colour.end(),
                  image_.pixels.begin() + 3 * (static_cast<std::ptrdiff_t>(y) * image_.width + x));
  }

  void text(int left, int top, const std::string& line, const Colour& colour) {
    for (size_t i = 0; i < line.size(); ++i)
      for (int y = 0; y < kGlyphHeight; ++y)
        for (int x = 0; x < kGlyphWidth; ++x)
          if (glyph_pixel(line[i], x, y))
            fill(left + static_cast<int>(i) * kAdvance + x * kText, top + y * kText, kText, kText, colour);
  }

  Image take() { return std::move(image_); }

 private:
  Image image_;
};

// A red square with a white cross.
void draw_badge(Canvas& canvas, int left, int top) {
  constexpr int kSide = SheetLayout::kBadge, kInset = 5, kStroke = 3;
  canvas.fill(left, top, kSide, kSide, kRed);
  for (int i = kInset; i <= kSide - kInset - kStroke; ++i) {
    canvas.fill(left + i, top + i, kStroke, kStroke, kWhite);
    canvas.fill(left + i, top + kSide - kStroke - i, kStroke, kStroke, kWhite);
  }
}

void draw_tile(Canvas& canvas, const SheetLayout& layout, int i, const SheetImage& image) {
  constexpr int kScale = SheetLayout::kScale, kFrame = SheetLayout::kFrame;
  const int left = layout.image_left(i), top = layout.image_top(i);
  const int width = layout.image_width * kScale, height = layout.image_height * kScale;
  const bool wrong = image.predicted != image.truth;
  if (wrong) canvas.fill(left - kFrame, top - kFrame, width + 2 * kFrame, height + 2 * kFrame, kRed);
  for (int y = 0; y < layout.image_height; ++y)
    for (int x = 0; x < layout.image_width; ++x) {
      const uint8_t grey = image.pixels[static_cast<size_t>(y) * layout.image_width + x];
      canvas.fill(left + x * kScale, top + y * kScale, kScale, kScale, {grey, grey, grey});
    }
  if (wrong) draw_badge(canvas, left + width + kFrame - SheetLayout::kBadge, top - kFrame);
  const auto label = [&](int line, const std::string& text, const Colour& colour) {
    canvas.text(left + (width - text_width(text.size())) / 2, layout.label_top(i) + line * kLine, text,
                colour);
  };
  label(0, image.predicted, wrong ? kRed : kDark);
  label(1, image.truth, kGrey);
}

}  // namespace

SheetLayout::SheetLayout(int count, int width_of_image, int height_of_image, int longest_label,
                         int header_lines, int longest_line)
    : image_width(width_of_image),
      image_height(height_of_image),
      tile_width(kGap +
                 std::max(image_width * kScale + 2 * kFrame, text_width(static_cast<size_t>(longest_label)))),
      tile_height(kGap + image_height * kScale + 2 * kFrame + 2 * kLine),
      header_height(header_lines * kLine + kGap) {
  constexpr double kWide = 1.5;
  const double ideal = std::sqrt(kWide * count * tile_height / tile_width);
  const int line_width = text_width(static_cast<size_t>(longest_line));
  columns =
      std::clamp(std::max(static_cast<int>(std::lround(ideal)), (line_width + kGap) / tile_width), 1, count);
  const int rows = (count + columns - 1) / columns;
  width = 2 * kMargin + std::max(columns * tile_width - kGap, line_width);
  height = 2 * kMargin + header_height + rows * tile_height - kGap;
}

int SheetLayout::image_left(int i) const {
  return kMargin + i % columns * tile_width + (tile_width - kGap - image_width * kScale) / 2;
}

int SheetLayout::image_top(int i) const {
  return kMargin + header_height + i / columns * tile_height + kFrame;
}

Image contact_sheet(const std::vector<std::string>& header, const std::vector<SheetImage>& images,
                    int image_width, int image_height) {
  size_t longest_label = 0, longest_line = 0;
  for (const SheetImage& image : images)
    longest_label = std::max({longest_label, image.predicted.size(), image.truth.size()});
  for (const std::string& line : header) longest_line = std::max(longest_line, line.size());
  const SheetLayout layout(static_cast<int>(images.size()), image_width, image_height,
                           static_cast<int>(longest_label), static_cast<int>(header.size()),
                           static_cast<int>(longest_line));
  Canvas canvas(layout.width, layout.height);
  for (size_t i = 0; i < header.size(); ++i)
    canvas.text(kMargin, kMargin + static_cast<int>(i) * kLine, header[i], i == 0 ? kDark : kGrey);
  for (size_t i = 0; i < images.size(); ++i) draw_tile(canvas, layout, static_cast<int>(i), images[i]);
  return canvas.take();
}

}  // namespace lockstep::apps

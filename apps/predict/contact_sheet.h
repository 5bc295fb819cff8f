// A contact sheet: many small grey images in a grid, each with its predicted and its true class below. Wrong
// predictions have a thick red frame, a badge with a cross and red text, so that they show without colour
// too.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "apps/predict/png.h"

namespace lockstep::apps {

struct SheetImage {
  std::span<const uint8_t> pixels;  // [height, width]
  std::string predicted, truth;     // the image is marked where they differ
};

// Where things lie on a sheet, in pixels.
struct SheetLayout {
  static constexpr int kScale = 4;   // image pixels become squares of this side
  static constexpr int kFrame = 5;   // around the image of a wrong prediction
  static constexpr int kBadge = 23;  // side of its badge, which covers the frame's top right corner

  // Columns for a sheet about one and a half times as wide as high, and more where the header is wider;
  // `longest_label` and `longest_line` (of the header) in characters.
  SheetLayout(int count, int image_width, int image_height, int longest_label, int header_lines,
              int longest_line);

  // The top left corner of image i, and of its first label's line.
  int image_left(int i) const;
  int image_top(int i) const;
  int label_top(int i) const { return image_top(i) + image_height * kScale + kFrame + 4; }

  int image_width, image_height;  // before they are scaled
  int columns, tile_width, tile_height;
  int header_height;
  int width, height;  // of the sheet
};

// All images are image_width x image_height.
Image contact_sheet(const std::vector<std::string>& header, const std::vector<SheetImage>& images,
                    int image_width, int image_height);

}  // namespace lockstep::apps

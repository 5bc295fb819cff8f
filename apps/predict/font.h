// A small bitmap font for pictures that programs write: 5 x 7 pixels a character, and two
// rows below for what hangs down.
#pragma once

namespace lockstep::apps {

inline constexpr int kGlyphWidth = 5, kGlyphHeight = 9;

// Whether the pixel in column x, row y of a character is set. What is no printable ASCII looks like '?'.
bool glyph_pixel(char character, int x, int y);

}  // namespace lockstep::apps

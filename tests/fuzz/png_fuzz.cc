// Fuzz target for the reader of PNG files. CTest runs it through driver.cc; libFuzzer finds more (from clang
// 16 on; before that with the CUDA toolkit's headers in place of hostcuda's):
//   clang++ -std=c++20 -g -O1 -fsanitize=fuzzer,address,undefined -I. -Ihostcuda/include -o fuzz_png
//     tests/fuzz/png_fuzz.cc apps/predict/png.cc nn/io/{file_kind,open_file,replace_file}.cc
//     core/printable.cc -lfmt -lpng -lz
//   ./fuzz_png -malloc_limit_mb=64 -max_total_time=60 NEW_FOLDER tests/fuzz/corpus/png
#include "apps/predict/png.h"

#include <zlib.h>

#include "tests/fuzz/fuzz.h"

namespace {

using namespace lockstep;

void run(const std::vector<uint8_t>& input) {
  fuzz::read_or_refuse(fuzz::file_of(input.data(), input.size()), [](const auto& file) {
    const apps::Image image = apps::read_png_as_grey(file);
    fuzz::demand(image.width > 0 && image.height > 0 && image.channels == 1, "a grey image");
    fuzz::demand(image.pixels.size() == static_cast<size_t>(image.width) * static_cast<size_t>(image.height),
                 "as many pixels as the size says");
  });
}

void put_integer(std::vector<uint8_t>& bytes, size_t at, size_t value) {
  for (size_t i = 0; i < 4; ++i) bytes[at + i] = static_cast<uint8_t>(value >> 8 * (3 - i));
}

// Gives every chunk its right checksum, and the one that goes beyond the end its right length.
void repair(std::vector<uint8_t>& bytes) {
  constexpr size_t kAround = 12;
  for (size_t at = 8; at + kAround <= bytes.size();) {
    size_t length = 0;
    for (size_t i = 0; i < 4; ++i) length = length << 8 | bytes[at + i];
    if (length > bytes.size() - at - kAround) put_integer(bytes, at, length = bytes.size() - at - kAround);
    put_integer(bytes, at + 8 + length, crc32(0, &bytes[at + 4], static_cast<uInt>(length + 4)));
    at += kAround + length;
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<uint8_t> input(data, data + size);
  run(input);
  // Once more with checksums that hold: else hardly a mutation would come further than those.
  repair(input);
  run(input);
  return 0;
}

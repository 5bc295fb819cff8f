// IDX files, the format of MNIST and Fashion-MNIST: a magic number (element type and rank), the dimensions as
// big-endian 32-bit integers, then the values. Source: http://yann.lecun.com/exdb/mnist/.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

namespace lockstep::data {

struct IdxArray {
  std::vector<int64_t> shape;  // outermost first; every dimension is at least 1
  std::vector<uint8_t> values;
};

// Looks at a shape before its values are read, and throws where it is not what the caller needs.
using CheckShape = std::function<void(const std::vector<int64_t>& shape)>;

// Reads an IDX file of unsigned bytes with `rank` dimensions (1 for labels, 3 for images), plain or
// compressed with gzip: the content decides, not the name. Memory is taken for bytes that were read, never
// for what a header claims. Throws Error, in one line with the file, the offset, what was found and what was
// expected, where the file cannot be read, is empty, cut short, damaged, of another type or rank, too large
// (kMaxIdxBytes) or has bytes after its end. An "offset" counts unpacked bytes, a "gzip offset" those of the
// compressed file.
IdxArray read_idx(const std::filesystem::path& path, int rank, const CheckShape& check_shape = {});

// More values than any set read here has (Fashion-MNIST: 45 MiB): a header that claims more is damaged.
inline constexpr int64_t kMaxIdxBytes = int64_t{1} << 30;

}  // namespace lockstep::data

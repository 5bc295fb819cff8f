// A source of bytes (plain or unpacked by zlib), and above it the header and the values, checked as they
// come.
#include "nn/data/idx.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/printable.h"
#include "kernels/check.h"
#include "nn/io/file_kind.h"
#include "nn/io/open_file.h"

namespace lockstep::data {
namespace {

struct EndInflate {
  void operator()(z_stream* stream) const {
    inflateEnd(stream);
    delete stream;
  }
};

// The bytes of a file, unpacked where its first two bytes are gzip's.
class ByteSource {
 public:
  explicit ByteSource(const std::filesystem::path& path)
      : name_(printable(path.native())), file_(open_file(path)) {
    fill();
    if (buffered_.empty())
      throw Error(fmt::format("{}: offset 0: found an empty file, expected an IDX file", name_));
    if (buffered_.size() >= 2 && buffered_[0] == 0x1f && buffered_[1] == 0x8b) {
      start_inflate();
    } else if (const FileKind kind =
                   kind_of_file(std::as_bytes(buffered_.first(std::min<size_t>(buffered_.size(), 64))));
               !kind.name.empty()) {
      throw Error(fmt::format("{}: found {}, expected an IDX file: {}", name_, kind.name, kind.advice));
    }
  }

  // Fills `out` as far as the file goes; returns how many bytes that was.
  size_t read(std::span<uint8_t> out) {
    const size_t count = stream_ ? read_gzip(out) : read_plain(out);
    offset_ += static_cast<int64_t>(count);
    return count;
  }

  int64_t offset() const { return offset_; }

  [[noreturn]] void fail(int64_t offset, std::string_view found, std::string_view expected) const {
    throw Error(fmt::format("{}: offset {}: found {}, expected {}", name_, offset, found, expected));
  }

 private:
  void fill() {
    const size_t count = std::fread(buffer_.data(), 1, buffer_.size(), file_.get());
    if (std::ferror(file_.get()))
      throw Error(fmt::format("{}: offset {}: cannot read: {}", name_, fetched_, std::strerror(errno)));
    buffered_ = std::span(buffer_).first(count);
    fetched_ += static_cast<int64_t>(count);
  }

  size_t read_plain(std::span<uint8_t> out) {
    size_t count = 0;
    while (count < out.size()) {
      if (buffered_.empty()) fill();
      if (buffered_.empty()) break;
      const size_t step = std::min(out.size() - count, buffered_.size());
      std::memcpy(out.data() + count, buffered_.data(), step);
      buffered_ = buffered_.subspan(step);
      count += step;
    }
    return count;
  }

  void start_inflate() {
    auto stream = std::make_unique<z_stream>();  // zeroed: zlib's own allocator
    constexpr int kGzipOnly = 16;
    if (inflateInit2(stream.get(), MAX_WBITS + kGzipOnly) != Z_OK)
      throw Error(fmt::format("{}: zlib cannot start: {}", name_, stream->msg ? stream->msg : "no memory"));
    stream_.reset(stream.release());
  }

  size_t read_gzip(std::span<uint8_t> out) {
    stream_->next_out = out.data();
    stream_->avail_out = static_cast<uInt>(out.size());
    while (stream_->avail_out > 0 && !ended_) {
      if (buffered_.empty()) fill();
      if (buffered_.empty()) fail_gzip("the end of the file", "more of the gzip stream");
      stream_->next_in = buffered_.data();
      stream_->avail_in = static_cast<uInt>(buffered_.size());
      const int status = inflate(stream_.get(), Z_NO_FLUSH);
      buffered_ = buffered_.last(stream_->avail_in);
      if (status == Z_STREAM_END)
        end_member();
      else if (status != Z_OK)
        fail_gzip(stream_->msg ? fmt::format("damage ({})", stream_->msg) : "damage", "a gzip stream");
    }
    return out.size() - stream_->avail_out;
  }

  // A gzip file may consist of several members (RFC 1952); anything else after one is garbage.
  void end_member() {
    if (buffered_.empty()) fill();
    if (buffered_.empty()) {
      ended_ = true;
    } else if (buffered_[0] == 0x1f) {
      inflateReset(stream_.get());
    } else {
      fail_gzip("bytes after the gzip stream", "the end of the file");
    }
  }

  [[noreturn]] void fail_gzip(std::string_view found, std::string_view expected) const {
    const int64_t offset = fetched_ - static_cast<int64_t>(buffered_.size());
    throw Error(fmt::format("{}: gzip offset {}: found {}, expected {}", name_, offset, found, expected));
  }

  std::string name_;
  File file_;
  std::unique_ptr<z_stream, EndInflate> stream_;  // null where the file is plain
  std::array<uint8_t, 1 << 16> buffer_;
  std::span<uint8_t> buffered_;  // the part of buffer_ that is still to be used
  int64_t fetched_ = 0;          // bytes taken from the file
  int64_t offset_ = 0;           // bytes given to the caller
  bool ended_ = false;           // the last gzip member is over
};

uint32_t read_big_endian(ByteSource& source, std::string_view expected) {
  std::array<uint8_t, 4> bytes;
  if (source.read(bytes) < bytes.size()) source.fail(source.offset(), "the end of the file", expected);
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | uint32_t{bytes[3]};
}

constexpr uint32_t kUnsignedByte = 0x08;

// What a reader wants to know about a magic number: "0x00000803 (images)", "0x00000d02 (float32, rank 2)".
std::string describe_magic(uint32_t magic) {
  const auto with = [&](std::string_view meaning) { return fmt::format("0x{:08x} ({})", magic, meaning); };
  const uint32_t type = magic >> 8, rank = magic & 0xff;
  if (type == kUnsignedByte && rank == 1) return with("labels");
  if (type == kUnsignedByte && rank == 3) return with("images");
  switch (type) {
    case kUnsignedByte:
      return with(fmt::format("unsigned bytes, rank {}", rank));
    case 0x09:
      return with(fmt::format("signed bytes, rank {}", rank));
    case 0x0b:
      return with(fmt::format("int16, rank {}", rank));
    case 0x0c:
      return with(fmt::format("int32, rank {}", rank));
    case 0x0d:
      return with(fmt::format("float32, rank {}", rank));
    case 0x0e:
      return with(fmt::format("float64, rank {}", rank));
    default:
      return with("not an IDX file");
  }
}

// Reads and checks the magic number and the dimensions; returns the shape.
std::vector<int64_t> read_header(ByteSource& source, int rank) {
  const uint32_t wanted = kUnsignedByte << 8 | static_cast<uint32_t>(rank);
  const uint32_t magic = read_big_endian(source, "a magic number of 4 bytes");
  if (magic != wanted) source.fail(0, "magic " + describe_magic(magic), describe_magic(wanted));
  std::vector<int64_t> shape;
  int64_t count = 1;
  for (int i = 0; i < rank; ++i) {
    const int64_t offset = source.offset();
    const int64_t size = read_big_endian(source, fmt::format("dimension {} of {}", i + 1, rank));
    // Divided, not multiplied: the product of three 32-bit numbers does not fit into 64 bits.
    if (size == 0 || size > kMaxIdxBytes / count)
      source.fail(offset, fmt::format("dimension {} of {}: {}", i + 1, rank, size),
                  fmt::format("1 to {} (at most {} values in all)", kMaxIdxBytes / count, kMaxIdxBytes));
    count *= size;
    shape.push_back(size);
  }
  return shape;
}

// Reads exactly `count` values. The vector doubles as bytes arrive, and never grows past count.
std::vector<uint8_t> read_values(ByteSource& source, int64_t count) {
  constexpr int64_t kStep = 1 << 20;
  const int64_t end = source.offset() + count;
  std::vector<uint8_t> values;
  int64_t done = 0;
  while (done < count) {
    const int64_t step = std::min(kStep, count - done);
    if (static_cast<int64_t>(values.capacity()) < done + step)
      values.reserve(static_cast<size_t>(std::min(count, std::max(2 * done, done + step))));
    values.resize(static_cast<size_t>(done + step));
    const size_t got = source.read(std::span(values).last(static_cast<size_t>(step)));
    if (static_cast<int64_t>(got) < step)
      source.fail(source.offset(), "the end of the file", fmt::format("{} bytes", end));
    done += step;
  }
  std::array<uint8_t, 1> extra;
  if (source.read(extra) > 0) source.fail(end, "more bytes", "the end of the file");
  return values;
}

}  // namespace

IdxArray read_idx(const std::filesystem::path& path, int rank, const CheckShape& check_shape) {
  ByteSource source(path);
  IdxArray array;
  array.shape = read_header(source, rank);
  if (check_shape) check_shape(array.shape);
  int64_t count = 1;
  for (const int64_t size : array.shape) count *= size;
  array.values = read_values(source, count);
  return array;
}

}  // namespace lockstep::data

// Reading and writing the file around its header: sizes are known from the file before memory is taken.
#include "nn/io/safetensors.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <utility>

#include "core/printable.h"
#include "kernels/check.h"
#include "nn/io/file_kind.h"
#include "nn/io/open_file.h"
#include "nn/io/replace_file.h"
#include "nn/io/safetensors_header.h"

namespace lockstep::data {
namespace {

static_assert(std::endian::native == std::endian::little, "values are copied as they lie in the file");

constexpr int64_t kLengthBytes = 8;

// Read from its beginning to its end; every byte is shown to `see`.
class InputFile {
 public:
  InputFile(File file, const std::filesystem::path& path, const SeeBytes& see)
      : name_(printable(path.native())), file_(std::move(file)), see_(see) {
    struct stat found;
    if (fstat(fileno(file_.get()), &found) != 0)
      throw Error(fmt::format("{}: cannot open: {}", name_, std::strerror(errno)));
    size_ = found.st_size;
  }

  const std::string& name() const { return name_; }
  int64_t size() const { return size_; }

  // Fills `out`, which lies within the size that the file had when it was opened.
  void read(std::span<std::byte> out) {
    if (std::fread(out.data(), 1, out.size(), file_.get()) != out.size()) {
      const char* why = std::ferror(file_.get()) ? std::strerror(errno) : "it has become shorter";
      throw Error(fmt::format("{}: cannot read: {}", name_, why));
    }
    if (see_) see_(out);
  }

 private:
  std::string name_;
  File file_;
  const SeeBytes& see_;
  int64_t size_ = 0;
};

// Throws, where the file is of another kind, saying of which. To be called for what is no safetensors file,
// so that none is taken for another.
void refuse_other_kinds(std::span<const std::byte> begin, const std::string& file) {
  if (const FileKind kind = kind_of_file(begin); !kind.name.empty())
    throw Error(fmt::format("{}: found {}, expected a safetensors file: {}", file, kind.name, kind.advice));
}

std::string read_header_text(InputFile& file) {
  if (file.size() == 0)
    throw Error(fmt::format("{}: found an empty file, expected a safetensors file", file.name()));
  if (file.size() < kLengthBytes)
    throw Error(fmt::format(
        "{}: found {} bytes, expected a safetensors file, which begins with {} bytes of header length",
        file.name(), file.size(), kLengthBytes));
  uint64_t length;
  file.read(std::as_writable_bytes(std::span(&length, 1)));
  const int64_t most = std::min(file.size() - kLengthBytes, kMaxSafetensorsHeader);
  if (length > static_cast<uint64_t>(most)) {
    std::array<std::byte, 64> begin;
    std::memcpy(begin.data(), &length, sizeof length);
    const auto rest =
        std::min<size_t>(begin.size() - sizeof length, static_cast<size_t>(file.size() - kLengthBytes));
    file.read(std::span(begin).subspan(sizeof length, rest));
    refuse_other_kinds(std::span(begin).first(sizeof length + rest), file.name());
    throw Error(
        fmt::format("{}: offset 0: found a header length of {}, expected at most {} in a file of {} bytes",
                    file.name(), length, most, file.size()));
  }
  std::string text(length, '\0');
  file.read(std::as_writable_bytes(std::span(text)));
  if (!text.starts_with('{')) {  // a gzip file without a time begins with a possible length
    const std::string begin =
        std::string(reinterpret_cast<const char*>(&length), sizeof length) + text.substr(0, 56);
    refuse_other_kinds(std::as_bytes(std::span(begin)), file.name());
  }
  return text;
}

}  // namespace

Safetensors read_safetensors(const std::filesystem::path& path) {
  return read_safetensors(open_file(path), path);
}

Safetensors read_safetensors(File opened, const std::filesystem::path& path, const SeeBytes& see) {
  InputFile file(std::move(opened), path, see);
  const std::string text = read_header_text(file);
  const int64_t data_begin = kLengthBytes + static_cast<int64_t>(text.size());
  SafetensorsHeader header = parse_header(text, file.size() - data_begin, file.name());
  Safetensors result{.tensors = {}, .metadata = std::move(header.metadata)};
  for (TensorEntry& entry : header.entries)
    result.tensors.push_back(
        {.name = std::move(entry.name), .dtype = entry.dtype, .shape = std::move(entry.shape), .bytes = {}});
  // In the order of their places, which lie one after the other without gaps.
  std::vector<size_t> order(header.entries.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {},
                    [&](size_t i) { return std::pair(header.entries[i].begin, header.entries[i].end); });
  for (const size_t i : order) {
    result.tensors[i].bytes.resize(static_cast<size_t>(header.entries[i].end - header.entries[i].begin));
    file.read(result.tensors[i].bytes);
  }
  return result;
}

void write_safetensors(const std::filesystem::path& path, const std::vector<HostTensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  SafetensorsHeader header{.entries = {}, .metadata = metadata};
  for (const HostTensor& tensor : tensors)
    header.entries.push_back(
        {.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape, .begin = 0, .end = 0});
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return size_of(tensors[a].dtype) > size_of(tensors[b].dtype); });
  int64_t end = 0;
  std::vector<std::span<const std::byte>> parts(2);
  for (const size_t i : order) {
    header.entries[i].begin = end;
    end += static_cast<int64_t>(tensors[i].bytes.size());
    header.entries[i].end = end;
    parts.push_back(tensors[i].bytes);
  }
  const std::string text = header_text(header, printable(path.native()));
  const uint64_t length = text.size();
  parts[0] = std::as_bytes(std::span(&length, 1));
  parts[1] = std::as_bytes(std::span(text));
  replace_file(path, parts);
}

}  // namespace lockstep::data

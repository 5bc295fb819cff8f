// Named tensors in a file, in the safetensors format: eight bytes with the length of a JSON header, the
// header (for each tensor its element type, shape and place), then all values without gaps, everything
// little-endian. Source: the format's own description, github.com/huggingface/safetensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "nn/io/open_file.h"

namespace lockstep::data {

// How a value lies in the file. Of the format's element types those that Lockstep meets; int64 because
// PyTorch's batch norm counts its batches in one, f16 and f64 to be converted (nn/io/to_float32.h).
enum class StoredType { u8, i32, i64, f16, bf16, f32, f64 };

size_t size_of(StoredType type);       // bytes an element
const char* name_of(StoredType type);  // as in the file: "F32"

// A tensor in host memory.
struct HostTensor {
  std::string name;  // UTF-8
  StoredType dtype = StoredType::f32;
  std::vector<int64_t> shape;    // outermost first; empty for a scalar
  std::vector<std::byte> bytes;  // row-major

  bool operator==(const HostTensor&) const = default;
};

struct Safetensors {
  std::vector<HostTensor> tensors;              // in the header's order
  std::map<std::string, std::string> metadata;  // what the header holds under "__metadata__"
};

// Reads a whole file. Nothing is allocated because a header claims it: the header's length and every tensor's
// place are held against the size of the file first. Throws Error, in one line with the file, what was found
// and what was expected, where the file cannot be read, is cut short or goes on after its last tensor, where
// it is another kind of file (nn/io/file_kind.h), the header is no JSON object of the wanted form, names a
// tensor twice or an element type that is not listed above, where a place does not fit shape and type, and
// where places overlap or leave gaps.
Safetensors read_safetensors(const std::filesystem::path& path);

// The same for a file that is open already, at its beginning; `path` is for messages. Each byte is read once,
// in order, and shown to `see`, where there is one: what a digest saw is what is returned.
using SeeBytes = std::function<void(std::span<const std::byte>)>;
Safetensors read_safetensors(File file, const std::filesystem::path& path, const SeeBytes& see = {});

// Writes a file that this reader and other programs can read, as a whole or not at all (replace_file in
// nn/io/replace_file.h). Tensors with larger elements lie before those with smaller ones, so that each is
// aligned; the header keeps the given order. Throws Error, before anything is written, where a name is given
// twice, is no UTF-8 or is "__metadata__", or where the bytes do not fit shape and type.
void write_safetensors(const std::filesystem::path& path, const std::vector<HostTensor>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

// A header longer than this is refused, as the format's reference implementation does.
inline constexpr int64_t kMaxSafetensorsHeader = 100'000'000;

}  // namespace lockstep::data

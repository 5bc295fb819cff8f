// The JSON header of a safetensors file: from text to checked entries, and back. Whoever has entries may
// trust them: names are unique, places fit shape and type and cover the data exactly.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "nn/io/safetensors.h"

namespace lockstep::data {

struct TensorEntry {
  std::string name;
  StoredType dtype = StoredType::f32;
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  // bytes, counted from the end of the header
};

struct SafetensorsHeader {
  std::vector<TensorEntry> entries;
  std::map<std::string, std::string> metadata;
};

// `text` is the header of `file` (named in errors), `data_bytes` what the file holds after it. Throws Error.
SafetensorsHeader parse_header(std::string_view text, int64_t data_bytes, const std::string& file);

// The text for such a header, padded with spaces so that the data begin at a multiple of eight bytes. Throws
// Error where the header is one that parse_header would refuse.
std::string header_text(const SafetensorsHeader& header, const std::string& file);

// Bytes of a tensor; -1 where they, or the product of its dimensions other than 0, do not fit into 64 bits.
int64_t bytes_of(StoredType dtype, const std::vector<int64_t>& shape);

}  // namespace lockstep::data

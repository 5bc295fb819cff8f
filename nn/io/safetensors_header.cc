// The parser hands over one event a token, so no tree is built and nesting costs no stack: a small state
// machine takes what may come at each place and refuses everything else by name.
#include "nn/io/safetensors_header.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/printable.h"
#include "kernels/check.h"

namespace lockstep::data {
namespace {

struct TypeRow {
  StoredType type;
  size_t size;
  const char* name;
};
constexpr std::array kTypes = {
    TypeRow{StoredType::u8, 1, "U8"},     TypeRow{StoredType::i32, 4, "I32"},
    TypeRow{StoredType::i64, 8, "I64"},   TypeRow{StoredType::f16, 2, "F16"},
    TypeRow{StoredType::bf16, 2, "BF16"}, TypeRow{StoredType::f32, 4, "F32"},
    TypeRow{StoredType::f64, 8, "F64"},
};
constexpr const char* kTypeNames = "U8, I32, I64, F16, BF16, F32 or F64";
constexpr size_t kMaxRank = 8;
constexpr const char* kMetadata = "__metadata__";
constexpr int64_t kMaxInteger = std::numeric_limits<int64_t>::max();

const TypeRow& row_of(StoredType type) {
  return *std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeRow& row) { return row.type == type; });
}

std::string list(const std::vector<int64_t>& numbers) {
  return fmt::format("[{}]", fmt::join(numbers, ", "));
}

[[noreturn]] void fail(const std::string& file, std::string_view subject, std::string_view found,
                       std::string_view expected) {
  throw Error(fmt::format("{}: {}: found {}, expected {}", file, subject, found, expected));
}

class HeaderReader final : public nlohmann::json::json_sax_t {
 public:
  explicit HeaderReader(const std::string& file) : file_(file) {}

  SafetensorsHeader take() { return std::move(header_); }

  bool null() override { refuse("null"); }
  bool boolean(bool value) override { refuse(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { refuse(std::to_string(value)); }  // a negative one
  bool number_float(number_float_t, const string_t& text) override { refuse(text.substr(0, 40)); }
  bool binary(binary_t&) override { refuse("bytes"); }

  bool number_unsigned(number_unsigned_t value) override {
    const bool in_list = place_ == Place::shape || place_ == Place::offsets;
    if (!in_list || value > static_cast<uint64_t>(kMaxInteger)) refuse(std::to_string(value));
    (place_ == Place::shape ? entry_.shape : offsets_).push_back(static_cast<int64_t>(value));
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::metadata) {
      header_.metadata[key_] = std::move(value);
    } else if (place_ == Place::tensor && key_ == "dtype") {
      const auto row = std::find_if(kTypes.begin(), kTypes.end(), [&](auto& r) { return value == r.name; });
      if (row == kTypes.end()) fail(file_, subject(), in_quotes(value), kTypeNames);
      entry_.dtype = row->type;
    } else {
      refuse(in_quotes(value));
    }
    return true;
  }

  bool start_object(size_t) override {
    if (place_ == Place::before) {
      place_ = Place::tensors;
    } else if (place_ == Place::tensors) {
      place_ = name_ == kMetadata ? Place::metadata : Place::tensor;
      entry_ = {};
      entry_.name = name_;
      keys_.clear();
    } else {
      refuse("an object");
    }
    return true;
  }

  bool key(string_t& value) override {
    if (place_ == Place::tensors) {
      name_ = std::move(value);
      if (!names_.insert(name_).second) fail(file_, subject(), "this name twice", "each name once");
      return true;
    }
    key_ = std::move(value);
    if (!keys_.insert(key_).second) fail(file_, subject(), "this key twice", "each key once");
    if (place_ == Place::tensor && key_ != "dtype" && key_ != "shape" && key_ != "data_offsets")
      fail(file_, "tensor " + in_quotes(name_), "the key " + in_quotes(key_), kKeys);
    return true;
  }

  bool end_object() override {
    if (place_ == Place::tensors) {
      place_ = Place::after;
      return true;
    }
    if (place_ == Place::tensor) {
      for (const char* wanted : {"dtype", "shape", "data_offsets"})
        if (!keys_.contains(wanted))
          fail(file_, "tensor " + in_quotes(name_), fmt::format("no {}", wanted), kKeys);
      header_.entries.push_back(std::move(entry_));
    }
    place_ = Place::tensors;
    return true;
  }

  bool start_array(size_t) override {
    if (place_ != Place::tensor || key_ == "dtype") refuse("an array");
    place_ = key_ == "shape" ? Place::shape : Place::offsets;
    offsets_.clear();
    return true;
  }

  bool end_array() override {
    if (place_ == Place::shape && entry_.shape.size() > kMaxRank)
      fail(file_, subject(), fmt::format("{} dimensions", entry_.shape.size()),
           fmt::format("at most {}", kMaxRank));
    if (place_ == Place::offsets) {
      if (offsets_.size() != 2)
        fail(file_, subject(), fmt::format("{} numbers", offsets_.size()), "2: where it begins and ends");
      entry_.begin = offsets_[0];
      entry_.end = offsets_[1];
    }
    place_ = Place::tensor;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) override {
    // The parser counts the characters that it has read; before the header stand its eight bytes of length.
    fail(file_, fmt::format("offset {}", 8 + position - 1), "text that is no JSON",
         "a JSON object to the header's end");
  }

 private:
  enum class Place { before, tensors, metadata, tensor, shape, offsets, after };
  static constexpr const char* kKeys = "dtype, shape and data_offsets";

  std::string subject() const {
    switch (place_) {
      case Place::before:
      case Place::after:
        return "the header";
      case Place::tensors:
        return name_ == kMetadata ? name_ : "tensor " + in_quotes(name_);
      case Place::metadata:
        return fmt::format("{}: {}", kMetadata, in_quotes(key_));
      default:
        return fmt::format("tensor {}: {}", in_quotes(name_), key_);
    }
  }

  // What has come has no business at this place.
  [[noreturn]] void refuse(std::string_view found) const {
    switch (place_) {
      case Place::metadata:
        fail(file_, subject(), found, "a string");
      case Place::tensor:
        fail(file_, subject(), found, key_ == "dtype" ? kTypeNames : "an array of integers");
      case Place::shape:
      case Place::offsets:
        fail(file_, subject(), found, fmt::format("an integer from 0 to {}", kMaxInteger));
      default:
        fail(file_, subject(), found, "an object");
    }
  }

  const std::string& file_;
  SafetensorsHeader header_;
  Place place_ = Place::before;
  std::string name_;              // the last key at the top: a tensor or __metadata__
  std::string key_;               // the last key below it
  std::set<std::string> names_;   // the keys at the top so far
  std::set<std::string> keys_;    // the keys of this object below it so far
  TensorEntry entry_;             // the tensor being read
  std::vector<int64_t> offsets_;  // and its data_offsets
};

// Places within the data, as large as shape and type say, one after the other without gap or overlap.
void check_places(const std::vector<TensorEntry>& entries, int64_t data_bytes, const std::string& file) {
  std::vector<const TensorEntry*> order;
  for (const TensorEntry& entry : entries) {
    const std::string subject = "tensor " + in_quotes(entry.name);
    const std::string place = fmt::format("data_offsets [{}, {}]", entry.begin, entry.end);
    if (entry.begin > entry.end) fail(file, subject, place, "an end that is not before the beginning");
    if (entry.end > data_bytes)
      fail(file, subject, place, fmt::format("at most {}, the bytes after the header", data_bytes));
    const int64_t bytes = bytes_of(entry.dtype, entry.shape);
    if (bytes < 0) fail(file, subject, "shape " + list(entry.shape), "a size that fits into 64 bits");
    if (bytes != entry.end - entry.begin)
      fail(file, subject, fmt::format("{}: {} bytes", place, entry.end - entry.begin),
           fmt::format("{} bytes for {} {}", bytes, name_of(entry.dtype), list(entry.shape)));
    order.push_back(&entry);
  }
  // Empty tensors share their place with the beginning of another one: they come first.
  std::stable_sort(order.begin(), order.end(), [](const TensorEntry* a, const TensorEntry* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  int64_t covered = 0;
  for (const TensorEntry* entry : order) {
    if (entry->begin != covered)
      fail(file, "tensor " + in_quotes(entry->name),
           fmt::format("data_offsets [{}, {}]: {}", entry->begin, entry->end,
                       entry->begin < covered ? "an overlap" : "a gap"),
           fmt::format("a beginning at {}, where the tensor before it ends", covered));
    covered = entry->end;
  }
  if (covered != data_bytes)
    fail(file, "after the last tensor", fmt::format("{} more bytes", data_bytes - covered),
         "the end of the file");
}

std::string json_string(const std::string& text, const std::string& file) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::type_error&) {
    fail(file, in_quotes(text), "bytes that are no UTF-8", "UTF-8");
  }
}

}  // namespace

size_t size_of(StoredType type) {
  return row_of(type).size;
}
const char* name_of(StoredType type) {
  return row_of(type).name;
}

int64_t bytes_of(StoredType dtype, const std::vector<int64_t>& shape) {
  int64_t bytes = static_cast<int64_t>(size_of(dtype));
  bool empty = false;
  for (const int64_t size : shape) {
    if (size == 0)
      empty = true;
    else if (size < 0 || size > kMaxInteger / bytes)
      return -1;
    else
      bytes *= size;
  }
  return empty ? 0 : bytes;
}

SafetensorsHeader parse_header(std::string_view text, int64_t data_bytes, const std::string& file) {
  if (text.empty() || text.front() != '{')
    fail(file, "offset 8", text.empty() ? "no header" : in_quotes(text.substr(0, 1)),
         "\"{\", where the header begins");
  if (const size_t zero = text.find('\0'); zero != text.npos)  // to the parser it would be the end
    fail(file, fmt::format("offset {}", 8 + zero), "a zero byte", "JSON");
  HeaderReader reader(file);
  nlohmann::json::sax_parse(text.begin(), text.end(), &reader);
  SafetensorsHeader header = reader.take();
  check_places(header.entries, data_bytes, file);
  return header;
}

std::string header_text(const SafetensorsHeader& header, const std::string& file) {
  std::string text = "{";
  const auto item = [&](const std::string& name, std::string_view value) {
    if (text.back() != '{') text += ',';
    text += json_string(name, file);
    text += ':';
    text += value;
  };
  if (!header.metadata.empty()) {
    std::string strings = "{";
    for (const auto& [key, value] : header.metadata) {
      if (strings.size() > 1) strings += ',';
      strings += json_string(key, file) + ':' + json_string(value, file);
    }
    item(kMetadata, strings + '}');
  }
  int64_t data_bytes = 0;
  for (const TensorEntry& entry : header.entries) {
    if (entry.name == kMetadata)
      fail(file, "a tensor's name", in_quotes(entry.name), "one that is not reserved");
    item(entry.name, fmt::format(R"({{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                                 name_of(entry.dtype), fmt::join(entry.shape, ","), entry.begin, entry.end));
    data_bytes = std::max(data_bytes, entry.end);
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (static_cast<int64_t>(text.size()) > kMaxSafetensorsHeader)
    fail(file, "the header", fmt::format("{} bytes", text.size()),
         fmt::format("at most {}", kMaxSafetensorsHeader));
  parse_header(text, data_bytes, file);
  return text;
}

}  // namespace lockstep::data

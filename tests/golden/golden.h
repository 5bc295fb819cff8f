// Reads golden files: named arrays that another program computed (lenet.py, beside this file, with PyTorch).
//
// The format, all little-endian, without padding:
//   8 bytes   "LSGOLDEN"
//   uint32    version, 1
//   uint32    number of records; then each record:
//     uint32    length of the name; the name's bytes
//     uint32    element type: 0 uint8, 1 float32, 2 float64
//     uint32    rank; then as many int64 dimensions (none for a scalar)
//     the elements, row-major
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/check.h"

namespace lockstep::golden {

struct Record {
  uint32_t type = 0;
  std::vector<int64_t> shape;
  std::string bytes;
};

template <class T>
inline constexpr uint32_t kType = std::is_same_v<T, uint8_t> ? 0
                                  : std::is_same_v<T, float> ? 1
                                                             : 2;

class GoldenFile {
 public:
  explicit GoldenFile(const std::string& path) : path_(path) {
    std::ifstream file(path_, std::ios::binary);
    if (!file) throw Error(path_ + ": cannot open");
    content_.assign(std::istreambuf_iterator<char>(file), {});
    if (take_bytes(8) != "LSGOLDEN" || take<uint32_t>() != 1)
      throw Error(path_ + ": not a golden file, version 1");
    const auto count = take<uint32_t>();
    for (uint32_t i = 0; i < count; ++i) {
      const std::string record_name = take_bytes(take<uint32_t>());
      Record& record = records_[record_name];
      record.type = take<uint32_t>();
      if (record.type > 2) throw Error(path_ + ": unknown element type of record " + record_name);
      record.shape.resize(take<uint32_t>());
      size_t size = record.type == 0 ? 1 : record.type == 1 ? 4 : 8;
      for (int64_t& dimension : record.shape) size *= static_cast<size_t>(dimension = take<int64_t>());
      record.bytes = take_bytes(size);
    }
    if (next_ != content_.size()) throw Error(path_ + ": bytes after the last record");
    content_.clear();
  }

  const std::vector<int64_t>& shape(const std::string& name) const { return find(name).shape; }

  // The elements of a record of type T: uint8_t, float or double.
  template <class T>
  std::vector<T> values(const std::string& name) const {
    const Record& record = find(name);
    if (record.type != kType<T>) throw Error(path_ + ": record " + name + " has another element type");
    std::vector<T> result(record.bytes.size() / sizeof(T));
    std::memcpy(result.data(), record.bytes.data(), record.bytes.size());
    return result;
  }

  template <class T>
  T scalar(const std::string& name) const {
    return values<T>(name).at(0);
  }

 private:
  const Record& find(const std::string& name) const {
    const auto found = records_.find(name);
    if (found == records_.end()) throw Error(path_ + ": no record " + name);
    return found->second;
  }

  std::string take_bytes(size_t size) {
    if (size > content_.size() - next_) throw Error(path_ + ": cut short");
    next_ += size;
    return content_.substr(next_ - size, size);
  }

  template <class T>
  T take() {
    T value;
    std::memcpy(&value, take_bytes(sizeof(T)).data(), sizeof(T));
    return value;
  }

  std::string path_;
  std::string content_;
  size_t next_ = 0;
  std::map<std::string, Record> records_;
};

}  // namespace lockstep::golden

// Fuzz target for the reader of safetensors files. CTest runs it through driver.cc; libFuzzer finds more
// (from clang 16 on; before that with the CUDA toolkit's headers in place of hostcuda's):
//   clang++ -std=c++20 -g -O1 -fsanitize=fuzzer,address,undefined -I. -Ihostcuda/include -o fuzz_st
//     tests/fuzz/safetensors_fuzz.cc
//     nn/io/{safetensors,safetensors_header,file_kind,open_file,replace_file}.cc core/printable.cc -lfmt
//   ./fuzz_st -malloc_limit_mb=64 -max_total_time=60 NEW_FOLDER tests/fuzz/corpus/safetensors
#include "nn/io/safetensors.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

#include "nn/io/safetensors_header.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep {
namespace {

void run(const std::vector<uint8_t>& input) {
  fuzz::read_or_refuse(fuzz::file_of(input.data(), input.size()), [&](const auto& file) {
    const data::Safetensors read = data::read_safetensors(file);
    std::set<std::string> names;
    data::SafetensorsHeader header{.entries = {}, .metadata = read.metadata};
    int64_t end = 0;
    for (const data::HostTensor& tensor : read.tensors) {
      fuzz::demand(names.insert(tensor.name).second, "unique names");
      const int64_t begin = end;
      end += static_cast<int64_t>(tensor.bytes.size());
      fuzz::demand(data::bytes_of(tensor.dtype, tensor.shape) == end - begin,
                   "as many bytes as type and shape say");
      header.entries.push_back({tensor.name, tensor.dtype, tensor.shape, begin, end});
    }
    uint64_t length;
    std::memcpy(&length, input.data(), sizeof length);
    fuzz::demand(sizeof length + length + static_cast<uint64_t>(end) == input.size(),
                 "every byte of data once");
    // What was read can be written, and reads as the same again.
    const std::string text = data::header_text(header, file);
    fuzz::demand(data::header_text(data::parse_header(text, end, file), file) == text,
                 "the same header again");
  });
}

}  // namespace
}  // namespace lockstep

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<uint8_t> input(data, data + size);
  lockstep::run(input);
  // Once more with a length that lets the header end with its last brace: else hardly a mutation that moves
  // bytes would come as far as the JSON.
  const auto brace = std::find(input.rbegin(), input.rend(), '}').base();
  if (brace - input.begin() > 8) {
    const uint64_t length = static_cast<uint64_t>(brace - input.begin() - 8);
    std::memcpy(input.data(), &length, sizeof length);
    lockstep::run(input);
  }
  return 0;
}

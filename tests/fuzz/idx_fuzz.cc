// Fuzz target for the reader of IDX files, plain and packed, of labels and of images. CTest runs it through
// driver.cc; libFuzzer finds more (from clang 16 on; before that with the CUDA toolkit's headers in place of
// hostcuda's):
//   clang++ -std=c++20 -g -O1 -fsanitize=fuzzer,address,undefined -I. -Ihostcuda/include -o fuzz_idx
//     tests/fuzz/idx_fuzz.cc nn/data/idx.cc nn/io/{file_kind,open_file}.cc core/printable.cc -lfmt -lz
//   ./fuzz_idx -malloc_limit_mb=64 -rss_limit_mb=2048 -max_total_time=60 NEW_FOLDER tests/fuzz/corpus/idx
#include "nn/data/idx.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  const auto path = fuzz::file_of(data, size);
  for (const int rank : {1, 3})
    fuzz::read_or_refuse(path, [&](const auto& file) {
      const data::IdxArray array = data::read_idx(file, rank);
      fuzz::demand(static_cast<int>(array.shape.size()) == rank, "the wanted rank");
      size_t count = 1;
      for (const int64_t dimension : array.shape) {
        fuzz::demand(dimension > 0, "dimensions of at least 1");
        count *= static_cast<size_t>(dimension);
      }
      fuzz::demand(count == array.values.size(), "as many values as the shape says");
    });
  return 0;
}

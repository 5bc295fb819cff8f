// Runs a fuzz target without libFuzzer: every file of a corpus, then mutations of them, drawn from a seed. A
// crash, an unexpected exception or an allocation that the input's size does not justify ends the program,
// and the input lies in the file `crash`: run the program on its folder to see it again.
//   fuzz_idx CORPUS [MUTATIONS [SEED]]
#include <algorithm>
#include <array>
#include <csignal>
#include <fstream>
#include <iterator>
#include <new>
#include <random>
#include <string_view>
#include <vector>

#include "tests/fuzz/fuzz.h"

namespace {

using Input = std::vector<uint8_t>;
Input input;  // the one being run

extern "C" void save_crash(int signal) {
  if (std::FILE* file =
          std::fopen("crash", "wb")) {  // the program is lost already: what may fail here may fail
    std::fwrite(input.data(), 1, input.size(), file);
    std::fclose(file);
    std::fprintf(stderr, "fuzz: the input is in ./crash\n");
  }
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

class Mutator {
 public:
  Mutator(const std::vector<Input>& corpus, uint64_t seed) : corpus_(corpus), random_(seed) {}

  Input next() {
    Input bytes = pick();
    for (size_t count = 1 + below(4); count > 0; --count) mutate(bytes);
    return bytes;
  }

 private:
  size_t below(size_t n) { return random_() % n; }
  const Input& pick() { return corpus_[below(corpus_.size())]; }

  void mutate(Input& bytes) {
    const size_t at = below(bytes.size() + 1);
    const auto here = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    const size_t rest = bytes.size() - at;
    const auto end_of_some = [&](auto from, size_t most) {
      return from + static_cast<std::ptrdiff_t>(std::min(most, 1 + below(16)));
    };
    switch (below(8)) {
      case 0:  // cut short
        bytes.erase(here, bytes.end());
        break;
      case 1:  // a few bytes less
        bytes.erase(here, end_of_some(here, rest));
        break;
      case 2: {  // a few bytes of another file more
        const Input& other = pick();
        if (other.empty()) break;
        const size_t from = below(other.size());
        const auto begin = other.begin() + static_cast<std::ptrdiff_t>(from);
        bytes.insert(here, begin, end_of_some(begin, other.size() - from));
        break;
      }
      case 3: {  // an integer at its limits, in either byte order
        static constexpr std::array<uint64_t, 8> kValues = {
            0,         1, 0x7fffffff, 0xffffffff, 0x7fffffffffffffff, 0xffffffffffffffff, 0x0100000000000000,
            0x40000000};
        const uint64_t value = kValues[below(kValues.size())];
        const bool big = below(2) == 0;
        for (size_t i = 0; i < std::min<size_t>(rest, 8); ++i)
          bytes[at + i] = static_cast<uint8_t>(value >> 8 * (big ? 7 - i : i));
        break;
      }
      case 4: {  // a word of JSON
        static constexpr std::array<std::string_view, 14> kWords = {"{",
                                                                    "}",
                                                                    "[",
                                                                    "]",
                                                                    "\"",
                                                                    "null",
                                                                    "-1",
                                                                    "18446744073709551616",
                                                                    "1e99",
                                                                    "\"dtype\"",
                                                                    "\"shape\"",
                                                                    "\"BF16\"",
                                                                    "data_offsets",
                                                                    "0,"};
        const std::string_view word = kWords[below(kWords.size())];
        bytes.insert(here, word.begin(), word.end());
        break;
      }
      case 5:  // another digit, where there is one
        for (size_t i = at; i < bytes.size(); ++i)
          if (bytes[i] >= '0' && bytes[i] <= '9') {
            bytes[i] = static_cast<uint8_t>('0' + below(10));
            break;
          }
        break;
      case 6:
        if (rest > 0) bytes[at] = static_cast<uint8_t>(random_());
        break;
      default:
        if (rest > 0) bytes[at] ^= static_cast<uint8_t>(1 << below(8));
    }
  }

  const std::vector<Input>& corpus_;
  std::mt19937_64 random_;
};

std::vector<Input> read_corpus(const char* folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<Input> corpus;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return corpus;
}

}  // namespace

// Inputs here are a few kB: whoever asks for more at once believes what a header claims.
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  lockstep::fuzz::demand(size <= size_t{64} << 20, "no allocation of more than 64 MiB");
  return std::malloc(size);
}
void* operator new(size_t size) {
  if (void* memory = operator new(size, std::nothrow)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}

int main(int argc, char** argv) {
  using lockstep::fuzz::accepted, lockstep::fuzz::refused;
  if (argc < 2 || argc > 4) {
    std::fprintf(stderr, "usage: %s CORPUS [MUTATIONS [SEED]]\n", argv[0]);
    return 2;
  }
  const std::vector<Input> corpus = read_corpus(argv[1]);
  const uint64_t mutations = argc > 2 ? std::stoull(argv[2]) : 0, seed = argc > 3 ? std::stoull(argv[3]) : 0;
  lockstep::fuzz::demand(!corpus.empty(), "a corpus with files in it");
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE}) std::signal(signal, save_crash);

  std::printf("%zu files, then %llu mutations from seed %llu\n", corpus.size(),
              static_cast<unsigned long long>(mutations), static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  for (const Input& file : corpus) LLVMFuzzerTestOneInput((input = file).data(), file.size());
  lockstep::fuzz::demand(argc == 2 || (accepted > 0 && refused > 0), "a corpus of both good and bad files");
  Mutator mutator(corpus, seed);
  for (uint64_t i = 0; i < mutations; ++i) {
    input = mutator.next();
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  std::printf("%lld accepted, %lld refused\n", static_cast<long long>(accepted),
              static_cast<long long>(refused));
}

// Preprocessed C++ cut into tokens: as much of the language as one must know to find `<<<` and not to look
// into a string.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace hostcuda::translate {

struct Token {
  enum class Kind : unsigned char { space, line_marker, word, number, string, character, punctuation };
  Kind kind;
  bool in_system_header;
  int line;
  int file;               // an index into Tokens::files
  std::string_view text;  // punctuation: one character, but for `::` and `->`
};

struct Tokens {
  std::vector<Token> tokens;
  std::vector<std::string> files;
};

// Cuts the output of `g++ -E`. The tokens' texts, one after the other, are `text`, which must outlive them.
Tokens cut(std::string_view text);

}  // namespace hostcuda::translate

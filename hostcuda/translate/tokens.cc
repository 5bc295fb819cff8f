// A loop over the text that knows where comments' absence ends: strings, raw strings, characters, numbers and
// markers.
#include "hostcuda/translate/tokens.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>

namespace hostcuda::translate {
namespace {

bool begins_word(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || (c & 0x80) != 0;
}

bool continues_word(char c) {
  return begins_word(c) || std::isdigit(static_cast<unsigned char>(c)) != 0;
}

class Cutter {
 public:
  explicit Cutter(std::string_view text) : text_(text) {}

  Tokens run() {
    file_of("");
    while (at_ < text_.size()) {
      const size_t begin = at_;
      const int line = line_;
      const Token::Kind kind = next();
      const std::string_view token = text_.substr(begin, at_ - begin);
      if (kind == Token::Kind::line_marker)
        read_marker(token);
      else
        line_ += static_cast<int>(std::count(token.begin(), token.end(), '\n'));
      result_.tokens.push_back({kind, in_system_header_, line, file_, token});
    }
    return std::move(result_);
  }

 private:
  char look(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

  // Moves past one token.
  Token::Kind next() {
    const char c = look();
    if (c == '#' && (at_ == 0 || text_[at_ - 1] == '\n')) {
      at_ = std::min(text_.find('\n', at_), text_.size() - 1) + 1;
      return Token::Kind::line_marker;
    }
    if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      // A line's end ends the token, so that a marker is at its own beginning.
      while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(look())) != 0) ++at_;
      return Token::Kind::space;
    }
    if (begins_word(c)) {
      while (continues_word(look())) ++at_;
      if (look() == '"' && text_[at_ - 1] == 'R') return raw_string();
      return Token::Kind::word;
    }
    if (std::isdigit(static_cast<unsigned char>(c)) != 0 ||
        (c == '.' && std::isdigit(static_cast<unsigned char>(look(1))) != 0))
      return number();
    if (c == '"' || c == '\'') return quoted(c);
    at_ += (c == ':' && look(1) == ':') || (c == '-' && look(1) == '>') ? 2 : 1;
    return Token::Kind::punctuation;
  }

  Token::Kind number() {
    while (continues_word(look()) || look() == '.' || (look() == '\'' && continues_word(look(1)))) {
      const char c = look();
      ++at_;
      if ((c == 'e' || c == 'E' || c == 'p' || c == 'P') && (look() == '+' || look() == '-')) ++at_;
    }
    return Token::Kind::number;
  }

  Token::Kind quoted(char quote) {
    ++at_;
    while (at_ < text_.size() && look() != quote && look() != '\n') at_ += look() == '\\' ? 2 : 1;
    at_ = std::min(at_ + 1, text_.size());
    return quote == '"' ? Token::Kind::string : Token::Kind::character;
  }

  // R"name( ... )name"
  Token::Kind raw_string() {
    const size_t open = text_.find('(', at_);
    std::string close = ")";
    close += open == std::string_view::npos ? "" : text_.substr(at_ + 1, open - at_ - 1);
    close += '"';
    const size_t end = text_.find(close, at_);
    at_ = end == std::string_view::npos ? text_.size() : end + close.size();
    return Token::Kind::string;
  }

  // # 12 "file" 1 3, where 3 says system header
  void read_marker(std::string_view marker) {
    const size_t digit = marker.find_first_of("0123456789");
    const size_t quote = marker.find('"'), end = marker.rfind('"');
    if (digit == std::string_view::npos || quote == std::string_view::npos || end == quote)
      return ++line_, void();
    std::from_chars(marker.data() + digit, marker.data() + marker.size(), line_);
    file_ = file_of(std::string(marker.substr(quote + 1, end - quote - 1)));
    in_system_header_ = marker.find(" 3", end) != std::string_view::npos;
  }

  int file_of(const std::string& name) {
    const auto [found, added] = numbers_.try_emplace(name, static_cast<int>(result_.files.size()));
    if (added) result_.files.push_back(name);
    return found->second;
  }

  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
  int file_ = 0;
  bool in_system_header_ = false;
  std::map<std::string, int> numbers_;
  Tokens result_;
};

}  // namespace

Tokens cut(std::string_view text) {
  return Cutter(text).run();
}

}  // namespace hostcuda::translate

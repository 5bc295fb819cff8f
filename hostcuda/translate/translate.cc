// The rewriting: one walk over the tokens for each of the four forms, which note what goes before or after a
// token.
#include "hostcuda/translate/translate.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "hostcuda/translate/refused.h"
#include "hostcuda/translate/tokens.h"

namespace hostcuda::translate {
namespace {

using Kind = Token::Kind;
constexpr size_t kNone = static_cast<size_t>(-1);
constexpr std::string_view kGlobal = "__hostcuda_global__", kShared = "__hostcuda_shared__";

class Translator {
 public:
  explicit Translator(std::string_view text)
      : source_(cut(text)),
        tokens_(source_.tokens),
        before_(tokens_.size()),
        after_(tokens_.size()),
        drop_(tokens_.size()) {}

  std::string run() {
    refuse_headers();
    find_scopes();
    find_kernels();
    for (size_t i = 0; i < tokens_.size(); ++i) {
      if (is(i, kShared)) rewrite_shared(i);
      if (is(i, "<") && is(i + 1, "<") && is(i + 2, "<")) rewrite_launch(i);
      if (is(i, "(")) rewrite_cast_to_pointer(i);
      // A word of CUDA and, in brackets, of g++'s attributes: no macro can tell them apart.
      if (is(i, "__noinline__") && !(previous(i) != kNone && is(previous(i), "("))) drop_[i] = true;
      refuse(i);
    }
    if (!refusals_.empty()) throw Refused(refusals_);
    std::string result;
    for (size_t i = 0; i < tokens_.size(); ++i) {
      result += before_[i];
      if (!drop_[i]) result += tokens_[i].text;
      result += after_[i];
    }
    return result;
  }

 private:
  bool is(size_t i, std::string_view text) const { return i < tokens_.size() && tokens_[i].text == text; }
  bool is_word(size_t i) const { return i < tokens_.size() && tokens_[i].kind == Kind::word; }
  bool is_blank(size_t i) const {
    return tokens_[i].kind == Kind::space || tokens_[i].kind == Kind::line_marker;
  }

  size_t next(size_t i) const {
    for (++i; i < tokens_.size(); ++i)
      if (!is_blank(i)) return i;
    return kNone;
  }
  size_t previous(size_t i) const {
    while (i-- > 0)
      if (!is_blank(i)) return i;
    return kNone;
  }

  // From an opening bracket to the closing one, over brackets of all kinds but `<`.
  size_t closing(size_t i) const {
    int depth = 0;
    for (; i < tokens_.size(); ++i) {
      if (is(i, "(") || is(i, "[") || is(i, "{")) ++depth;
      if ((is(i, ")") || is(i, "]") || is(i, "}")) && --depth == 0) return i;
    }
    return kNone;
  }
  size_t opening(size_t i) const {
    int depth = 0;
    for (; i != kNone; i = i == 0 ? kNone : i - 1) {
      if (is(i, ")") || is(i, "]") || is(i, "}")) ++depth;
      if ((is(i, "(") || is(i, "[") || is(i, "{")) && --depth == 0) return i;
    }
    return kNone;
  }
  // From the `>` that ends a template's arguments to their `<`.
  size_t opening_angle(size_t i) const {
    int depth = 0;
    for (; i != kNone; i = previous(i)) {
      if (is(i, ")") || is(i, "]")) i = opening(i);
      if (i == kNone || is(i, ";") || is(i, "{")) return kNone;
      if (is(i, ">")) ++depth;
      if (is(i, "<") && --depth == 0) return i;
    }
    return kNone;
  }

  std::string text(size_t first, size_t end) const {
    std::string result;
    for (size_t i = first; i < end; ++i) result += is_blank(i) ? " " : std::string(tokens_[i].text);
    return result;
  }

  std::string where(size_t i) const {
    return source_.files[tokens_[i].file] + ":" + std::to_string(tokens_[i].line);
  }

  void refuse(size_t i, const std::string& message) { refusals_ += where(i) + ": " + message + "\n"; }

  // A header of NVIDIA's own that is on this machine would be found, and not compile.
  void refuse_headers() {
    std::set<int> seen;
    size_t from = kNone;  // the last token of another file
    for (size_t i = 0; i < tokens_.size(); ++i) {
      if (is_blank(i)) continue;
      const int file = tokens_[i].file;
      if (seen.insert(file).second) {
        const std::string message = why_header_refused(source_.files[file]);
        if (!message.empty()) {
          refuse(from == kNone ? i : from, message);
          throw Refused(refusals_);
        }
      }
      from = i;
    }
  }

  // in_namespace_[i]: whether token i stands in namespaces alone, that is, outside of functions and classes.
  void find_scopes() {
    in_namespace_.resize(tokens_.size());
    std::vector<bool> scopes;
    bool outside = true;
    for (size_t i = 0; i < tokens_.size(); ++i) {
      in_namespace_[i] = outside;
      if (is(i, "{")) {
        const size_t name = previous(i), keyword = name == kNone ? kNone : previous(name);
        const bool is_namespace =
            (name != kNone && is(name, "namespace")) ||
            (keyword != kNone && (is(keyword, "namespace") || is(keyword, "inline"))) ||
            (keyword != kNone && is(keyword, "extern") && tokens_[name].kind == Kind::string);
        scopes.push_back(outside);
        outside = outside && (is_namespace || is_nested_namespace(i));
      }
      if (is(i, "}") && !scopes.empty()) {
        outside = scopes.back();
        scopes.pop_back();
      }
    }
  }

  // namespace a::b {, and with attributes before the brace
  bool is_nested_namespace(size_t brace) const {
    for (size_t i = previous(brace); i != kNone; i = previous(i)) {
      if (is(i, "namespace")) return true;
      if (is(i, ")")) {
        i = opening(i);
        if (i == kNone) return false;
        continue;
      }
      if (!is_word(i) && !is(i, "::")) return false;
    }
    return false;
  }

  // The first token of the declaration that token i is part of.
  size_t declaration_begin(size_t i) const {
    size_t first = i;
    for (size_t at = previous(i); at != kNone; at = previous(at)) {
      if (is(at, ";") || is(at, "{") || is(at, "}")) break;
      if (is(at, ")")) at = opening(at);
      if (at == kNone) break;
      first = at;
    }
    return first;
  }

  struct Definition {
    std::string name;
    size_t open, close;  // its body's braces
    bool is_template;
  };

  void find_kernels() {
    std::vector<Definition> found;
    std::map<std::string, int> definitions;
    for (size_t i = 0; i < tokens_.size(); ++i) {
      if (!is(i, kGlobal)) continue;
      drop_[i] = true;
      const size_t first = declaration_begin(i);
      if (const auto kernel = definition_after(i)) {
        found.push_back(*kernel);
        found.back().is_template = is(first, "template");
        if (!is(first, "template")) ++definitions[kernel->name];
      }
    }
    for (const Definition& kernel : found) {
      kernels_.insert(kernel.name);
      after_[kernel.open] += " ::hostcuda::plain::kernel_body(\"" + kernel.name + "\", [=]() mutable {";
      before_[kernel.close] += " }); ";
      // What is enqueued by address (cudaLaunchKernel, graphs) is found in a list.
      if (!kernel.is_template && definitions[kernel.name] == 1 && in_namespace_[kernel.open])
        after_[kernel.close] += " static const ::hostcuda::plain::ListedKernel hostcuda_listed_" +
                                kernel.name + "(&" + kernel.name + ");";
    }
  }

  // The kernel whose __global__ is token i, if what follows is a definition.
  std::optional<Definition> definition_after(size_t i) {
    size_t name = kNone;
    for (i = next(i); i != kNone; i = next(i)) {
      if (is(i, ";")) return {};  // a declaration
      if (is(i, kGlobal) || is(i, "__attribute__") || is(i, "alignas")) {
        if (!is(i, kGlobal)) i = closing(next(i));
        continue;
      }
      if (is(i, "{")) break;
      if (!is(i, "(")) continue;
      if (name == kNone) name = kernel_name(previous(i));
      i = closing(i);
      if (i == kNone) return {};
    }
    if (i == kNone || name == kNone) return {};
    const size_t close = closing(i);
    if (close == kNone) return {};
    return Definition{std::string(tokens_[name].text), i, close, false};
  }

  // The name that ends at token i, before any template arguments.
  size_t kernel_name(size_t i) const {
    if (i != kNone && is(i, ">")) i = opening_angle(i);
    if (i != kNone && is(i, "<")) i = previous(i);
    return i != kNone && is_word(i) ? i : kNone;
  }

  // extern __shared__ T name[]; becomes a pointer, __shared__ T name[n]; a variable of the thread that runs
  // the block.
  void rewrite_shared(size_t i) {
    drop_[i] = true;
    size_t first = i, external = kNone;
    bool is_static = false;
    for (size_t at = i; at != kNone; at = previous(at)) {
      if (is(at, ";") || is(at, "{") || is(at, "}") || is(at, ")") || is(at, ":")) break;
      first = at;
      if (is(at, "extern")) external = at;
      if (is(at, "static")) is_static = true;
    }
    size_t end = i;
    for (end = next(i); end != kNone && !is(end, ";") && !is(end, "="); end = next(end)) {
      if (is(end, "extern")) external = end;
      if (is(end, "static")) is_static = true;
      if (is(end, "(") || is(end, "[") || is(end, "{")) end = closing(end);
      if (end == kNone) return;
    }
    if (end == kNone) return;
    if (external == kNone) {
      before_[i] += is_static ? "thread_local" : "static thread_local";
      return;
    }
    // The name is the last word before the first bracket.
    size_t bracket = next(i);
    while (bracket != end && !is(bracket, "[")) {
      if (is(bracket, "(")) bracket = closing(bracket);
      bracket = next(bracket);
    }
    const size_t name = previous(bracket);
    if (bracket == end || !is_word(name)) return refuse(i, "extern __shared__ that is no array `T name[]`");
    const size_t empty = closing(bracket);
    std::string type;
    for (size_t at = first; at < name; ++at)
      if (at != i && at != external && !is(at, "static"))
        type += is_blank(at) ? " " : std::string(tokens_[at].text);
    const std::string rest = text(next(empty), end);  // more dimensions
    for (size_t at = first; at < end; ++at) drop_[at] = !is_blank(at) || drop_[at];
    const std::string variable(tokens_[name].text);
    before_[first] +=
        in_namespace_[i] ? "static const ::hostcuda::plain::DynamicShared<" + type + "> " + variable + "{}"
        : rest.empty()   ? type + "* " + variable + " = ::hostcuda::plain::DynamicShared<" + type + ">()"
                         : type + " (*" + variable + ")" + rest + " = reinterpret_cast<" + type + " (*)" +
                             rest + ">(::hostcuda::plain::DynamicShared<" + type + ">().data())";
  }

  // Where the name, or the expression in brackets, begins that ends at token i.
  size_t expression_begin(size_t i) const {
    for (;;) {
      if (i == kNone) return kNone;
      if (is(i, ">")) {
        i = opening_angle(i);
        if (i == kNone) return kNone;
        i = previous(i);
      }
      while (i != kNone && (is(i, ")") || is(i, "]"))) {
        const size_t open = opening(i);
        if (open == kNone) return kNone;
        const size_t callee = previous(open);
        const bool called = callee != kNone &&
                            (is_word(callee) || is(callee, ">") || is(callee, ")") || is(callee, "]")) &&
                            !is(callee, "return");
        if (!called) return open;
        i = callee;
        if (is(i, ">")) break;
      }
      if (i == kNone || is(i, ">")) continue;
      if (!is_word(i)) return kNone;
      const size_t link = previous(i);
      if (link == kNone || !(is(link, "::") || is(link, ".") || is(link, "->"))) return i;
      const size_t owner = previous(link);
      if (is(link, "::") && (owner == kNone || !(is_word(owner) || is(owner, ">")) || is(owner, "return")))
        return link;
      i = owner;
    }
  }

  // The first of the three `>` that end the configuration begun at token i: followed by `(`, at no depth of
  // brackets, and if possible where the angle brackets of template arguments in between are even.
  size_t configuration_end(size_t i) const {
    size_t first_found = kNone;
    int angles = 0;
    for (i += 3; i < tokens_.size(); ++i) {
      if (is(i, ";")) break;
      if (is(i, "(") || is(i, "[") || is(i, "{")) {
        i = closing(i);
        if (i == kNone) break;
        continue;
      }
      if (is(i, ")")) break;
      if (is(i, "<")) ++angles;
      if (!is(i, ">")) continue;
      if (is(i + 1, ">") && is(i + 2, ">") && next(i + 2) != kNone && is(next(i + 2), "(")) {
        if (angles <= 0) return i;
        if (first_found == kNone) first_found = i;
      }
      --angles;
    }
    return first_found;
  }

  void rewrite_launch(size_t i) {
    const size_t begin = expression_begin(previous(i)), end = configuration_end(i);
    const size_t arguments = end == kNone ? kNone : next(end + 2);
    const size_t close = arguments == kNone ? kNone : closing(arguments);
    if (begin == kNone || close == kNone)
      return refuse(i, "a launch `<<<` that is none: kernel<<<grid, block>>>(arguments)");
    const std::string name(
        tokens_[std::max(begin, kernel_name(previous(i)) == kNone ? begin : kernel_name(previous(i)))].text);
    before_[begin] += "(::hostcuda::plain::configure({\"" + escaped(source_.files[tokens_[i].file]) + "\", " +
                      std::to_string(tokens_[i].line) + ", \"" + escaped(name) + "\"}, " + text(i + 3, end) +
                      "), ";
    for (size_t at = i; at < arguments; ++at) drop_[at] = !is_blank(at);
    after_[close] += ")";
  }

  static std::string escaped(const std::string& text) {
    std::string result;
    for (const char c : text) {
      if (c == '"' || c == '\\') result += '\\';
      result += c;
    }
    return result;
  }

  // (void*)kernel, where kernel may be `&kernel<T>`: only as a function can it be put on the list.
  void rewrite_cast_to_pointer(size_t i) {
    const size_t close = closing(i);
    if (close == kNone) return;
    std::string type;
    for (size_t at = i + 1; at < close; ++at)
      if (!is_blank(at)) type += tokens_[at].text;
    if (type != "void*" && type != "constvoid*") return;
    size_t name = next(close);
    if (name != kNone && is(name, "&")) name = next(name);
    if (name == kNone || !is_word(name) || !kernels_.contains(std::string(tokens_[name].text))) return;
    size_t last = name;
    if (is(next(name), "<")) {
      int depth = 0;
      for (last = next(name); last != kNone; last = next(last)) {
        if (is(last, "(")) last = closing(last);
        if (is(last, "<")) ++depth;
        if (is(last, ">") && --depth == 0) break;
      }
      if (last == kNone) return;
    }
    after_[close] += "::hostcuda::plain::kernel_address(";
    after_[last] += ")";
  }

  void refuse(size_t i) {
    if (tokens_[i].kind != Kind::word || tokens_[i].in_system_header) return;
    const size_t after = next(i);
    const std::string message = why_refused(tokens_[i].text, after == kNone ? "" : tokens_[after].text);
    if (!message.empty() && named_.insert(std::string(tokens_[i].text)).second) refuse(i, message);
  }

  Tokens source_;
  std::vector<Token>& tokens_;
  std::vector<std::string> before_, after_;
  std::vector<char> drop_;
  std::vector<bool> in_namespace_;
  std::set<std::string> kernels_;
  std::set<std::string> named_;
  std::string refusals_;
};

}  // namespace

std::string translate(std::string_view preprocessed) {
  return Translator(preprocessed).run();
}

}  // namespace hostcuda::translate

#include "nn/io/file_kind.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

namespace lockstep::data {
namespace {

using namespace std::string_view_literals;

constexpr const char* kFromPyTorch =
    "in Python, safetensors.torch.save_file(torch.load(\"IN\", weights_only=True), \"OUT.safetensors\") "
    "writes one";
constexpr const char* kDownload = "download the file itself";

struct Signature {
  std::string_view begin;
  const char* name;
  const char* advice;
};
constexpr std::array kSignatures = {
    Signature{"PK\3\4"sv, "a zip archive, as PyTorch saves", kFromPyTorch},
    Signature{"\x80\2"sv, "a pickle, as PyTorch saved before version 1.6", kFromPyTorch},
    Signature{"\x80\3"sv, "a Python pickle", kFromPyTorch},
    Signature{"\x80\4"sv, "a Python pickle", kFromPyTorch},
    Signature{"\x80\5"sv, "a Python pickle", kFromPyTorch},
    Signature{"\x89HDF\r\n\x1a\n"sv, "an HDF5 file, as Keras saves", "save the model as safetensors"},
    Signature{"\x93NUMPY"sv, "a NumPy array", "write one with safetensors.numpy.save_file"},
    Signature{"GGUF"sv, "a GGUF file", "take the model's safetensors file"},
    Signature{"version https://git-lfs"sv, "a git-lfs pointer, not the file", "fetch it with git lfs pull"},
    Signature{"\x1f\x8b"sv, "a gzip file", "unpack it with gunzip"},
    Signature{"BZh"sv, "a bzip2 file", "unpack it with bunzip2"},
    Signature{"\xfd"
              "7zXZ\0"sv,
              "an xz file", "unpack it with unxz"},
    Signature{"\x28\xb5\x2f\xfd"sv, "a zstd file", "unpack it with unzstd"},
    Signature{"\x7f"
              "ELF"sv,
              "a program or a library", "name another file"},
    Signature{"\x89PNG\r\n\x1a\n"sv, "a PNG image", "name another file"},
    Signature{"\xff\xd8\xff"sv, "a JPEG image", "name another file"},
    Signature{"%PDF"sv, "a PDF document", kDownload},
};

// Where text begins: after a byte order mark and spaces, in small letters.
std::string text_of(std::string_view begin) {
  if (begin.starts_with("\xef\xbb\xbf")) begin.remove_prefix(3);
  while (!begin.empty() && std::isspace(static_cast<unsigned char>(begin[0])) != 0) begin.remove_prefix(1);
  std::string text(begin);
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

}  // namespace

FileKind kind_of_file(std::span<const std::byte> bytes) {
  const std::string_view begin(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (const Signature& signature : kSignatures)
    if (begin.starts_with(signature.begin)) return {signature.name, signature.advice};
  const std::string text = text_of(begin);
  if (text.starts_with("<!doctype html") || text.starts_with("<html")) return {"an HTML page", kDownload};
  if (text.starts_with("<?xml") || text.starts_with("<!doctype")) return {"an XML document", kDownload};
  if (text.starts_with("{") || text.starts_with("[")) return {"a JSON document", "name another file"};
  return {};
}

}  // namespace lockstep::data

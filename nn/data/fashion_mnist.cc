// The search for the data set's folder, and the checks that images and labels belong together.
#include "nn/data/fashion_mnist.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "core/printable.h"
#include "kernels/check.h"
#include "nn/data/idx.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

struct KnownFile {
  const char* name;  // without .gz
  int64_t bytes;     // unpacked: packed sizes and sums differ from one distributor to the next
  const char* sha256;
};

constexpr std::array<KnownFile, 4> kFiles = {{
    {"train-images-idx3-ubyte", 47040016, "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"},
    {"train-labels-idx1-ubyte", 60008, "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"},
    {"t10k-images-idx3-ubyte", 7840016, "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"},
    {"t10k-labels-idx1-ubyte", 10008, "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"},
}};

// folder/name or folder/name.gz, whichever is there; empty where neither is.
fs::path file_in(const fs::path& folder, const char* name) {
  std::error_code ignored;  // a folder that may not be looked into has no file for us
  for (const char* ending : {"", ".gz"})
    if (fs::path path = folder / fmt::format("{}{}", name, ending); fs::exists(path, ignored)) return path;
  return {};
}

fs::path required_file(const fs::path& folder, const char* name) {
  fs::path path = file_in(folder, name);
  if (path.empty())
    throw Error(fmt::format("{}: found neither {} nor {}.gz", printable(folder.native()), name, name));
  return path;
}

// The first line says what to do; the rest is a table to check a download by hand.
std::string how_to_get_it(std::span<const char* const> folders) {
  std::string text = fmt::format(
      "Fashion-MNIST: not found in {}: install the package dataset-fashion-mnist (Debian, Ubuntu), or "
      "put these four files, plain or as .gz, into {} or a folder named by --data-dir or LOCKSTEP_DATA",
      fmt::join(folders, " or "), folders.front());
  for (const KnownFile& file : kFiles)
    text += fmt::format("\n  {:<23}  {:>8} bytes unpacked, SHA-256 {}", file.name, file.bytes, file.sha256);
  return text;
}

ImageData load(const fs::path& folder, const char* images_name, const char* labels_name) {
  const fs::path images_path = required_file(folder, images_name);
  const fs::path labels_path = required_file(folder, labels_name);
  // Shapes first: a small file can unpack to a thousand times its size.
  IdxArray images = read_idx(images_path, 3, [&](const std::vector<int64_t>& shape) {
    if (shape[1] != 28 || shape[2] != 28)
      throw Error(fmt::format("{}: offset 8: found images of {} x {}, expected 28 x 28",
                              printable(images_path.native()), shape[1], shape[2]));
  });
  IdxArray labels = read_idx(labels_path, 1, [&](const std::vector<int64_t>& shape) {
    if (shape[0] != images.shape[0])
      throw Error(fmt::format("{}: offset 4: found {} labels, expected {}, the number of images in {}",
                              printable(labels_path.native()), shape[0], images.shape[0],
                              printable(images_path.native())));
  });
  const auto bad = std::ranges::find_if(labels.values, [](uint8_t y) { return y >= kFashionMnistClasses; });
  if (bad != labels.values.end()) {
    const int64_t index = bad - labels.values.begin();
    throw Error(fmt::format("{}: offset {}: found label {} at index {}, expected 0 to {}",
                            printable(labels_path.native()), 8 + index, *bad, index,
                            kFashionMnistClasses - 1));
  }
  return {images.shape[0], static_cast<int>(images.shape[1]), static_cast<int>(images.shape[2]),
          std::move(images.values), std::move(labels.values)};
}

}  // namespace

fs::path find_fashion_mnist(const std::string& data_dir, std::span<const char* const> usual_folders) {
  const char* variable = std::getenv("LOCKSTEP_DATA");
  const std::string asked = !data_dir.empty() ? data_dir : variable ? variable : "";
  if (!asked.empty()) {
    std::error_code ignored;
    if (!fs::is_directory(asked, ignored))
      throw Error(fmt::format("{}: not a folder ({})", asked,
                              data_dir.empty() ? "asked for by LOCKSTEP_DATA" : "asked for by --data-dir"));
    for (const KnownFile& file : kFiles) required_file(asked, file.name);
    return asked;
  }
  for (const char* folder : usual_folders)
    if (std::ranges::all_of(kFiles, [&](const KnownFile& f) { return !file_in(folder, f.name).empty(); }))
      return folder;
  throw Error(how_to_get_it(usual_folders));
}

FashionMnist load_fashion_mnist(const fs::path& folder, std::optional<int64_t> train_limit) {
  FashionMnist set{load(folder, kFiles[0].name, kFiles[1].name),
                   load(folder, kFiles[2].name, kFiles[3].name)};
  if (train_limit) {
    if (*train_limit < 1 || *train_limit > set.train.rows)
      throw Error(fmt::format("load_fashion_mnist: asked for the first {} training rows, expected 1 to {}",
                              *train_limit, set.train.rows));
    set.train.rows = *train_limit;
    set.train.images.resize(static_cast<size_t>(*train_limit) * set.train.height * set.train.width);
    set.train.labels.resize(static_cast<size_t>(*train_limit));
  }
  return set;
}

}  // namespace lockstep::data

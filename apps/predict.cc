// Classifies Fashion-MNIST's test images, or one PNG, with a model that training saved.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "apps/common/command_line.h"
#include "apps/common/output.h"
#include "apps/common/progress_bar.h"
#include "apps/common/saved_model.h"
#include "apps/predict/contact_sheet.h"
#include "apps/predict/png.h"
#include "apps/predict/predictions.h"
#include "core/printable.h"

using namespace lockstep;

namespace {

constexpr int kSide = 28;
constexpr int kMostOnASheet = 1000;

struct Options {
  std::string checkpoint, data_dir, sheet, image;
  int images = 40;
  bool only_wrong = false;
};

void validate(const Options& options) {
  if (!options.image.empty() && !options.sheet.empty())
    throw Error("--sheet shows test images, --image classifies another one: use one of the two");
  if (options.only_wrong && options.sheet.empty())
    throw Error("--only-wrong chooses the images of a sheet: name one with --sheet");
  apps::check_value(options.images >= 1 && options.images <= kMostOnASheet, "--images", options.images,
                    "1 to 1000");
  if (options.sheet.empty()) return;
  if (std::filesystem::path(options.sheet).extension() != ".png")
    throw Error(fmt::format("--sheet {}: it is a PNG file: use a name that ends in .png", options.sheet));
  apps::check_can_be_written(options.sheet);
}

void classify_png(const std::string& file, const apps::SavedModel& saved, const Device& device) {
  const apps::Image image = apps::read_png_as_grey(file);
  if (image.width != kSide || image.height != kSide)
    throw Error(
        fmt::format("{}: found {} x {} pixels, the model reads {} x {}: crop it to a square around the "
                    "object, and scale it down",
                    file, image.width, image.height, kSide, kSide));
  int64_t border = 0;
  for (int i = 0; i < kSide; ++i)
    for (const int pixel : {i, (kSide - 1) * kSide + i, i * kSide, i * kSide + kSide - 1})
      border += image.pixels[static_cast<size_t>(pixel)];
  constexpr int kBorderPixels = 4 * kSide, kMiddleGrey = 128;
  const data::ImageData data{
      .rows = 1, .height = kSide, .width = kSide, .images = image.pixels, .labels = {0}};
  const std::vector<double> shares = apps::probabilities(apps::logits_of(*saved.module, data, device));
  std::vector<size_t> order(shares.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return shares[a] > shares[b]; });
  fmt::print("{}: {}\n", printable(file), data::kFashionMnistClassNames[order[0]]);
  for (const size_t c : {order[0], order[1], order[2]})
    fmt::print("  {:.4f} {}\n", shares[c], data::kFashionMnistClassNames[c]);
  if (border > int64_t{kBorderPixels} * kMiddleGrey)
    fmt::print("note: its border is bright, and Fashion-MNIST shows bright objects on black: invert it\n");
}

void write_sheet(const Options& options, const apps::SavedModel& saved, const data::ImageData& test,
                 const std::vector<int>& predicted, const std::string& accuracy) {
  std::vector<apps::SheetImage> images;
  int wrong = 0;
  constexpr size_t kPixels = kSide * kSide;
  for (size_t i = 0; i < predicted.size() && images.size() < static_cast<size_t>(options.images); ++i) {
    const bool right = predicted[i] == test.labels[i];
    if (right && options.only_wrong) continue;
    wrong += !right;
    images.push_back({std::span(test.images).subspan(i * kPixels, kPixels),
                      data::kFashionMnistClassNames[static_cast<size_t>(predicted[i])],
                      data::kFashionMnistClassNames[test.labels[i]]});
  }
  if (images.empty()) {
    fmt::print("{}: not written, as no image is classified wrong\n", options.sheet);
    return;
  }
  const std::vector<std::string> header = {
      fmt::format("{}, {}", apps::title(saved.description), saved.file.filename().string()), accuracy,
      "below each image: predicted and true class; wrong: framed, crossed"};
  apps::write_png(options.sheet, apps::contact_sheet(header, images, kSide, kSide));
  if (options.only_wrong)
    fmt::print("{}: the first {} that are classified wrong\n", options.sheet, wrong);
  else
    fmt::print("{}: the first {} images, {} of them classified wrong\n", options.sheet, images.size(), wrong);
}

// ResNet-18 takes half a minute on a CPU: shows how far it is.
std::vector<float> logits_of_all(nn::Module& module, const data::ImageData& test, const Device& device) {
  apps::ProgressBar bar("test images", 0, test.rows, false);
  return apps::logits_of(module, test, device, [&bar](int64_t images) {
    if (bar.due())
      bar.show(images, fmt::format("{:.0f} images/s", static_cast<double>(images) / bar.seconds()));
  });
}

void classify_test_images(const Options& options, const apps::SavedModel& saved, const Device& device) {
  const std::filesystem::path folder = data::find_fashion_mnist(options.data_dir);
  const data::ImageData test = data::load_fashion_mnist(folder, 1).test;
  fmt::print("data: {} test images from {}\n", test.rows, printable(folder.native()));
  const std::vector<int> predicted = apps::predicted_classes(logits_of_all(*saved.module, test, device));
  int64_t right = 0;
  for (size_t i = 0; i < predicted.size(); ++i) right += predicted[i] == test.labels[i];
  const std::string accuracy =
      fmt::format("accuracy {:.4f}: {} of {} test images",
                  static_cast<double>(right) / static_cast<double>(test.rows), right, test.rows);
  fmt::print("{}{}\n", apps::confusion_table(test.labels, predicted), accuracy);
  if (!options.sheet.empty()) write_sheet(options, saved, test, predicted, accuracy);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Classifies Fashion-MNIST's test images with a trained model, tells which classes\n"
      "it takes for which, and draws a sheet of images with their classes; or\n"
      "classifies one PNG.",
      "predict");
  apps::use_help_format(app);
  Options options;
  app.add_option("--checkpoint", options.checkpoint,
                 "A weights file, or a folder of checkpoints: then the newest one in it.")
      ->required();
  app.add_option(
      "--data-dir", options.data_dir,
      "Folder with the four Fashion-MNIST files. Else $LOCKSTEP_DATA, data/fashion-mnist, and Debian's "
      "package are tried.");
  app.add_option("--sheet", options.sheet, "Write a contact sheet to this PNG file.");
  app.add_option("--images", options.images, "So many images are on the sheet: the first ones.");
  app.add_flag("--only-wrong", options.only_wrong, "Only those on the sheet that are classified wrong.");
  app.add_option("--image", options.image,
                 "Classify this PNG file instead: 28 x 28 pixels, bright on black; colours become grey.");
  app.footer(
      "Examples:\n"
      "  ./lab predict --checkpoint runs/a --sheet sheet.png\n"
      "  ./lab predict --checkpoint runs/a --sheet wrong.png --only-wrong --images 100\n"
      "  ./lab predict --checkpoint runs/a --image shoe.png");
  if (const int exit_code = apps::parse(app, argc, argv); exit_code >= 0) return exit_code;

  return apps::report_errors("predict", [&] {
    validate(options);
    const Device device = make_devices(1)[0];
    const apps::SavedModel saved = apps::load_model(options.checkpoint, device);
    fmt::print("{} from {}\n", apps::title(saved.description), printable(saved.file.native()));
    if (options.image.empty())
      classify_test_images(options, saved, device);
    else
      classify_png(options.image, saved, device);
    return 0;
  });
}

// predict as its users see it: the table, the sheet, one PNG, and every bad input.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <sstream>

#include "apps/predict/png.h"
#include "tests/apps/decoded_png.h"
#include "tests/apps/program.h"
#include "tests/apps/saved_lenet.h"
#include "tests/apps/small_fashion_mnist.h"

namespace lockstep::apps {
namespace {

constexpr int kTestRows = 40;  // their classes go round
constexpr int kDress = 3;
constexpr std::array<double, 10> kMostlyDress = {.01, .01, .01, .7, .2, .01, .005, .0025, .05, .0025};

class Predict : public testing::Test {
 protected:
  Predict() {
    write_weights(path("dress.safetensors"), lenet_that_says(kMostlyDress, model_), model_.description);
  }

  std::string path(const std::string& name) const { return (data_.folder().path() / name).string(); }

  Outcome predict(std::vector<std::string> arguments,
                  const std::string& checkpoint = "dress.safetensors") const {
    std::vector<std::string> command{PREDICT, "--checkpoint", path(checkpoint)};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return run_program(command, {"HOSTCUDA_THREADS=1", "LOCKSTEP_DATA=" + data_.path()});
  }

  // The one line of a refusal, without the program's name.
  std::string refusal(const std::vector<std::string>& arguments,
                      const std::string& checkpoint = "dress.safetensors") const {
    const Outcome outcome = predict(arguments, checkpoint);
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_EQ(count_lines(outcome.error), 1) << outcome.error;
    EXPECT_TRUE(outcome.error.starts_with("predict: ")) << outcome.error;
    return outcome.error.substr(9, outcome.error.size() - 10);
  }

  std::string png_of(const std::string& name, int width, int height, uint8_t border, uint8_t inside) const {
    Image image{.width = width, .height = height, .channels = 1, .pixels = {}};
    for (int y = 0; y < height; ++y)
      for (int x = 0; x < width; ++x)
        image.pixels.push_back(x == 0 || y == 0 || x == width - 1 || y == height - 1 ? border : inside);
    write_png(path(name), image);
    return path(name);
  }

  const Model model_ = named_model({{"model", "lenet"}, {"variant", "article"}});
  const SmallFashionMnist data_{10, kTestRows};
};

TEST_F(Predict, ComparesNumbersInTheMetadataWithTheTensorsBeforeItAsksForMemory) {
  const auto tensors = lenet_that_says(kMostlyDress, model_);
  for (const char* number : {"2147483648", "1000000", "9223372036854775807"}) {
    write_weights(path("many"), tensors, {{"model", "resnet18"}, {"classes", number}});
    EXPECT_EQ(refusal({}, "many"), path("many") + ": classes is " + number +
                                       ", but none of its 10 tensors has more than 256 in any dimension");
  }
}

TEST_F(Predict, EscapesWhatComesFromAFileOrItsName) {
  const auto tensors = lenet_that_says(kMostlyDress, model_);
  write_weights(path("x"), tensors, {{"model", "\x1b[31mlenet\n"}});
  EXPECT_NE(refusal({}, "x").find("unknown name '\\x1b[31mlenet\\n'"), std::string::npos);
  std::vector<data::HostTensor> renamed = tensors;
  renamed[0].name = "\x1b]0;title\a\n";
  write_weights(path("x"), renamed, model_.description);
  EXPECT_NE(refusal({}, "x").find("unknown: \\x1b]0;title\\x07\\n"), std::string::npos);
  EXPECT_EQ(refusal({}, "no\nsuch \x1b[31m"),
            path("no\\nsuch \\x1b[31m") + ": cannot open: No such file or directory");
  write_weights(path("\x1b[31mred"), tensors, model_.description);
  const Outcome outcome = predict({}, "\x1b[31mred");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_EQ(outcome.out.find('\x1b'), std::string::npos) << outcome.out;
}

// Red frames on a sheet: the edges of one are runs of red pixels as long as it is wide, five above and five
// below.
int frames(const DecodedPng& sheet) {
  constexpr int kFrameWidth = 28 * 4 + 10, kRuns = 10;
  int runs = 0;
  for (int y = 0; y < sheet.height; ++y)
    for (int x = 0, length = 0; x < sheet.width; ++x) {
      length = is_red(sheet.at(x, y)) ? length + 1 : 0;
      const bool ends = x + 1 == sheet.width || !is_red(sheet.at(x + 1, y));
      runs += ends && length == kFrameWidth;
    }
  EXPECT_EQ(runs % kRuns, 0);
  return runs / kRuns;
}

TEST_F(Predict, PrintsATableThatFitsATerminal) {
  const Outcome outcome = predict({});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_EQ(outcome.error, "");
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);)
    if (line.find(data_.path()) == line.npos) {
      EXPECT_LE(line.size(), 80u) << line;
    }
  EXPECT_NE(outcome.out.find("3 Dress          .    .    .    4    .    .    .    .    .    .    1.0000\n"),
            outcome.out.npos)
      << outcome.out;
  EXPECT_NE(outcome.out.find("9 Ankle boot     .    .    .    4    .    .    .    .    .    .    0.0000\n"),
            outcome.out.npos)
      << outcome.out;
  EXPECT_NE(outcome.out.find("accuracy 0.1000: 4 of 40 test images\n"), outcome.out.npos) << outcome.out;
}

TEST_F(Predict, WritesASheetOnWhichWrongImagesAreFramed) {
  const Outcome outcome = predict({"--sheet", path("sheet.png"), "--images", "15"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_NE(outcome.out.find("sheet.png: the first 15 images, 13 of them classified wrong"),
            outcome.out.npos);
  EXPECT_EQ(frames(DecodedPng(path("sheet.png"))), 13);  // all but 3 and 13
}

TEST_F(Predict, ChoosesOnlyWrongImages) {
  const Outcome outcome = predict({"--sheet", path("sheet.png"), "--images", "5", "--only-wrong"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_NE(outcome.out.find("sheet.png: the first 5 that are classified wrong"), outcome.out.npos);
  EXPECT_EQ(frames(DecodedPng(path("sheet.png"))), 5);
}

TEST_F(Predict, TellsTheThreeLikeliestClassesOfAPng) {
  const std::string file = png_of("x.png", 28, 28, 0, 200);
  const Outcome outcome = predict({"--image", file});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_TRUE(outcome.out.ends_with(file + ": Dress\n  0.7000 Dress\n  0.2000 Coat\n  0.0500 Bag\n"))
      << outcome.out;
}

TEST_F(Predict, NotesAPngThatIsDarkOnBright) {
  const Outcome outcome = predict({"--image", png_of("x.png", 28, 28, 250, 30)});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  EXPECT_TRUE(outcome.out.ends_with(
      "note: its border is bright, and Fashion-MNIST shows bright objects on black: invert it\n"))
      << outcome.out;
}

TEST_F(Predict, RefusesWhatIsNoImageOrOfAnotherSize) {
  const std::string file = png_of("x.png", 32, 30, 0, 200);
  EXPECT_EQ(refusal({"--image", file}),
            file +
                ": found 32 x 30 pixels, the model reads 28 x 28: crop it to a square "
                "around the object, and scale it down");
  EXPECT_EQ(refusal({"--image", path("dress.safetensors")}),
            path("dress.safetensors") + ": no PNG file: it begins with other bytes than one does");
  EXPECT_EQ(refusal({"--image", path("none.png")}),
            path("none.png") + ": cannot open: No such file or directory");
}

TEST_F(Predict, TakesTheNewestWholeCheckpointOfAFolder) {
  const std::string folder = path("checkpoints");
  constexpr std::array<double, 10> kMostlyBag = {.01, .01, .01, .2, .05, .01, .005, .0025, .7, .0025};
  {
    nn::CheckpointWriter writer(folder, 3);
    nn::Checkpoint checkpoint{.step = 7,
                              .weights = lenet_that_says(kMostlyDress, model_),
                              .model = model_.description,
                              .optimizer = {},
                              .replicas = {{}},
                              .run = {}};
    writer.save(checkpoint);
    checkpoint.step = 9;
    checkpoint.weights = lenet_that_says(kMostlyBag, model_);
    writer.save(checkpoint);
  }
  const std::string image = png_of("x.png", 28, 28, 0, 200);
  Outcome outcome = predict({"--image", image}, "checkpoints");
  EXPECT_NE(outcome.out.find("x.png: Bag\n"), outcome.out.npos) << outcome.out << outcome.error;
  EXPECT_EQ(outcome.error, "");
  const auto newest = nn::weights_path(folder, 9);
  std::filesystem::resize_file(newest, std::filesystem::file_size(newest) - 1);
  outcome = predict({"--image", image}, "checkpoints");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_NE(outcome.out.find("x.png: Dress\n"), outcome.out.npos) << outcome.out;
  EXPECT_NE(outcome.error.find(newest.string()), outcome.error.npos) << outcome.error;
}

TEST_F(Predict, RefusesWeightsThatAreNoneOrDoNotFit) {
  EXPECT_EQ(refusal({}, "none"), path("none") + ": cannot open: No such file or directory");
  EXPECT_NE(refusal({}, ".").find("there is no checkpoint in it"), std::string::npos);
  auto tensors = lenet_that_says(kMostlyDress, model_);
  tensors[0].name = "conv0.weight";
  write_weights(path("x"), tensors, model_.description);
  EXPECT_EQ(refusal({}, "x"),
            path("x") + " does not fit the model: missing: conv1.weight; unknown: conv0.weight");
  write_weights(path("x"), tensors, {{"model", "vgg"}});
  EXPECT_NE(refusal({}, "x").find(path("x") + ": model: unknown name 'vgg'"), std::string::npos);
  tensors = lenet_that_says(kMostlyDress, model_);
  tensors.back().bytes.assign(tensors.back().bytes.size(), std::byte{0xff});  // NaNs
  write_weights(path("x"), tensors, model_.description);
  EXPECT_EQ(refusal({}, "x"),
            path("x") +
                ": 10 of the 10 values of fc3.bias are NaN or infinite: its training went wrong "
                "before it was saved");
}

// Weights that are finite, whose outputs are not.
TEST_F(Predict, NamesAnImageThatNoClassCanBeReadFrom) {
  auto tensors = lenet_that_says(kMostlyDress, model_);
  for (data::HostTensor& tensor : tensors)
    for (size_t i = 0; i < tensor.bytes.size(); i += sizeof(float)) {
      const float huge = 1e30F;
      std::memcpy(&tensor.bytes[i], &huge, sizeof(float));
    }
  write_weights(path("x"), tensors, model_.description);
  EXPECT_EQ(
      refusal({}, "x"),
      "the model's outputs for image 0 are NaN or infinite: its training went wrong before it was saved");
}

TEST_F(Predict, RefusesOptionsThatCannotBeBeforeItWorks) {
  EXPECT_EQ(refusal({"--images", "0", "--sheet", path("s.png")}), "--images is 0: use 1 to 1000");
  EXPECT_EQ(refusal({"--sheet", path("none/s.png")}),
            path("none/s.png") + ": cannot write into " + path("none") + ": No such file or directory");
  EXPECT_EQ(refusal({"--sheet", "-"}), "--sheet -: it is a PNG file: use a name that ends in .png");
  EXPECT_EQ(refusal({"--sheet", path("s.jpg")}),
            "--sheet " + path("s.jpg") + ": it is a PNG file: use a name that ends in .png");
  EXPECT_EQ(refusal({"--only-wrong"}), "--only-wrong chooses the images of a sheet: name one with --sheet");
  EXPECT_EQ(refusal({"--image", "x", "--sheet", path("s.png")}),
            "--sheet shows test images, --image classifies another one: use one of the two");
}

}  // namespace
}  // namespace lockstep::apps

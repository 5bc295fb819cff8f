// export and import as their users see them: what goes to PyTorch and comes back is the same file, and what
// does not fit is named.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <span>
#include <utility>

#include "nn/init.h"
#include "tests/apps/program.h"
#include "tests/apps/saved_lenet.h"
#include "tests/nn/idx_files.h"

namespace lockstep::apps {
namespace {

class Exchange : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }

  static Outcome run(std::vector<std::string> command) {
    return run_program(command, {"HOSTCUDA_THREADS=1"});
  }

  // Writes a model with random weights; returns its complete description.
  ModelDescription save(const std::string& name, const ModelDescription& description) const {
    const Model model = named_model(description);
    const auto module = model.make(make_devices(1)[0]);
    nn::initialise(*module, nn::Init::kaiming, 1);
    write_weights(path(name), nn::state_dict(*module), model.description);
    return model.description;
  }

  static std::string refusal(const std::vector<std::string>& command) {
    const Outcome outcome = run(command);
    EXPECT_EQ(outcome.exit_code, 1) << outcome.out;
    EXPECT_EQ(count_lines(outcome.error), 1) << outcome.error;
    return outcome.error.substr(0, outcome.error.size() - 1);
  }

  data::TemporaryFolder folder_;
};

data::Bytes bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_F(Exchange, BringsEveryModelBackAsTheSameFile) {
  for (const ModelDescription& asked : {ModelDescription{{"model", "lenet"}, {"variant", "article"}},
                                        {{"model", "lenet"}, {"variant", "chapter"}},
                                        {{"model", "lenet"}, {"variant", "classic"}},
                                        {{"model", "resnet18"}, {"variant", "chapter"}},
                                        {{"model", "resnet18"},
                                         {"variant", "torchvision"},
                                         {"stem", "imagenet"},
                                         {"classes", "3"},
                                         {"channels", "2"}}}) {
    SCOPED_TRACE(title(asked));
    save("ours", asked);
    const Outcome exported = run({EXPORT, path("ours"), path("theirs")});
    EXPECT_EQ(exported.exit_code, 0) << exported.error;
    const Outcome imported = run({IMPORT, path("theirs"), path("back")});
    EXPECT_EQ(imported.exit_code, 0) << imported.error;
    EXPECT_TRUE(bytes_of(path("back")) == bytes_of(path("ours")));
    EXPECT_FALSE(bytes_of(path("theirs")) == bytes_of(path("ours")));
  }
}

std::vector<std::string> names_in(const std::string& path) {
  std::vector<std::string> names;
  for (const data::HostTensor& tensor : data::read_safetensors(path).tensors) names.push_back(tensor.name);
  return names;
}

TEST_F(Exchange, NamesTensorsAsTheOriginsDo) {
  save("ours", {{"model", "lenet"}});
  EXPECT_EQ(run({EXPORT, path("ours"), path("theirs")}).exit_code, 0);
  EXPECT_EQ(names_in(path("theirs")),
            (std::vector<std::string>{"0.weight", "0.bias", "3.weight", "3.bias", "7.weight", "7.bias",
                                      "9.weight", "9.bias", "11.weight", "11.bias"}));
  for (const auto& [variant, some] :
       {std::pair<std::string, std::vector<std::string>>{
            "chapter",
            {"0.bias", "1.running_var", "resnet_block1.0.conv1.weight", "resnet_block2.0.conv3.bias",
             "fc.1.weight"}},
        {"torchvision",
         {"conv1.weight", "bn1.num_batches_tracked", "layer1.0.conv1.weight", "layer2.0.downsample.0.weight",
          "layer4.0.downsample.1.running_mean", "layer4.1.bn2.bias", "fc.weight"}}}) {
    save("ours", {{"model", "resnet18"}, {"variant", variant}});
    EXPECT_EQ(run({EXPORT, path("ours"), path("theirs")}).exit_code, 0);
    const auto names = names_in(path("theirs"));
    for (const std::string& name : some)
      EXPECT_NE(std::find(names.begin(), names.end(), name), names.end()) << name;
  }
}

// Values that all types hold exactly, so that what comes back is the same file.
TEST_F(Exchange, ImportConvertsOtherWidthsAndSaysSo) {
  const Model model = named_model({{"model", "lenet"}});
  auto tensors = nn::state_dict(*model.make(make_devices(1)[0]));
  for (data::HostTensor& tensor : tensors)
    for (size_t i = 0; i < tensor.bytes.size() / sizeof(float); ++i) {
      const float value = static_cast<float>(i % 200) / 16 - 3;  // 8 bits
      std::memcpy(tensor.bytes.data() + i * sizeof value, &value, sizeof value);
    }
  write_weights(path("ours"), tensors, model.description);
  EXPECT_EQ(run({EXPORT, path("ours"), path("theirs")}).exit_code, 0);
  data::Safetensors file = data::read_safetensors(path("theirs"));
  const std::array types{data::StoredType::f16, data::StoredType::bf16, data::StoredType::f64,
                         data::StoredType::f32};
  for (size_t t = 0; t < file.tensors.size(); ++t) {
    data::HostTensor& tensor = file.tensors[t];
    const std::vector<std::byte> floats = std::exchange(tensor.bytes, {});
    tensor.dtype = types[t % types.size()];
    const auto append = [&tensor](auto value) {
      const auto bytes = std::as_bytes(std::span(&value, 1));
      tensor.bytes.insert(tensor.bytes.end(), bytes.begin(), bytes.end());
    };
    for (size_t i = 0; i < floats.size(); i += sizeof(float)) {
      float value = 0;
      std::memcpy(&value, floats.data() + i, sizeof value);
      const auto bits = std::bit_cast<uint32_t>(value);
      const uint32_t half = (bits >> 16 & 0x8000) | (((bits >> 13) - ((127 - 15) << 10)) & 0x7fff);
      if (tensor.dtype == data::StoredType::f16) append(static_cast<uint16_t>(value == 0 ? 0 : half));
      if (tensor.dtype == data::StoredType::bf16) append(static_cast<uint16_t>(bits >> 16));
      if (tensor.dtype == data::StoredType::f64) append(static_cast<double>(value));
      if (tensor.dtype == data::StoredType::f32) append(value);
    }
  }
  data::write_safetensors(path("theirs"), file.tensors, file.metadata);
  const Outcome imported = run({IMPORT, path("theirs"), path("back")});
  EXPECT_EQ(imported.exit_code, 0) << imported.error;
  EXPECT_NE(imported.out.find(
                "\nconverted 3 tensors from F16 to F32, exactly\nconverted 3 tensors from BF16 to F32, "
                "exactly\nconverted 2 tensors from F64 to F32, rounded to nearest\n"),
            std::string::npos)
      << imported.out;
  EXPECT_TRUE(bytes_of(path("back")) == bytes_of(path("ours")));
}

TEST_F(Exchange, ImportNeedsToKnowTheModel) {
  save("ours", {{"model", "lenet"}});
  EXPECT_EQ(run({EXPORT, path("ours"), path("theirs")}).exit_code, 0);
  data::write_safetensors(path("bare"), data::read_safetensors(path("theirs")).tensors);
  EXPECT_EQ(refusal({IMPORT, path("bare"), path("x")}),
            "import: " + path("bare") + " does not say which model it holds: use --model");
  EXPECT_EQ(run({IMPORT, path("bare"), path("back"), "--model", "lenet"}).exit_code, 0);
  EXPECT_TRUE(bytes_of(path("back")) == bytes_of(path("ours")));
  EXPECT_EQ(refusal({IMPORT, path("bare"), path("x"), "--model", "lenet", "--stem", "small"}),
            "import: --stem: lenet has no such option");
  EXPECT_EQ(
      refusal({IMPORT, path("bare"), path("x"), "--model", "lenet", "--variant", "chapter"}),
      "import: " + path("bare") +
          " does not fit the model: of another shape: 0.weight ([6, 1, 5, 5], expected [20, 1, 3, 3]), "
          "0.bias ([6], expected [20]), 3.weight ([16, 6, 5, 5], expected [50, 20, 5, 5]), 3.bias ([16], "
          "expected [50]), 7.weight ([120, 256], expected [128, 800]) and 3 more; unknown: 11.weight, "
          "11.bias");
  EXPECT_FALSE(std::filesystem::exists(path("x")));
}

TEST_F(Exchange, RefusesAFileOfTheWrongSideAndOverwritingTheOneItReads) {
  save("ours", {{"model", "lenet"}});
  EXPECT_EQ(run({EXPORT, path("ours"), path("theirs")}).exit_code, 0);
  EXPECT_EQ(refusal({IMPORT, path("ours"), path("x")}),
            "import: " + path("ours") + " is Lockstep's own already: it needs no import");
  EXPECT_NE(refusal({EXPORT, path("theirs"), path("x")}).find("./lab import makes one of PyTorch's"),
            std::string::npos);
  const data::Bytes before = bytes_of(path("ours"));
  EXPECT_EQ(refusal({EXPORT, path("ours"), path("ours")}),
            "export: " + path("ours") + ": is the file to read, too: write to another one");
  EXPECT_TRUE(bytes_of(path("ours")) == before);
}

TEST_F(Exchange, RefusesWhatIsNoNumber) {
  save("ours", {{"model", "lenet"}});
  data::Safetensors file = data::read_safetensors(path("ours"));
  ASSERT_EQ(file.tensors[0].name, "conv1.weight");
  const float infinite = -std::numeric_limits<float>::infinity();
  std::memcpy(file.tensors[0].bytes.data(), &infinite, sizeof(float));
  data::write_safetensors(path("bad"), file.tensors, file.metadata);
  const std::string found = ": 1 of the 150 values of conv1.weight are NaN or infinite: ";
  EXPECT_NE(refusal({EXPORT, path("bad"), path("out")}).find("export: " + path("bad") + found),
            std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(path("out")));

  EXPECT_EQ(run({EXPORT, path("ours"), path("theirs")}).exit_code, 0);
  file = data::read_safetensors(path("theirs"));
  std::memcpy(file.tensors[0].bytes.data(), &infinite, sizeof(float));
  data::write_safetensors(path("bad"), file.tensors, file.metadata);
  EXPECT_NE(refusal({IMPORT, path("bad"), path("out")}).find("import: " + path("bad") + found),
            std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(path("out")));
}

TEST_F(Exchange, WritesToFilesAlone) {
  save("ours", {{"model", "lenet"}});
  EXPECT_EQ(run({EXPORT, path("ours"), path("theirs")}).exit_code, 0);
  for (const auto& [program, from] : {std::pair{EXPORT, "ours"}, {IMPORT, "theirs"}}) {
    EXPECT_NE(refusal({program, path(from), "-"}).find("-: is no standard output here"), std::string::npos);
    EXPECT_FALSE(std::filesystem::exists("-"));
  }
}

}  // namespace
}  // namespace lockstep::apps

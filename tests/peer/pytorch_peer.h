// Runs where Python has torch and safetensors: LOCKSTEP_PYTHON, or python3.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "kernels/check.h"
#include "nn/io/safetensors.h"
#include "tests/apps/program.h"
#include "tests/nn/idx_files.h"

namespace lockstep::apps {

// A folder in which a program in Python and the test exchange files.
class PyTorchPeer : public testing::Test {
 protected:
  void SetUp() override {
    const char* named = std::getenv("LOCKSTEP_PYTHON");
    python_ = named != nullptr && *named != '\0' ? named : "python3";
    const Outcome found = run_program({"/usr/bin/env", python_, "-c", "import safetensors, torch"});
    if (found.exit_code != 0)
      GTEST_SKIP() << python_ << " does not have torch and safetensors: set LOCKSTEP_PYTHON to one that does";
  }

  // Random images [rows, side, side, 1], as they are in images.safetensors for the program.
  Tensor images(int64_t rows, int64_t side, std::mt19937& random, const Device& device) const {
    std::normal_distribution<float> normal;
    std::vector<float> pixels(static_cast<size_t>(rows * side * side));
    for (float& pixel : pixels) pixel = normal(random);
    data::HostTensor x{.name = "x",
                       .dtype = data::StoredType::f32,
                       .shape = {rows, side, side, 1},
                       .bytes = std::vector<std::byte>(pixels.size() * sizeof(float))};
    std::memcpy(x.bytes.data(), pixels.data(), x.bytes.size());
    data::write_safetensors(folder_.path() / "images.safetensors", {x});
    return Tensor::from_host(pixels, x.shape, device);
  }

  // Runs a program of tests/peer on the folder.
  void run_python(const std::string& program) const {
    const Outcome peer = run_program(
        {"/usr/bin/env", python_, std::string(PEER_PROGRAMS) + "/" + program, folder_.path().string()});
    ASSERT_EQ(peer.exit_code, 0) << peer.error;
  }

  std::vector<data::HostTensor> tensors(const std::string& file) const {
    return data::read_safetensors(folder_.path() / file).tensors;
  }
  std::vector<float> values(const std::string& file, const std::string& tensor_name) const {
    for (const data::HostTensor& tensor : tensors(file))
      if (tensor.name == tensor_name) {
        std::vector<float> values(tensor.bytes.size() / sizeof(float));
        std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
        return values;
      }
    throw Error(file + " has no tensor " + tensor_name);
  }

  std::string python_;
  data::TemporaryFolder folder_;
};

}  // namespace lockstep::apps

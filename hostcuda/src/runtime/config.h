// What the environment says about the machine that hostcuda plays: read once, at the first CUDA call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace hostcuda {

enum class PeerAccess {
  possible,
  impossible,  // HOSTCUDA_PEER=0: no device can access another
  broken,      // HOSTCUDA_PEER=broken: access is reported, but peer copies deliver zeros, as behind an IOMMU
};

struct Config {
  int devices = 1;                         // HOSTCUDA_DEVICES
  int threads = 1;                         // HOSTCUDA_THREADS: workers a device
  size_t memory = 0;                       // HOSTCUDA_MEMORY: bytes per device
  double timeout = 300;                    // HOSTCUDA_TIMEOUT: seconds a host thread waits at most
  PeerAccess peer = PeerAccess::possible;  // HOSTCUDA_PEER
  bool serial_callbacks = false;           // HOSTCUDA_SERIAL_CALLBACKS: one host function at a time
  bool checked = false;                    // HOSTCUDA_CHECK
  std::string profile;           // HOSTCUDA_PROFILE: the file to write; "-": a table alone; empty: no profile
  uint64_t profile_blocks = 32;  // HOSTCUDA_PROFILE_BLOCKS: blocks of a grid that are recorded; 0: all
  int profile_gpu = 0;           // HOSTCUDA_PROFILE_GPU: in kGpus
  std::string profile_registers;  // HOSTCUDA_PROFILE_REGISTERS: a file with what nvcc -Xptxas -v has said
  bool profile_only = false;      // HOSTCUDA_PROFILE_ONLY: blocks that are not recorded are not run
  bool profile_table = false;     // HOSTCUDA_PROFILE_TABLE
  std::string forecast;           // HOSTCUDA_FORECAST: a GPU's name, or a file that describes one
  std::string forecast_json;      // HOSTCUDA_FORECAST_JSON: the file to write
  bool records() const { return !profile.empty() || !forecast.empty(); }  // what kernels' threads access
  std::string problem;  // what is wrong with the environment, in one line; empty where nothing is
};

const Config& config();

// What is wrong with the GPU that a forecast is asked for; defined by src/forecast, where that is linked in.
std::string problem_with_forecast_gpu(const std::string& name) __attribute__((weak));

}  // namespace hostcuda

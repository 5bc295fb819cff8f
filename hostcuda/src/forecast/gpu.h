// A GPU as the forecast sees it: a dozen figures, built in for some (with their sources in gpu.cc) or read
// from a JSON file that has every field by its name.
#pragma once

#include <string>
#include <vector>

namespace hostcuda::forecast {

struct Gpu {
  std::string name;
  double multiprocessors = 0;
  double warps_per_multiprocessor = 0;   // resident at most
  double blocks_per_multiprocessor = 0;  // resident at most
  double shared_kilobytes = 0;           // of a multiprocessor, for its blocks
  double registers = 0;                  // of a multiprocessor
  double issues_per_clock = 0;           // instructions of warps that a multiprocessor starts in a clock
  double clock_ghz = 0;
  double memory_gb = 0;
  double dram_gb_s = 0;
  double l2_gb_s = 0;
  double l2_mb = 0;
  double fp32_tflops = 0;
  double tf32_tflops = 0;
  double bf16_tflops = 0;
  double shared_latency_clocks = 0;
  double l2_latency_clocks = 0;
  double dram_latency_clocks = 0;
  double partial_write =
      0;  // sectors that DRAM moves for one that was written in part: 2 with error correction
  double launch_host_us = 0;    // what a launch takes of the host's time
  double launch_device_us = 0;  // from kernel to kernel in a stream
  double pinned_gb_s = 0;       // copies from and to pinned memory of the host
  double pageable_gb_s = 0;
  double peer_gb_s = 0;  // copies between two of them, one way

  double dram() const { return dram_gb_s * 1e9; }
  double l2() const { return l2_gb_s * 1e9; }
  double clock() const { return clock_ghz * 1e9; }
};

// The GPU that a user asks for: one of those built in, or a file. Throws std::runtime_error with one line.
Gpu find_gpu(const std::string& name);
std::vector<std::string> known_gpus();

// `text` is what stands in `file`.
Gpu parse_gpu(const std::string& file, const std::string& text);
// The JSON of it, as a start for a file of one's own.
std::string gpu_to_json(const Gpu& gpu);

}  // namespace hostcuda::forecast

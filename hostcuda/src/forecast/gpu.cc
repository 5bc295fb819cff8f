#include "hostcuda/src/forecast/gpu.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "hostcuda/src/runtime/gpus.h"

namespace hostcuda::forecast {

namespace {

using Json = nlohmann::ordered_json;

struct Field {
  const char* name;
  double Gpu::* value;
};

constexpr Field kFields[] = {
    {"multiprocessors", &Gpu::multiprocessors},
    {"warps_per_multiprocessor", &Gpu::warps_per_multiprocessor},
    {"blocks_per_multiprocessor", &Gpu::blocks_per_multiprocessor},
    {"shared_kilobytes", &Gpu::shared_kilobytes},
    {"registers", &Gpu::registers},
    {"issues_per_clock", &Gpu::issues_per_clock},
    {"clock_ghz", &Gpu::clock_ghz},
    {"memory_gb", &Gpu::memory_gb},
    {"dram_gb_s", &Gpu::dram_gb_s},
    {"l2_gb_s", &Gpu::l2_gb_s},
    {"l2_mb", &Gpu::l2_mb},
    {"fp32_tflops", &Gpu::fp32_tflops},
    {"tf32_tflops", &Gpu::tf32_tflops},
    {"bf16_tflops", &Gpu::bf16_tflops},
    {"shared_latency_clocks", &Gpu::shared_latency_clocks},
    {"l2_latency_clocks", &Gpu::l2_latency_clocks},
    {"dram_latency_clocks", &Gpu::dram_latency_clocks},
    {"partial_write", &Gpu::partial_write},
    {"launch_host_us", &Gpu::launch_host_us},
    {"launch_device_us", &Gpu::launch_device_us},
    {"pinned_gb_s", &Gpu::pinned_gb_s},
    {"pageable_gb_s", &Gpu::pageable_gb_s},
    {"peer_gb_s", &Gpu::peer_gb_s},
};

// What kGpus has not. Clocks, operations and memory are those of the vendor's data sheets, dense; a GeForce
// card halves products of bfloat16 that are summed in float32, and T4 has neither TF32 nor bfloat16, so it
// gets what float32 takes. Latencies of A100 and H100: arXiv 2402.13499, table of memory latencies; of T4 and
// its L2: arXiv 1903.07486; H200 is H100 with other memory; of GA10x: those of the RTX 4090 in the former.
// The L2's bandwidths of the others are estimates from its width: 64 bytes a clock and slice, of which half
// is reached. Launches: rules of thumb, to be measured where a GPU is.
struct Further {
  const char* key;
  double clock_ghz, memory_gb, l2_gb_s, l2_mb, fp32, tf32, bf16;
  double shared_latency, l2_latency, dram_latency, partial_write, pinned_gb_s, pageable_gb_s, peer_gb_s;
};

constexpr Further kFurther[] = {
    {"h200", 1.83, 141, 5500, 50, 67, 494, 989, 29, 263, 479, 2, 50, 8, 400},
    {"h100", 1.83, 80, 5500, 50, 67, 494, 989, 29, 263, 479, 2, 50, 8, 400},
    {"a100", 1.41, 80, 3700, 40, 19.5, 156, 312, 29, 262, 466, 2, 24, 6, 250},
    {"a6000", 1.80, 48, 2000, 6, 38.7, 77.4, 154.8, 30, 273, 542, 1, 24, 6, 50},
    {"rtx3060-laptop", 1.42, 6, 900, 3, 10.9, 10.9, 21.8, 30, 273, 542, 1, 12, 5, 10},
    {"t4", 1.59, 16, 1270, 4, 8.1, 8.1, 8.1, 19, 188, 434, 2, 12, 5, 10},
};

constexpr double kRegisters = 65536;
constexpr double kIssues = 4;  // one a scheduler
constexpr double kLaunchHost = 2.5;
constexpr double kLaunchDevice = 1.5;

Gpu built_in(const Further& more) {
  const auto figures =
      std::find_if(kGpus.begin(), kGpus.end(), [&](const GpuFigures& gpu) { return gpu.key == more.key; });
  Gpu gpu;
  gpu.name = figures->name;
  gpu.multiprocessors = figures->multiprocessors;
  gpu.warps_per_multiprocessor = figures->warps_a_multiprocessor;
  gpu.blocks_per_multiprocessor = figures->blocks_a_multiprocessor;
  gpu.shared_kilobytes = figures->shared_kilobytes;
  gpu.registers = kRegisters;
  gpu.issues_per_clock = kIssues;
  gpu.clock_ghz = more.clock_ghz;
  gpu.memory_gb = more.memory_gb;
  gpu.dram_gb_s = figures->bandwidth / 1e9;
  gpu.l2_gb_s = more.l2_gb_s;
  gpu.l2_mb = more.l2_mb;
  gpu.fp32_tflops = more.fp32;
  gpu.tf32_tflops = more.tf32;
  gpu.bf16_tflops = more.bf16;
  gpu.shared_latency_clocks = more.shared_latency;
  gpu.l2_latency_clocks = more.l2_latency;
  gpu.dram_latency_clocks = more.dram_latency;
  gpu.partial_write = more.partial_write;
  gpu.launch_host_us = kLaunchHost;
  gpu.launch_device_us = kLaunchDevice;
  gpu.pinned_gb_s = more.pinned_gb_s;
  gpu.pageable_gb_s = more.pageable_gb_s;
  gpu.peer_gb_s = more.peer_gb_s;
  return gpu;
}

size_t edits(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

std::string nearest(const std::string& name, const std::vector<std::string>& known) {
  return *std::min_element(known.begin(), known.end(), [&](const std::string& a, const std::string& b) {
    return edits(name, a) < edits(name, b);
  });
}

[[noreturn]] void fail(const std::string& text) {
  throw std::runtime_error(text);
}

}  // namespace

std::vector<std::string> known_gpus() {
  std::vector<std::string> names;
  for (const Further& gpu : kFurther) names.emplace_back(gpu.key);
  return names;
}

Gpu find_gpu(const std::string& name) {
  for (const Further& gpu : kFurther)
    if (name == gpu.key) return built_in(gpu);
  if (!name.ends_with(".json") && name.find('/') == std::string::npos) {
    std::string all;
    for (const std::string& known : known_gpus()) all += (all.empty() ? "" : ", ") + known;
    fail("there is no GPU '" + name + "', did you mean '" + nearest(name, known_gpus()) + "'? (" + all +
         ", or a file NAME.json)");
  }
  std::ifstream file(name);
  if (!file) fail("cannot read the GPU file '" + name + "': give the name of a file, or of a GPU");
  std::ostringstream text;
  text << file.rdbuf();
  return parse_gpu(name, text.str());
}

Gpu parse_gpu(const std::string& file, const std::string& text) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::parse_error& error) {
    fail("GPU file '" + file + "' is no JSON: byte " + std::to_string(error.byte) + " was not expected");
  }
  if (!json.is_object()) fail("GPU file '" + file + "' is no JSON object: write {\"name\": ..., ...}");
  std::vector<std::string> names = {"name"};
  for (const Field& field : kFields) names.emplace_back(field.name);
  const std::string in_file = "GPU file '" + file + "'";
  for (const auto& [key, value] : json.items()) {
    if (std::find(names.begin(), names.end(), key) != names.end()) continue;
    std::string what = in_file + " has the unknown field '";
    what += key;
    what += "', did you mean '" + nearest(key, names);
    fail(what += "'?");
  }
  Gpu gpu;
  if (!json.contains("name") || !json["name"].is_string())
    fail("GPU file '" + file + "': field 'name' is missing or no text");
  gpu.name = json["name"];
  for (const Field& field : kFields) {
    const std::string where = in_file + ": field '" + std::string(field.name) + "'";
    if (!json.contains(field.name)) fail(where + " is missing: give a number above 0");
    if (!json[field.name].is_number()) fail(where + " is no number: give one above 0");
    const double value = json[field.name];
    if (!(value > 0) || !std::isfinite(value))
      fail(where + " is " + json[field.name].dump() + ": give a number above 0");
    gpu.*field.value = value;
  }
  return gpu;
}

std::string gpu_to_json(const Gpu& gpu) {
  Json json{{"name", gpu.name}};
  for (const Field& field : kFields) json[field.name] = gpu.*field.value;
  return json.dump(1) + "\n";
}

}  // namespace hostcuda::forecast

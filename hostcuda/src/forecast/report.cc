// The forecast as a table of 80 columns and as JSON, and when it is written.
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "hostcuda/src/forecast/forecast.h"
#include "hostcuda/src/profile/profile.h"
#include "hostcuda/src/runtime/config.h"

namespace hostcuda::forecast {

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kRows = 10;

// "0.412 ms": at most 8 characters up to 1000 s.
std::string time_text(double seconds) {
  const char* const units[] = {"us", "ms", "s"};
  double value = seconds * 1e6;
  int unit = 0;
  while (value >= 999.5 && unit < 2) {
    value /= 1000;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, "%.*f %s", value < 9.995 ? 2 : value < 99.95 ? 1 : 0, value, units[unit]);
  return text;
}

// "1,234,000": with three figures that count.
std::string count_text(double value) {
  if (!(value < 1e15)) return "0";
  const double unit = std::pow(10, std::max(0.0, std::floor(std::log10(std::max(1.0, value))) - 2));
  const std::string digits =
      std::to_string(static_cast<long long>(std::llround(value / unit) * std::llround(unit)));
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string plural(uint64_t count, const char* what) {
  return std::to_string(count) + " " + what +
         (count == 1                           ? ""
          : what[std::strlen(what) - 1] == 'h' ? "es"
                                               : "s");
}

std::string cut(const std::string& text, size_t width) {
  return text.size() <= width ? text : text.substr(0, width - 3) + "...";
}

Json counts_json(const KernelCounts& counts, const Gpu& gpu) {
  const Terms terms = terms_of(counts, gpu);
  return {{"read_bytes", counts.read_bytes},
          {"written_bytes", counts.written_bytes},
          {"l2_bytes", counts.l2_bytes},
          {"global_requests", counts.global_requests},
          {"global_sectors", counts.global_sectors},
          {"shared_requests", counts.shared_requests},
          {"shared_passes", counts.shared_passes},
          {"operations", counts.operations},
          {"terms_us",
           {{"dram", 1e6 * terms.dram},
            {"few_warps", 1e6 * terms.few_warps},
            {"l2", 1e6 * terms.l2},
            {"l1", 1e6 * terms.l1},
            {"shared", 1e6 * terms.shared},
            {"issue", 1e6 * terms.issue},
            {"operations", 1e6 * terms.operations},
            {"latency", 1e6 * terms.latency}}}};
}

[[noreturn]] void fail(const std::string& text) {
  std::fprintf(stderr, "hostcuda: %s\n", text.c_str());
  std::fflush(nullptr);
  _exit(1);
}

void write_forecast() {
  if (config().forecast.empty() || !config().problem.empty()) return;  // every CUDA call has failed with it
  const Tally tally = tally_so_far();
  if (tally.operations.empty())
    fail("there is nothing to forecast (HOSTCUDA_FORECAST): no kernel was launched");
  const Forecast result =
      forecast(tally, profile::results().shapes(), profile::read_registers(config().profile_registers),
               find_gpu(config().forecast));
  std::fflush(stdout);
  print(result, stderr);
  const std::string& path = config().forecast_json;
  if (path.empty()) return;
  std::FILE* const file = std::fopen(path.c_str(), "w");
  const std::string text = to_json(result);
  const bool written = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (!written || std::fclose(file) != 0)
    fail("cannot write the forecast to '" + path + "' (HOSTCUDA_FORECAST_JSON): " + std::strerror(errno));
}

}  // namespace

void print(const Forecast& forecast, std::FILE* out) {
  const std::string devices = forecast.devices == 1 ? "one" : std::to_string(forecast.devices);
  std::fprintf(out, "\nForecast for %s %s, from what the kernels did here: not a measurement.\n",
               devices.c_str(), forecast.gpu.name.c_str());
  const bool by_host = forecast.host_seconds > forecast.device_seconds;
  std::fprintf(out, "  %-10s %s: the device takes %s, the host's calls %s;\n",
               forecast.marked ? "step" : "whole run", time_text(forecast.seconds()).c_str(),
               time_text(forecast.device_seconds).c_str(), time_text(forecast.host_seconds).c_str());
  std::fprintf(out, "  %-10s the %s bounds it\n", "", by_host ? "host" : "device");
  if (forecast.marked && forecast.items > 0)
    std::fprintf(out, "  %-10s %s images/s at %lld per step\n", "rate",
                 count_text(static_cast<double>(forecast.items) / forecast.seconds()).c_str(),
                 static_cast<long long>(forecast.items));
  std::fprintf(out, "  %-10s %s, %s, %s, %s\n", forecast.marked ? "per step" : "it has",
               plural(forecast.launches, "launch").c_str(),
               plural(forecast.library_calls, "library call").c_str(),
               (std::to_string(forecast.copies) + (forecast.copies == 1 ? " copy" : " copies")).c_str(),
               plural(forecast.events, "event call").c_str());
  std::fprintf(out, "  %-10s %s in use of %.0f GB\n", "memory",
               profile::bytes_text(forecast.memory_bytes).c_str(), forecast.gpu.memory_gb);
  if (forecast.marked)
    std::fprintf(out, "  %-10s %zu of %s like the one that is forecast\n", "steady", forecast.like,
                 plural(forecast.steps, "step").c_str());
  if (forecast.unrecorded > 0)
    std::fprintf(out, "  %-10s of %s nothing was recorded: they count as empty\n", "note",
                 plural(forecast.unrecorded, "launch").c_str());
  std::fprintf(out, "\n  %-40s %6s %9s %6s  %s\n", "the dearest", "calls", "forecast", "share", "bound by");
  double shown = 0;
  size_t count = 0;
  double all = 0;
  for (const Row& row : forecast.rows) all += row.seconds;
  for (const Row& row : forecast.rows) {
    if (count++ == kRows) break;
    shown += row.seconds;
    std::fprintf(out, "  %-40s %6llu %9s %4.0f %%  %s\n", cut(row.name, 40).c_str(),
                 static_cast<unsigned long long>(row.calls), time_text(row.seconds).c_str(),
                 100 * row.seconds / all, text_of(row.bound));
  }
  if (forecast.rows.size() > kRows)
    std::fprintf(out, "  %-40s %6s %9s %4.0f %%\n",
                 (std::to_string(forecast.rows.size() - kRows) + " others").c_str(), "",
                 time_text(all - shown).c_str(), 100 * (all - shown) / all);
}

std::string to_json(const Forecast& forecast) {
  Json json{{"forecast", 1},
            {"gpu", Json::parse(gpu_to_json(forecast.gpu))},
            {"of", forecast.marked ? "step" : "run"},
            {"steps", forecast.steps},
            {"steps_like_it", forecast.like},
            {"items", forecast.items},
            {"devices", forecast.devices},
            {"seconds", forecast.seconds()},
            {"device_seconds", forecast.device_seconds},
            {"host_seconds", forecast.host_seconds},
            {"bound_by", forecast.host_seconds > forecast.device_seconds ? "host" : "device"},
            {"items_per_second",
             forecast.items > 0 ? static_cast<double>(forecast.items) / forecast.seconds() : 0.0},
            {"launches", forecast.launches},
            {"library_calls", forecast.library_calls},
            {"copies", forecast.copies},
            {"event_calls", forecast.events},
            {"memory_bytes", forecast.memory_bytes},
            {"unrecorded_launches", forecast.unrecorded},
            {"kernels", Json::array()}};
  for (const Row& row : forecast.rows) {
    Json one{{"name", row.name},
             {"calls", row.calls},
             {"seconds", row.seconds},
             {"dearest_seconds", row.dearest},
             {"bound_by", text_of(row.bound)}};
    if (row.counts) {
      one["grid"] = row.grid;
      one["block"] = row.block;
      one["dearest"] = counts_json(*row.counts, forecast.gpu);
    }
    json["kernels"].push_back(one);
  }
  return json.dump(1) + "\n";
}

}  // namespace hostcuda::forecast

void hostcuda::profile::prepare_forecast() {
  std::atexit(forecast::write_forecast);
}

std::string hostcuda::problem_with_forecast_gpu(const std::string& name) {
  try {
    forecast::find_gpu(name);
    return "";
  } catch (const std::runtime_error& error) {
    return std::string("HOSTCUDA_FORECAST: ") + error.what();
  }
}

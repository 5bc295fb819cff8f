// The profile as tables of 80 columns.
#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>

#include "hostcuda/src/profile/profile.h"
#include "hostcuda/src/runtime/config.h"
#include "hostcuda/src/runtime/gpus.h"
#include "hostcuda/src/runtime/report.h"

namespace hostcuda::profile {

namespace {

constexpr size_t kColumns = 80;
constexpr size_t kKernels = 10;  // that are shown
constexpr size_t kLines = 12;    // of a kernel

std::string count_text(double count) {
  char text[32];
  if (count < 1e6)
    std::snprintf(text, sizeof text, "%.0f", count);
  else if (count < 1e9)
    std::snprintf(text, sizeof text, "%.1fM", count / 1e6);
  else
    std::snprintf(text, sizeof text, "%.1fG", count / 1e9);
  return text;
}

std::string cut(const std::string& text, size_t width) {
  return text.size() <= width ? text : text.substr(0, width - 3) + "...";
}

// The line's number stays.
std::string cut_place(const std::string& place, size_t width) {
  if (place.size() <= width || place.find(':') == std::string::npos) return cut(place, width);
  const std::string line = place.substr(place.rfind(':'));
  return place.substr(0, width - 2 - line.size()) + ".." + line;
}

// Lines of at most kColumns, each after `indent` spaces.
void print_wrapped(std::FILE* out, size_t indent, std::string text) {
  while (!text.empty()) {
    size_t end = text.size();
    if (end > kColumns - indent) {
      end = text.rfind(' ', kColumns - indent);
      if (end == std::string::npos || end == 0) end = std::min(text.size(), kColumns - indent);
    }
    std::fprintf(out, "%*s%s\n", static_cast<int>(indent), "", text.substr(0, end).c_str());
    text.erase(0, std::min(text.size(), end + 1));
  }
}

void print_launches(const KernelSummary& kernel, std::FILE* out) {
  const ShapeSummary& shape = kernel.shapes.front();
  std::string text = std::to_string(kernel.launches) + (kernel.launches == 1 ? " launch" : " launches") +
                     " at " + kernel.site + ", grid " + format_index(shape.grid);
  if (kernel.shapes.size() > 1) text += " and " + std::to_string(kernel.shapes.size() - 1) + " smaller";
  text += ", block " + format_index(kernel.block);
  print_wrapped(out, 2, text);

  const GpuFigures& gpu = kGpus[static_cast<size_t>(config().profile_gpu)];
  const uint64_t threads = uint64_t{kernel.block.x} * kernel.block.y * kernel.block.z;
  const uint64_t warps_a_block = (threads + 31) / 32;
  const double warps = static_cast<double>(warps_a_block) * shape.grid.x * shape.grid.y * shape.grid.z;
  const double held = static_cast<double>(gpu.multiprocessors) * gpu.warps_a_multiprocessor;
  char holds[160];
  std::snprintf(holds, sizeof holds,
                warps < held ? "%s %s a launch, %.2g %% of what one %s holds at once."
                             : "%s %s a launch, %.3g times what one %s holds at once.",
                count_text(warps).c_str(), warps == 1 ? "warp" : "warps",
                warps < held ? 100 * warps / held : warps / held, std::string(gpu.name).c_str());
  const double shared = static_cast<double>(kernel.dynamic_shared_bytes + kernel.static_shared_bytes);
  print_wrapped(out, 2, holds + (shared > 0 ? " Shared memory: " + bytes_text(shared) + " a block." : ""));
  if (kernel.registers.count > 0) {
    std::string registers = "nvcc takes " + std::to_string(kernel.registers.count) + " registers a thread";
    if (kernel.registers.spill_bytes > 0)
      registers +=
          " and moves " + std::to_string(kernel.registers.spill_bytes) + " bytes out of and into them";
    print_wrapped(out, 2, registers + ".");
  }
  const auto chain = [&](uint64_t count, const char* where) {
    return std::to_string(count) + (count == 1 ? " access to " : " accesses to ") + where;
  };
  std::string longest = "Longest chain of a thread: " + chain(kernel.longest_global, "global memory");
  if (kernel.longest_shared > 0) longest += ", " + chain(kernel.longest_shared, "shared memory");
  print_wrapped(out, 2, longest + ".");
  const double all = kernel.blocks;
  if (kernel.recorded_blocks < all)
    print_wrapped(out, 2,
                  "Recorded: " + count_text(kernel.recorded_blocks) + " of " + count_text(all) +
                      " blocks; counts are scaled up to all of them.");
}

void print_kernel(const KernelSummary& kernel, std::FILE* out) {
  std::fprintf(out, "\n%s\n", cut(kernel.name, kColumns).c_str());
  print_launches(kernel, out);
  if (kernel.lines.empty()) {
    print_wrapped(out, 2, "No accesses were recorded.");
    return;
  }
  std::fprintf(out, "  %-21s %-6s %8s %6s %7s %7s %5s %5s %5s\n", "line", "", "requests", "sect/r", "asked",
               "moved", "width", "lanes", "bank");
  size_t shown = 0;
  for (const LineSummary& line : kernel.lines) {
    if (shown++ == kLines) {
      std::fprintf(out, "  and %zu lines more\n", kernel.lines.size() - kLines);
      break;
    }
    const bool shared = line.space == Space::shared;
    const char* const kind = line.kind == Kind::atomic ? "atomic"
                             : line.kind == Kind::load ? "load"
                                                       : "store";
    char sectors[16] = "", bank[16] = "";
    if (shared)
      std::snprintf(bank, sizeof bank, " %5.1f", line.conflict());
    else
      std::snprintf(sectors, sizeof sectors, "%.1f", line.sectors_a_request());
    std::fprintf(out, "  %-21s %-6s %8s %6s %7s %7s %5u %5.1f%s\n", cut_place(line.line.text(), 21).c_str(),
                 kind, count_text(line.requests).c_str(), sectors, bytes_text(line.bytes_asked).c_str(),
                 shared ? "shared" : bytes_text(line.bytes_moved).c_str(), line.width, line.lanes_a_request(),
                 bank);
    if (!line.line.caller_file.empty()) print_wrapped(out, 6, "for " + line.line.caller_text());
    if (!line.wrong.empty()) print_wrapped(out, 6, "^ " + line.wrong);
  }
  for (const RaceSummary& race : kernel.races)
    for (const std::string& row : describe_race(race, kColumns - 2)) std::fprintf(out, "  %s\n", row.c_str());
}

}  // namespace

std::string bytes_text(double bytes) {
  const char* const units[] = {"B", "kB", "MB", "GB", "TB"};
  int unit = 0;
  while (bytes >= 999.5 && unit < 4) {
    bytes /= 1000;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, bytes < 9.95 && unit > 0 ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
  return text;
}

void print_table(const Summary& summary, std::FILE* out) {
  std::fprintf(out,
               "\nProfile: what each line of a kernel does to memory. sect/r: sectors of 32\n"
               "bytes a request of a warp (32 floats side by side: 4); width: bytes a thread\n"
               "takes at once; lanes: threads of 32 that take part; bank: passes that shared\n"
               "memory needs (1: no conflict).\n");
  size_t shown = 0;
  for (const KernelSummary& kernel : summary.kernels)
    if (shown++ < kKernels || !kernel.races.empty()) print_kernel(kernel, out);
  if (summary.kernels.size() > kKernels)
    std::fprintf(out, "\nand %zu kernels more that move less; HOSTCUDA_PROFILE=FILE writes all of them.\n",
                 summary.kernels.size() - kKernels);
  for (const NoteSummary& note : summary.notes)
    print_wrapped(out, 0,
                  note.line.text() + " in " + note.note.kernel + ": " + note.note.text +
                      (note.note.count > 1 ? " (" + std::to_string(note.note.count) + " times)" : ""));
}

}  // namespace hostcuda::profile

#include "hostcuda/src/profile/summary.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <tuple>

#include "hostcuda/src/runtime/report.h"

namespace hostcuda::profile {

namespace {

std::vector<const void*> instructions_of(const std::vector<ShapeProfile>& shapes,
                                         const std::vector<Note>& notes) {
  std::vector<const void*> all;
  for (const ShapeProfile& shape : shapes) {
    for (const InstructionCounts& counts : shape.instructions) all.push_back(counts.pc);
    for (const Race& race : shape.races) {
      all.push_back(race.earlier);
      all.push_back(race.later);
    }
  }
  for (const Note& note : notes) all.push_back(note.pc);
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

void add_counts(KernelSummary& kernel, const InstructionCounts& counts, double scale,
                const SourceLine& source) {
  const auto same = [&](const LineSummary& line) {
    return line.line == source && line.space == counts.space && line.kind == counts.kind;
  };
  auto line = std::find_if(kernel.lines.begin(), kernel.lines.end(), same);
  if (line == kernel.lines.end()) {
    kernel.lines.push_back({source, counts.space, counts.kind});
    line = std::prev(kernel.lines.end());
  }
  const double moved = 32.0 * static_cast<double>(counts.sectors) * scale;
  const double passes = static_cast<double>(counts.passes) * scale;
  line->requests += static_cast<double>(counts.requests) * scale;
  line->lanes += static_cast<double>(counts.lanes) * scale;
  line->bytes_asked += static_cast<double>(counts.lanes) * counts.bytes * scale;
  line->bytes_moved += moved;
  line->passes += passes;
  line->parts += static_cast<double>(counts.parts) * scale;
  line->least_width = line->width == 0 ? counts.bytes : std::min(line->least_width, counts.bytes);
  line->width = std::max(line->width, counts.bytes);
  line->most_passes = std::max(line->most_passes, counts.most_passes);
  line->longest += counts.longest;
  if (moved + passes > line->heaviest) {
    line->heaviest = moved + passes;
    line->stride = counts.stride;
  }
  kernel.bytes_moved += moved;
}

void add_shape(KernelSummary& kernel, const ShapeProfile& shape, const SourceLines& lines) {
  kernel.shapes.push_back({shape.grid, shape.launches, shape.recorded_launches(), shape.recorded_blocks});
  kernel.launches += shape.launches;
  kernel.blocks += static_cast<double>(shape.launches) * static_cast<double>(shape.blocks());
  kernel.recorded_blocks += static_cast<double>(shape.recorded_blocks);
  kernel.launched_blocks_of_recorded +=
      static_cast<double>(shape.recorded_launches()) * static_cast<double>(shape.blocks());
  kernel.static_shared_bytes = std::max(kernel.static_shared_bytes, shape.static_shared_bytes);
  kernel.longest_global = std::max(kernel.longest_global, shape.longest_global);
  kernel.longest_shared = std::max(kernel.longest_shared, shape.longest_shared);
  kernel.races_complete = kernel.races_complete && shape.races_complete;
  for (const InstructionCounts& counts : shape.instructions)
    add_counts(kernel, counts, shape.scale(), lines.of(counts.pc));
  for (const Race& race : shape.races) {
    const SourceLine &earlier = lines.of(race.earlier), &later = lines.of(race.later);
    const auto same = [&](const RaceSummary& known) {
      return known.earlier == earlier && known.later == later && known.race.space == race.space;
    };
    const auto known = std::find_if(kernel.races.begin(), kernel.races.end(), same);
    if (known == kernel.races.end())
      kernel.races.push_back({race, earlier, later});
    else
      known->race.count += race.count;
  }
}

const char* past(Kind kind) {
  return kind == Kind::load ? "reads" : kind == Kind::store ? "writes" : "updates";
}

}  // namespace

Summary summarise(const Results& results, const std::map<std::string, Registers>& registers) {
  const std::vector<ShapeProfile> shapes = results.shapes();
  const std::vector<Note> notes = results.notes();
  const SourceLines lines(instructions_of(shapes, notes));
  std::map<std::tuple<std::string, std::string, unsigned, unsigned, unsigned>, KernelSummary> kernels;
  for (const ShapeProfile& shape : shapes) {
    const std::string site = file_name(shape.site.file) + ":" + std::to_string(shape.site.line);
    KernelSummary& kernel = kernels[{shape.name, site, shape.block.x, shape.block.y, shape.block.z}];
    kernel.name = shape.name;
    if (const auto known = registers.find(shape.name); known != registers.end())
      kernel.registers = known->second;
    kernel.site = site;
    kernel.block = shape.block;
    kernel.dynamic_shared_bytes = std::max(kernel.dynamic_shared_bytes, shape.shared_bytes);
    add_shape(kernel, shape, lines);
  }
  Summary summary;
  for (auto& [key, kernel] : kernels) {
    const auto weight = [](const LineSummary& line) { return std::tuple(line.bytes_moved, line.passes); };
    std::stable_sort(kernel.lines.begin(), kernel.lines.end(),
                     [&](const LineSummary& a, const LineSummary& b) { return weight(a) > weight(b); });
    std::stable_sort(kernel.shapes.begin(), kernel.shapes.end(),
                     [](const ShapeSummary& a, const ShapeSummary& b) {
                       const auto blocks = [](const dim3& g) { return uint64_t{g.x} * g.y * g.z; };
                       return blocks(a.grid) > blocks(b.grid);
                     });
    summary.kernels.push_back(std::move(kernel));
  }
  std::stable_sort(
      summary.kernels.begin(), summary.kernels.end(),
      [](const KernelSummary& a, const KernelSummary& b) { return a.bytes_moved > b.bytes_moved; });
  for (const Note& note : notes) summary.notes.push_back({note, lines.of(note.pc)});
  return summary;
}

std::string diagnose(const LineSummary& line) {
  char text[240] = "";
  const double lanes = line.lanes_a_request();
  const auto apart = static_cast<long long>(line.stride);
  const bool few_lanes = lanes < 16 && line.requests >= 32 && line.longest > 1;
  if (line.space == Space::shared && line.conflict() >= 1.5) {
    const char* const cure = apart != 0 && apart % 128 == 0 ? "; pad each row by one element" : "";
    std::snprintf(text, sizeof text, "%.0f-way bank conflict: neighbouring threads are %lld words apart%s.",
                  line.conflict(), apart / 4, cure);
    return text;
  }
  // What lanes that lie side by side would need.
  const double ideal = std::max(1.0, lanes * line.width / 32);
  const double sectors = line.sectors_a_request();
  if (line.space == Space::global && line.kind != Kind::atomic && lanes >= 2 && sectors > 1.2 * ideal + 0.5) {
    const int least = std::max(1, static_cast<int>(std::lround(ideal)));
    if (apart != static_cast<long long>(line.width))
      std::snprintf(text, sizeof text,
                    "%.0f sectors a request where %d would do: neighbouring threads are %lld bytes "
                    "apart%s.",
                    sectors, least, apart,
                    std::abs(apart) >= 64 ? "; let threadIdx.x run along the memory" : "");
    else if (sectors < ideal + 1.5)
      std::snprintf(
          text, sizeof text,
          "%.1f sectors a request where %d would do: a warp's first address is no multiple of 32 bytes.",
          sectors, least);
    else
      std::snprintf(text, sizeof text,
                    "%.0f sectors a request where %d would do: the threads of a warp are in several places.",
                    sectors, least);
    return text;
  }
  if (line.kind == Kind::atomic && lanes > 1.5 && apart == 0) {
    std::snprintf(text, sizeof text,
                  "%.0f threads of a warp update one word, one after the other: combine their values first.",
                  lanes);
    return text;
  }
  if (few_lanes) {
    std::snprintf(text, sizeof text,
                  "%.0f of 32 threads take part in a request: the others of the warp wait.", lanes);
    return text;
  }
  return text;
}

std::vector<std::string> describe_race(const RaceSummary& found, size_t width) {
  const Race& race = found.race;
  const auto who = [&](const uint3& block, const uint3& thread) {
    const std::string one = "thread " + format_index(thread);
    return race.order == Order::other_block ? "block " + format_index(block) + " " + one : one;
  };
  std::string text = "race on " + race.place + ": " + found.earlier.text() + " " + past(race.earlier_kind) +
                     " (" + who(race.earlier_block, race.earlier_thread) + "), " + found.later.text() + " " +
                     past(race.later_kind) + " (" + who(race.later_block, race.later_thread) + ")";
  if (race.order != Order::other_block) text += ", block " + format_index(race.earlier_block);
  text += ". ";
  const std::string lines =
      found.earlier == found.later
          ? "between one execution of line " + std::to_string(found.earlier.line) + " and the next"
          : "between lines " + std::to_string(found.earlier.line) + " and " +
                std::to_string(found.later.line);
  const bool one_line = found.earlier == found.later && race.earlier_kind != Kind::load;
  if (race.order == Order::other_block)
    text +=
        "The blocks of a launch run in any order: use an atomic operation, or hand over with __threadfence() "
        "and an atomic operation, or in a launch of its own.";
  else if (one_line)
    text += "Several threads write there: let one of them, or use an atomic operation.";
  else if (race.order == Order::same_warp)
    text += "Missing: __syncwarp() " + lines + ".";
  else
    text += "Missing: __syncthreads() " + lines + ".";
  if (race.count > 1) text += " (" + std::to_string(race.count) + " times)";

  std::vector<std::string> rows;
  while (text.size() > width) {
    const size_t space = text.rfind(' ', width);
    if (space == std::string::npos || space == 0) break;
    rows.push_back(text.substr(0, space));
    text.erase(0, space + 1);
  }
  rows.push_back(text);
  return rows;
}

}  // namespace hostcuda::profile

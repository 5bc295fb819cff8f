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

struct Diagnosis {
  std::string text;
  double weight = 0;  // what it costs, in bytes, passes or requests
};

double ratio(uint64_t a, uint64_t b) {
  return b == 0 ? 0 : static_cast<double>(a) / static_cast<double>(b);
}

Diagnosis diagnose_shared(const InstructionCounts& counts) {
  const double conflict = ratio(counts.passes, counts.parts);
  if (conflict < 1.5) return {};
  const auto apart = static_cast<long long>(counts.stride);
  const bool column = apart != 0 && apart % 128 == 0 && conflict > 16;
  char text[160];
  std::snprintf(text, sizeof text, "%.0f-way bank conflict: neighbouring threads are %lld words apart; %s.",
                conflict, apart / 4,
                column ? "pad each row by one element" : "let them take words side by side");
  return {text, static_cast<double>(counts.passes - counts.parts)};
}

Diagnosis diagnose_global(const InstructionCounts& counts) {
  const double lanes = ratio(counts.lanes, counts.requests), sectors = ratio(counts.sectors, counts.requests);
  const auto apart = static_cast<long long>(counts.stride);
  char text[200];
  if (counts.kind == Kind::atomic) {
    if (lanes <= 1.5 || apart != 0) return {};
    std::snprintf(text, sizeof text,
                  "%.0f threads of a warp update one word, one after the other: combine their values first.",
                  lanes);
    return {text, static_cast<double>(counts.lanes - counts.requests)};
  }
  // What lanes that lie side by side would need.
  const double ideal = std::max(1.0, lanes * counts.bytes / 32);
  if (lanes < 2 || sectors <= 1.2 * ideal + 0.5) return {};
  char head[80];
  std::snprintf(head, sizeof head,
                "%.*f sectors a request where %ld would do: ", sectors < ideal + 1.5 ? 1 : 0, sectors,
                std::max(1L, std::lround(ideal)));
  if (apart != static_cast<long long>(counts.bytes))
    std::snprintf(text, sizeof text, "%sneighbouring threads are %lld bytes apart%s.", head, apart,
                  std::abs(apart) >= 64 ? "; let threadIdx.x run along the memory" : "");
  else if (sectors < ideal + 1.5)
    std::snprintf(text, sizeof text, "%sa warp's first address is no multiple of 32 bytes.", head);
  else
    std::snprintf(text, sizeof text, "%sthe threads of a warp are in several places.", head);
  return {text, 32 * (sectors - ideal) * static_cast<double>(counts.requests)};
}

Diagnosis diagnose(const InstructionCounts& counts) {
  return counts.space == Space::shared ? diagnose_shared(counts) : diagnose_global(counts);
}

// Divergence is worth a word where a line is a good part of what the kernel does.
void diagnose_divergence(KernelSummary& kernel) {
  double requests = 0;
  for (const LineSummary& line : kernel.lines) requests += line.requests;
  for (LineSummary& line : kernel.lines) {
    if (!line.wrong.empty() || line.lanes_a_request() >= 16 || line.requests < 0.1 * requests ||
        line.longest < 2)
      continue;
    char text[120];
    std::snprintf(text, sizeof text,
                  "%.0f of 32 threads take part in a request: the others of the warp wait.",
                  line.lanes_a_request());
    line.wrong = text;
  }
}

void add_counts(KernelSummary& kernel, const InstructionCounts& counts, double scale,
                const SourceLine& source) {
  const auto same = [&](const LineSummary& line) {
    return line.line == source && line.space == counts.space && line.kind == counts.kind;
  };
  auto line = std::find_if(kernel.lines.begin(), kernel.lines.end(), same);
  if (line == kernel.lines.end()) {
    LineSummary& added = kernel.lines.emplace_back();
    added.line = source;
    added.space = counts.space;
    added.kind = counts.kind;
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
  if (const Diagnosis found = diagnose(counts); found.weight * scale > line->wrong_weight) {
    line->wrong = found.text;
    line->wrong_weight = found.weight * scale;
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
    diagnose_divergence(kernel);
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

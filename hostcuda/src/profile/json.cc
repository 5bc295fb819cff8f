// The profile as JSON, for tools.
#include <nlohmann/json.hpp>

#include "hostcuda/src/profile/profile.h"
#include "hostcuda/src/runtime/config.h"
#include "hostcuda/src/runtime/gpus.h"

namespace hostcuda::profile {

namespace {

using Json = nlohmann::ordered_json;

Json triple(unsigned x, unsigned y, unsigned z) {
  return Json::array({x, y, z});
}

const char* name_of(Kind kind) {
  return kind == Kind::load ? "load" : kind == Kind::store ? "store" : "atomic";
}

Json line_json(const LineSummary& line) {
  Json json{{"file", line.line.file},          {"line", line.line.line},
            {"kind", name_of(line.kind)},      {"space", line.space == Space::shared ? "shared" : "global"},
            {"requests", line.requests},       {"lanes_per_request", line.lanes_a_request()},
            {"bytes_asked", line.bytes_asked}, {"width", line.width},
            {"stride", line.stride},           {"longest_chain", line.longest}};
  if (!line.line.caller_file.empty()) {
    json["caller_file"] = line.line.caller_file;
    json["caller_line"] = line.line.caller_line;
  }
  if (line.space == Space::global) {
    json["sectors_per_request"] = line.sectors_a_request();
    json["bytes_moved"] = line.bytes_moved;
  } else {
    json["bank_passes"] = line.conflict();
    json["worst_bank_passes"] = line.most_passes;
  }
  if (!line.wrong.empty()) json["diagnosis"] = line.wrong;
  return json;
}

Json race_json(const RaceSummary& found) {
  const Race& race = found.race;
  const auto side = [](const SourceLine& line, Kind kind, const uint3& block, const uint3& thread) {
    return Json{{"file", line.file},
                {"line", line.line},
                {"kind", name_of(kind)},
                {"block", triple(block.x, block.y, block.z)},
                {"thread", triple(thread.x, thread.y, thread.z)}};
  };
  return {{"earlier", side(found.earlier, race.earlier_kind, race.earlier_block, race.earlier_thread)},
          {"later", side(found.later, race.later_kind, race.later_block, race.later_thread)},
          {"between", race.order == Order::other_block  ? "blocks"
                      : race.order == Order::same_block ? "threads"
                                                        : "lanes"},
          {"space", race.space == Space::shared ? "shared" : "global"},
          {"place", race.place},
          {"count", race.count},
          {"text", describe_race(found, std::string::npos).front()}};
}

Json kernel_json(const KernelSummary& kernel) {
  Json json{{"name", kernel.name},
            {"launched_at", kernel.site},
            {"block", triple(kernel.block.x, kernel.block.y, kernel.block.z)},
            {"dynamic_shared_bytes", kernel.dynamic_shared_bytes},
            {"registers", kernel.registers.count},
            {"spill_bytes", kernel.registers.spill_bytes},
            {"static_shared_bytes", kernel.static_shared_bytes},
            {"launches", kernel.launches},
            {"blocks", kernel.blocks},
            {"recorded_blocks", kernel.recorded_blocks},
            {"bytes_moved", kernel.bytes_moved},
            {"longest_global_chain", kernel.longest_global},
            {"longest_shared_chain", kernel.longest_shared},
            {"races_complete", kernel.races_complete},
            {"shapes", Json::array()},
            {"lines", Json::array()},
            {"races", Json::array()}};
  for (const ShapeSummary& shape : kernel.shapes)
    json["shapes"].push_back({{"grid", triple(shape.grid.x, shape.grid.y, shape.grid.z)},
                              {"launches", shape.launches},
                              {"recorded_launches", shape.recorded_launches},
                              {"recorded_blocks", shape.recorded_blocks}});
  for (const LineSummary& line : kernel.lines) json["lines"].push_back(line_json(line));
  for (const RaceSummary& race : kernel.races) json["races"].push_back(race_json(race));
  return json;
}

}  // namespace

std::string to_json(const Summary& summary) {
  Json json{{"profile", 1},
            {"gpu", kGpus[static_cast<size_t>(config().profile_gpu)].name},
            {"kernels", Json::array()},
            {"notes", Json::array()}};
  for (const KernelSummary& kernel : summary.kernels) json["kernels"].push_back(kernel_json(kernel));
  for (const NoteSummary& note : summary.notes)
    json["notes"].push_back({{"file", note.line.file},
                             {"line", note.line.line},
                             {"kernel", note.note.kernel},
                             {"text", note.note.text},
                             {"count", note.note.count}});
  return json.dump(1) + "\n";
}

}  // namespace hostcuda::profile

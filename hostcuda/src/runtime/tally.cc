#include "hostcuda/src/runtime/tally.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include <hostcuda/forecast.h>
#include "hostcuda/src/runtime/api.h"
#include "hostcuda/src/runtime/config.h"
#include "hostcuda/src/runtime/memory.h"

namespace hostcuda {
namespace {

// Steps beyond these are not kept: a forecast needs one that is like the others.
constexpr size_t kMostSteps = 256;

struct State {
  std::mutex mutex;
  Tally tally;
  std::map<decltype(std::declval<Operation>().key()), int> places;
  std::optional<TallyStep> step;
};

State& state() {
  static State* const state = new State;
  return *state;
}

thread_local Operation described;
thread_local double noted = 0;

void note_memory(Tally& tally) {
  for (int device = 0; device < config().devices; ++device)
    tally.memory = std::max(tally.memory, memory_in_use(device));
}

void add(const Operation& operation, bool called) {
  if (!is_tallied()) return;
  State& all = state();
  const std::lock_guard hold(all.mutex);
  const auto [place, added] =
      all.places.try_emplace(operation.key(), static_cast<int>(all.tally.operations.size()));
  if (added) all.tally.operations.push_back(operation);
  TallyStep& step = all.step ? *all.step : all.tally.rest;
  step.operations.push_back(place->second);
  if (called) step.calls.push_back(place->second);
}

}  // namespace

bool is_tallied() {
  return !config().forecast.empty();
}

void tally(const Operation& operation) {
  add(operation, true);
}

void tally_in_graph(const Operation& operation) {
  add(operation, false);
}

void tally_event() {
  if (!is_tallied()) return;
  State& all = state();
  const std::lock_guard hold(all.mutex);
  ++(all.step ? *all.step : all.tally.rest).events;
}

Tally tally_so_far() {
  State& all = state();
  const std::lock_guard hold(all.mutex);
  note_memory(all.tally);
  return all.tally;
}

void describe_call(const Operation& operation) {
  if (is_tallied()) described = operation;
}

Operation take_described_call(const char* name) {
  Operation operation = std::exchange(described, Operation{});
  operation.name = name;
  operation.device = this_thread().device;
  return operation;
}

double take_noted_operations() {
  return std::exchange(noted, 0.0);
}

void begin_step() {
  if (!is_tallied()) return;
  State& all = state();
  const std::lock_guard hold(all.mutex);
  all.step.emplace();
}

void end_step(int64_t items) {
  if (!is_tallied()) return;
  State& all = state();
  const std::lock_guard hold(all.mutex);
  if (!all.step) return;
  all.step->items = items;
  note_memory(all.tally);
  if (all.tally.steps.size() < kMostSteps) all.tally.steps.push_back(std::move(*all.step));
  all.step.reset();
}

void note_operations(double operations) {
  noted = operations;
}

}  // namespace hostcuda

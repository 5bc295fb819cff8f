// What a program asks its devices to do, in the order of its calls, for a forecast (src/forecast): kept for
// each step between hostcuda::begin_step and end_step, or for the whole run where none is marked. Nothing is
// kept unless HOSTCUDA_FORECAST is set.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include <hostcuda/launch.h>

namespace hostcuda {

// How a library call multiplies.
enum class Arithmetics { fp32, tf32, bf16 };
enum class Link { device, peer, pinned, pageable };

struct Operation {
  enum class Kind { kernel, product, convolution, copy, fill, other };
  Kind kind = Kind::other;
  std::string
      name;  // of a library's function, "copy to the host"; of a kernel where its address does not tell
  int device = 0;

  // kernel
  const void* kernel = nullptr;
  LaunchSite site{};
  unsigned grid[3] = {}, block[3] = {};
  size_t shared_bytes = 0;
  double operations = 0;  // floating point ones, as noted; 0: nobody has

  // product, convolution: as a matrix product of rows x depth by depth x columns, `count` times.
  Arithmetics arithmetics = Arithmetics::fp32;
  double rows = 0, columns = 0, depth = 0, count = 1;
  double bytes = 0;  // a copy's; what a library call reads and writes at least

  Link link = Link::device;
  bool waits = false;  // the host does, until it is done

  auto key() const {
    return std::tuple(
        kind, name, device, kernel, site.file == nullptr ? "" : std::string(site.file), site.line,
        std::tuple(grid[0], grid[1], grid[2]), std::tuple(block[0], block[1], block[2]),
        std::tuple(shared_bytes, operations, arithmetics, rows, columns, depth, count, bytes, link, waits));
  }
};

// One step, or the whole run.
struct TallyStep {
  std::vector<int> operations;  // what the devices do, by their places in Tally::operations
  std::vector<int> calls;       // what the host calls; a graph is one call and many operations
  uint64_t events = 0;          // records and waits
  int64_t items = 0;
};

struct Tally {
  std::vector<Operation> operations;  // each once
  std::vector<TallyStep> steps;       // those marked
  TallyStep rest;                     // what came before, between and behind them
  size_t memory = 0;                  // most bytes of a device in use at the end of a step, or now
};

// Whether anybody asks.
bool is_tallied();
void tally(const Operation& operation);           // called and done
void tally_in_graph(const Operation& operation);  // done, without a call
void tally_event();
Tally tally_so_far();

// What the next library call of this thread is; taken by the work that it enqueues.
void describe_call(const Operation& operation);
Operation take_described_call(const char* name);
// What note_operations has said since the last launch of this thread.
double take_noted_operations();

}  // namespace hostcuda

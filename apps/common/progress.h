// What a training run shows while an epoch is going on: a bar that is redrawn in place on a terminal, a line
// now and then where the output is none.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace lockstep::apps {

class Progress {
 public:
  // `steps` of an epoch named `label`, of which `done` are over; shows nothing when `quiet`.
  Progress(std::string label, int64_t done, int64_t steps, bool quiet);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // True when it is time to show again; the caller then gathers figures (which waits for the device).
  bool due() const;
  // `step` steps are done, at `images_per_second`, with the mean loss so far.
  void show(int64_t step, double images_per_second, double loss);

 private:
  using Clock = std::chrono::steady_clock;
  std::string label_;
  int64_t first_, steps_;
  bool quiet_;
  bool terminal_;
  bool drawn_ = false;
  Clock::time_point start_;
  Clock::time_point last_;
};

// "1:05" or "2:03:04".
std::string format_seconds(double seconds);

}  // namespace lockstep::apps

// What a run shows while an epoch or an evaluation is going on: a bar that is redrawn in place on a terminal,
// a line now and then where the output is none.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace lockstep::apps {

class ProgressBar {
 public:
  // `total` of something named `label`, of which `done` are over; shows nothing when `quiet`.
  ProgressBar(std::string label, int64_t done, int64_t total, bool quiet);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // True when it is time to show again; the caller then gathers figures (which waits for the device).
  bool due() const;
  // `done` are over now; `figures` is what else there is to say.
  void show(int64_t done, const std::string& figures);
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  std::string label_;
  int64_t first_, total_;
  bool quiet_;
  bool terminal_;
  bool drawn_ = false;
  Clock::time_point start_;
  Clock::time_point last_;
};

// "1:05" or "2:03:04".
std::string format_seconds(double seconds);

}  // namespace lockstep::apps

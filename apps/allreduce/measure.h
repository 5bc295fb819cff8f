// Times and checks allreduces, in the manner of nccl-tests (NVIDIA, github.com/NVIDIA/nccl-tests): out of
// place and in place, with inputs whose result is exact in any order of additions, so that one wrong bit
// shows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/collective/allreduce.h"

namespace lockstep::apps {

struct AllreduceCase {
  std::vector<Device> devices;
  std::string algorithm;
  DType dtype = DType::float32;
  collective::Reduction reduction = collective::Reduction::sum;
  int64_t count = 0;  // elements per device
};

struct AllreduceRuns {
  int warm_up = 5;
  int iterations = 20;
  int aggregate = 1;   // operations per iteration
  bool graph = false;  // an iteration is a CUDA graph that is launched
  bool check = true;
};

struct AllreduceTime {
  double microseconds = 0;  // per operation
  int64_t wrong = 0;        // elements, and words around the buffers; -1: not checked
};

// A case with its buffers, which can be timed again and again.
class AllreduceBench {
 public:
  AllreduceBench(const AllreduceCase& of, const AllreduceRuns& runs);

  // Fills the buffers, reduces once and compares; then warms up and times.
  AllreduceTime in_place();
  // The same with a copy from other buffers before each operation.
  AllreduceTime out_of_place();

 private:
  AllreduceTime measure(bool copies_first);
  void enqueue(bool copies_first);
  double time_graph(bool copies_first);
  double time_calls(bool copies_first);
  void fill();
  void synchronize() const;

  const AllreduceCase case_;
  const AllreduceRuns runs_;
  collective::Allreduce reduce_;
  std::vector<Tensor> whole_, source_whole_;  // with guard elements on both sides
  std::vector<Tensor> data_, source_;         // without
};

// On a device: `count` elements of rank `rank` as a bench begins with, between guards.
Tensor guarded_buffer(int rank, int64_t count, DType dtype, const Device& device);
// How many elements of these buffers, one per rank, differ from the result or, in their guards, from what was
// there.
int64_t wrong_elements(const std::vector<Tensor>& buffers, int64_t count, collective::Reduction reduction);

// Bytes over the wire per second, in units of 10^9: algbw counts the buffer's bytes once; busbw what the
// fullest port must carry at least, 2 (k - 1) / k of them, whatever the algorithm.
double algorithm_bandwidth(int64_t bytes, double microseconds);
double bus_bandwidth(int64_t bytes, double microseconds, int ranks);

}  // namespace lockstep::apps

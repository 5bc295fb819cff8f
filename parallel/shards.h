// How the rows of a batch are dealt out to the devices, and come together again.
#pragma once

#include <cstdint>
#include <vector>

#include "core/tensor.h"
#include "parallel/collective/plan.h"

namespace lockstep::parallel {

// `rows` in `parts` shards whose sizes differ by one at most, the larger ones first: 9 in 4 is 3, 2, 2, 2.
// Shards are empty where there are fewer rows than parts.
std::vector<int64_t> split_sizes(int64_t rows, int parts);

struct Shards {
  std::vector<Tensor> x, y;  // shard i is on device i
};

// Cuts the rows of a batch (x: [rows, ...], y: [rows, ...], on any device) into shards of split_sizes, in
// order, and copies shard i to devices[i].
Shards split_batch(const Tensor& x, const Tensor& y, const std::vector<Device>& devices);

// The rows of a batch that each replica gets, [begin, end): split_sizes as ranges.
std::vector<collective::Slice> rows_of_shards(int64_t rows, size_t replicas);

// Rows of `whole`, on `device`: a view where they are there already.
Tensor shard_of(const Tensor& whole, const collective::Slice& rows, const Device& device);

// parts[r], [rows[r].size(), ...], put together on `device`, in order; undefined where rows[r] is empty.
// Throws, naming the replica, where one does not fit.
Tensor gather(const std::vector<Tensor>& parts, const std::vector<collective::Slice>& rows,
              const Device& device);

}  // namespace lockstep::parallel

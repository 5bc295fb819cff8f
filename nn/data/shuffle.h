// The order in which an epoch visits the training rows. It depends on (rows, seed, epoch) alone: not on the
// number of devices, the platform or the standard library, whose shuffles and distributions differ.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::data {

// A permutation of 0..n-1, each of the n! (up to the generator's quality) equally likely over the epochs.
// Fisher-Yates over Philox (kernels/philox.cuh) with this seed and a sequence for each epoch. n in 0..2^31-1,
// else Error.
std::vector<int32_t> permutation(int64_t n, uint64_t seed, uint64_t epoch);

// Rows [begin, end) of an epoch's order.
struct Batch {
  int64_t begin, end;
};

// 0..n-1 cut into batches of batch_size rows, in order; the last one is shorter where n is not a multiple.
// batch_size in 1..n, else Error.
std::vector<Batch> batches(int64_t n, int64_t batch_size);

}  // namespace lockstep::data

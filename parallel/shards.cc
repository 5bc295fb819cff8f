#include "parallel/shards.h"

#include <fmt/format.h>

#include "kernels/check.h"

namespace lockstep::parallel {

std::vector<int64_t> split_sizes(int64_t rows, int parts) {
  if (rows < 0 || parts < 1)
    throw Error(fmt::format("split_sizes: {} rows in {} parts: use at least 1 part", rows, parts));
  std::vector<int64_t> sizes(static_cast<size_t>(parts), rows / parts);
  for (int64_t i = 0; i < rows % parts; ++i) ++sizes[static_cast<size_t>(i)];
  return sizes;
}

Shards split_batch(const Tensor& x, const Tensor& y, const std::vector<Device>& devices) {
  if (x.dim(0) != y.dim(0))
    throw Error(fmt::format("split_batch: x has {} rows but y has {}", x.dim(0), y.dim(0)));
  const std::vector<collective::Slice> rows = rows_of_shards(x.dim(0), devices.size());
  Shards shards;
  for (size_t i = 0; i < devices.size(); ++i) {
    shards.x.push_back(x.slice(rows[i].begin, rows[i].end).copy_to(devices[i]));
    shards.y.push_back(y.slice(rows[i].begin, rows[i].end).copy_to(devices[i]));
  }
  return shards;
}

std::vector<collective::Slice> rows_of_shards(int64_t rows, size_t replicas) {
  std::vector<collective::Slice> slices;
  int64_t begin = 0;
  for (const int64_t size : split_sizes(rows, static_cast<int>(replicas))) {
    slices.push_back({begin, begin + size});
    begin += size;
  }
  return slices;
}

Tensor shard_of(const Tensor& whole, const collective::Slice& rows, const Device& device) {
  const Tensor shard = whole.slice(rows.begin, rows.end);
  return shard.device() == device ? shard : shard.copy_to(device);
}

Tensor gather(const std::vector<Tensor>& parts, const std::vector<collective::Slice>& rows,
              const Device& device) {
  Tensor first;  // an empty shard may come before it
  for (size_t r = 0; r < parts.size(); ++r) {
    if (!parts[r].defined()) continue;
    if (!first.defined()) first = parts[r];
    Shape wanted = first.shape();
    if (!wanted.empty()) wanted[0] = rows[r].size();
    if (wanted.empty() || parts[r].shape() != wanted || parts[r].dtype() != first.dtype())
      throw Error(
          fmt::format("DataParallel: replica {} made {} {} of a shard of {} rows: outputs must be "
                      "[rows, ...], and alike in all replicas",
                      r, name_of(parts[r].dtype()), to_string(parts[r].shape()), rows[r].size()));
  }
  Shape shape = first.shape();
  shape[0] = rows.back().end;
  const Tensor whole = Tensor::empty(shape, device, first.dtype());
  for (size_t r = 0; r < parts.size(); ++r)
    if (parts[r].defined()) whole.slice(rows[r].begin, rows[r].end).copy_from(parts[r]);
  return whole;
}

}  // namespace lockstep::parallel

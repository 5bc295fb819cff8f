// Any module on several devices, as if on one: DataParallel holds one replica per device, gives each its
// shard of a batch, gathers their outputs, and sums their gradients over the replicas when backward comes by.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "nn/io/safetensors.h"
#include "nn/module.h"
#include "parallel/collective/thread_group.h"
#include "parallel/device_threads.h"
#include "parallel/replica_gradients.h"

namespace lockstep::parallel {

// Builds and initialises one replica, with all parameters and buffers on the device.
using MakeModule = std::function<std::shared_ptr<nn::Module>(const Device&)>;

// What a batch norm in training normalises by.
enum class BatchStatistics {
  shard,  // the replica's own rows; DataParallel::combine_buffers makes the running statistics one
  batch,  // all rows of the batch, over all replicas: k replicas match one device to rounding
};

struct DataParallelOptions {
  collective::Algorithm algorithm = collective::ring;
  BatchStatistics statistics = BatchStatistics::shard;
  DType reduce_in = DType::float32;  // or bfloat16: what gradients are summed over the replicas in
  bool check_allreduce = false;      // hold every sum of gradients against the serial one
};

// Like paddle.DataParallel and torch's nn.DataParallel, in one line:
//   parallel::DataParallel net([](const Device& d) { return nn::resnet18(10, 1, d); }, devices);
// Must outlive the outputs that backward is called on.
class DataParallel {
 public:
  // One replica per device, made by `make`; parameters and buffers of replica 0 are then copied into the
  // others, and each is told its number (Module::set_replica). Throws, naming the parameter and the replica,
  // where these differ in more than values.
  DataParallel(const MakeModule& make, const std::vector<Device>& devices,
               const DataParallelOptions& options = {});
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // The output for x: [rows, ...], on any device, as [rows, ...] on devices()[0]. The rows are split as
  // split_sizes says, in order; a replica whose shard is empty does not run. backward() of what is computed
  // from the output reduces the gradients over the replicas, and goes on to x where that requires one. Throws
  // for a batch without rows.
  Tensor operator()(const Tensor& x);

  // The two halves, for a caller whose shards are on the devices already, and whose losses stay there.
  // forward: replica r on shards[r], on devices()[r]; undefined where that has no rows. backward: back
  // through outputs[r] (a loss where no gradients are given) of each replica that has one; the gradients stay
  // with the replicas, unsummed. Where one throws, others may have added to theirs: zero_grad() before the
  // next.
  std::vector<Tensor> forward(const std::vector<Tensor>& shards);
  void backward(const std::vector<Tensor>& outputs, const std::vector<Tensor>& gradients = {});

  // Sums over the replicas what backward has added, into all of them.
  void reduce_gradients() { gradients_.reduce(); }
  // Gradients are summed from one zero_grad() to the next. A parameter that no replica used in between has
  // none: its grad() is undefined, and an optimizer leaves it alone.
  void zero_grad() { gradients_.zero(); }

  // While one lives, backward() of what operator() made leaves the gradients unsummed; the next one after it
  // sums all. So several batches count as one.
  class NoSync {
   public:
    explicit NoSync(DataParallel& net) : net_(net) { ++net_.no_sync_; }
    ~NoSync() { --net_.no_sync_; }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    DataParallel& net_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }
  const ReplicaGradients& gradients() const { return gradients_; }

  void train(bool on = true);
  void eval() { train(false); }

  nn::Module& module() const { return *replicas_[0]; }
  const std::vector<std::shared_ptr<nn::Module>>& replicas() const { return replicas_; }
  const std::vector<Device>& devices() const { return devices_; }

  // Copies parameters and buffers of replica 0 into the others: after values were loaded into it.
  void broadcast();

  // Makes the buffers one, in all replicas, as each module says: a batch norm's running statistics become
  // those over the rows that each replica has seen since the last time; a buffer without a rule gets replica
  // 0's value. Call it at the end of each epoch, before evaluation. Nothing changes where no replica has seen
  // anything since.
  void combine_buffers();
  // Those values without writing them, on devices()[0], in the order of named_buffers()
  // (nn::combine_buffers).
  std::vector<Tensor> combined_buffers() const;
  // What a file for everybody holds: nn::state_dict(module()) with the combined running statistics.
  std::vector<data::HostTensor> state_dict() const;
  // Rows that each replica has seen in training since combine_buffers: part of a run's state.
  const std::vector<int64_t>& rows_since_combined() const { return rows_; }
  void set_rows_since_combined(const std::vector<int64_t>& rows);

 private:
  void run(const std::vector<bool>& runs, const std::function<void(size_t)>& work);

  std::vector<std::shared_ptr<nn::Module>> replicas_;
  std::vector<Device> devices_;
  DeviceThreads threads_;
  std::shared_ptr<collective::ThreadGroup> group_;  // null where replicas do not wait for each other
  ReplicaGradients gradients_;
  int no_sync_ = 0;
  std::vector<int64_t> rows_;
};

}  // namespace lockstep::parallel

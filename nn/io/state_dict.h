// From what a module or an optimizer remembers to named tensors on the host, and back: what checkpoints hold.
// Loading compares all names, types and shapes first, so that it changes everything or nothing, and one error
// tells everything that does not fit.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "core/tensor.h"
#include "nn/io/safetensors.h"
#include "nn/module.h"

namespace lockstep::nn {

// Parameters, then buffers, under their dotted names (tied ones under each of theirs), as float32 in
// Lockstep's own layout (convolutions [out, height, width, in]). Waits for the device.
std::vector<data::HostTensor> state_dict(const Module& module);

// Overwrites the module's parameters and buffers, in place, with these tensors, in any order. Throws one
// Error that names every missing, extra, wrongly typed and wrongly shaped tensor (the first five of a kind),
// and `file`, where they come from; then the module is as it was. Of a tied tensor one name is enough; where
// several are there, their values must agree. Replicas: load one, then broadcast.
void load_state_dict(Module& module, const std::vector<data::HostTensor>& tensors, const std::string& file);

// What replicas of one model do not share: their buffers, and their counters as int64 scalars, each once.
std::vector<data::HostTensor> replica_state(const Module& replica);
void load_replica_state(Module& replica, const std::vector<data::HostTensor>& tensors,
                        const std::string& file);

// Names of the parameters, in order: what an optimizer's state goes by (nn/optimizer.h).
std::vector<std::string> parameter_names(const Module& module);

// One value with a name, to be saved from or loaded into: a float32 tensor, or a number on the host.
struct StateEntry {
  std::string name;
  std::variant<Tensor, int64_t*> value;
};
// The module's parameters, then its buffers, under all names.
std::vector<StateEntry> state_entries(const Module& module);
std::vector<data::HostTensor> save_entries(const std::vector<StateEntry>& entries);
// As load_state_dict, entries of one tensor being tied; `owner` is what the entries belong to, for the error:
// "the model".
void load_entries(const std::vector<StateEntry>& entries, const std::vector<data::HostTensor>& tensors,
                  const std::string& file, const std::string& owner);

}  // namespace lockstep::nn

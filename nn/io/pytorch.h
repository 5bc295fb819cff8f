// A module's tensors as PyTorch names and lays them out, and back. PyTorch has images as [channels, height,
// width], Lockstep as [height, width, channels]: that changes the weights of convolutions, and those of the
// linear layer that reads a flattened image. Which layer is which, the module tree tells.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "nn/io/safetensors.h"
#include "nn/module.h"

namespace lockstep::nn {

// How the parts of a dotted name are called in PyTorch; what is not listed keeps its name. "bn1" may be
// called otherwise in a model than inside its blocks.
struct PyTorchNames {
  std::map<std::string, std::string> first;  // the part before the first dot
  std::map<std::string, std::string> inner;  // all others
};

// What state_dict() of the same model in PyTorch holds, in the same order: convolutions [out, in, height,
// width], and num_batches_tracked, which Lockstep does not count, as 0. Throws Error for a layer with
// parameters whose layout is not known here (known: Conv2d, Linear, BatchNorm2d), and for a tied tensor that
// would have two layouts.
std::vector<data::HostTensor> pytorch_state_dict(const Module& module, const PyTorchNames& names);

// Overwrites the module's parameters and buffers with such tensors, in any order. "module." before all names,
// which DataParallel leaves, and num_batches_tracked are ignored. Throws as load_state_dict does, with the
// names and shapes that `file` has, or should have; then the module is as it was.
void load_pytorch_state_dict(Module& module, const PyTorchNames& names,
                             const std::vector<data::HostTensor>& tensors, const std::string& file);

}  // namespace lockstep::nn

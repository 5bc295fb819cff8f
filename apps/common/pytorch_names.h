// What the tensors of each model are called in PyTorch: one table (docs/pytorch.md shows it).
#pragma once

#include "apps/common/models.h"
#include "nn/io/pytorch.h"

namespace lockstep::apps {

// A model that is not in the table keeps its names.
nn::PyTorchNames pytorch_names(const ModelDescription& description);

}  // namespace lockstep::apps

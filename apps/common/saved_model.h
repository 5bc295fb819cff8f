// A model rebuilt from what training saved: predict and export begin with it.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "apps/common/models.h"
#include "nn/io/safetensors.h"

namespace lockstep::apps {

struct SavedModel {
  std::filesystem::path file;  // of the weights
  ModelDescription description;
  std::shared_ptr<nn::Module> module;  // in evaluation mode
};

// From a weights file, or from the newest usable checkpoint of a folder; tells on standard error which newer
// ones had to be passed over. Throws Error, also where weights or running statistics are NaN or infinite.
SavedModel load_model(const std::filesystem::path& file_or_folder, const Device& device);

// Throws Error where a number in the description (classes, channels) is more than any dimension, and than the
// number, of the tensors that the model is to hold: before memory is asked for so many.
void check_numbers(const ModelDescription& description, const std::vector<data::HostTensor>& tensors);

}  // namespace lockstep::apps

// The models that programs know by name, with the options that choose their form: one place, so that what
// trains a model, and what finds it in a checkpoint, build the same one.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "parallel/data_parallel.h"

namespace lockstep::apps {

// What a checkpoint says of its model: {"model": "resnet18", "stem": "small", "variant": "chapter", ...}.
using ModelDescription = std::map<std::string, std::string>;

struct Model {
  ModelDescription description;
  parallel::MakeModule make;  // weights are zeros until nn/init.h fills them or a file does
};

struct ModelOption {
  std::string name;                 // "stem"
  std::string value;                // the default
  std::vector<std::string> values;  // all there are; empty where it is a number from 1
  std::string help;
};

struct NamedModel {
  std::string name;
  std::vector<ModelOption> options = {};
  std::function<std::shared_ptr<nn::Module>(const ModelDescription& complete, const Device&)> build;
};

// Makes a model known to all programs: it can be trained, predicted with, imported and exported. A constant
// of this type in a file of apps/models/ is all it takes; every program is linked with all of these files.
struct RegisterModel {
  explicit RegisterModel(NamedModel model);
};

// All of them, by name. Throws where two have the same one.
const std::vector<NamedModel>& named_models();

// The value of an option that is a number, when a model is built.
int64_t number(const ModelDescription& complete, const std::string& option);

// The model that description["model"] names. Options that are not there have their defaults; what is no
// option of the model is ignored, so a file's metadata will do. The result's description is complete, and
// holds the model's name and options alone. Throws for a name or a value that does not exist.
Model named_model(const ModelDescription& description);

// Adds the options of the model `description` names that are a choice (--stem, --variant), which write into
// `description`; it must outlive the parsing.
void add_model_options(CLI::App& app, ModelDescription& description);

// For people: the name and the choices, "resnet18 (stem small, variant chapter)".
std::string title(const ModelDescription& description);

}  // namespace lockstep::apps

#include "apps/common/models.h"

#include <fmt/format.h>

#include <charconv>

#include "apps/common/command_line.h"
#include "nn/models/lenet.h"
#include "nn/models/resnet.h"

namespace lockstep::apps {
namespace {

// 0 where `text` is no whole number from 1.
int64_t positive_number(const std::string& text) {
  int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stopped == end && number >= 1 ? number : 0;
}

std::shared_ptr<nn::Module> build_lenet(const ModelDescription& model, const Device& device) {
  const auto variant = choose<nn::LeNet>(
      "variant", model.at("variant"),
      {{"article", nn::LeNet::article}, {"chapter", nn::LeNet::chapter}, {"classic", nn::LeNet::classic}});
  return nn::lenet(variant, device);
}

std::shared_ptr<nn::Module> build_resnet18(const ModelDescription& model, const Device& device) {
  const auto stem = choose<nn::ResNetStem>(
      "stem", model.at("stem"), {{"small", nn::ResNetStem::small}, {"imagenet", nn::ResNetStem::imagenet}});
  const auto variant = choose<nn::ResNetVariant>(
      "variant", model.at("variant"),
      {{"chapter", nn::ResNetVariant::chapter}, {"torchvision", nn::ResNetVariant::torchvision}});
  return nn::resnet18(positive_number(model.at("classes")), positive_number(model.at("channels")), device,
                      stem, variant);
}

const NamedModel& find(const std::string& name) {
  std::vector<std::string> names;
  for (const NamedModel& model : named_models()) {
    if (model.name == name) return model;
    names.push_back(model.name);
  }
  throw unknown_name("model", name, names);
}

void check_option(const std::string& model, const ModelOption& option, const std::string& value) {
  const std::string what = fmt::format("{} of {}", option.name, model);
  if (option.values.empty()) {
    if (positive_number(value) == 0) throw Error(fmt::format("{} is '{}': use 1 or more", what, value));
    return;
  }
  for (const std::string& valid : option.values)
    if (value == valid) return;
  throw unknown_name(what, value, option.values);
}

}  // namespace

const std::vector<NamedModel>& named_models() {
  static const std::vector<NamedModel> models{
      {"lenet",
       {{"variant",
         "article",
         {"article", "chapter", "classic"},
         "article: ReLU and max pooling. chapter: 1-20-50 channels, average pooling. classic: sigmoid, as in "
         "1998."}},
       build_lenet},
      {"resnet18",
       {{"stem",
         "small",
         {"small", "imagenet"},
         "small: a 3x3 convolution with stride 1, for small images. imagenet: 7x7 with stride 2, then "
         "pooling."},
        {"variant",
         "chapter",
         {"chapter", "torchvision"},
         "chapter: convolutions with biases, plain shortcuts. torchvision: no biases, batch norm in "
         "shortcuts."},
        {"classes", "10", {}, "Classes to tell apart."},
        {"channels", "1", {}, "Channels of an image."}},
       build_resnet18},
  };
  return models;
}

Model named_model(const ModelDescription& description) {
  const auto name = description.find("model");
  if (name == description.end()) throw Error("there is no name of a model");
  const NamedModel& model = find(name->second);
  ModelDescription complete{{"model", model.name}};
  for (const ModelOption& option : model.options) {
    const auto given = description.find(option.name);
    complete[option.name] = given == description.end() ? option.value : given->second;
    check_option(model.name, option, complete[option.name]);
  }
  return {complete, [&model, complete](const Device& device) { return model.build(complete, device); }};
}

void add_model_options(CLI::App& app, ModelDescription& description) {
  for (const ModelOption& option : find(description.at("model")).options) {
    if (option.values.empty()) continue;
    std::string& value = description.try_emplace(option.name, option.value).first->second;
    app.add_option("--" + option.name, value, option.help)->group("Model");
  }
}

std::string title(const ModelDescription& description) {
  std::string options;
  for (const auto& [name, value] : description)
    if (name != "model" && positive_number(value) == 0)
      options += fmt::format("{}{} {}", options.empty() ? "" : ", ", name, value);
  const std::string& model = description.at("model");
  return options.empty() ? model : fmt::format("{} ({})", model, options);
}

}  // namespace lockstep::apps

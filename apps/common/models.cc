#include "apps/common/models.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "apps/common/command_line.h"

namespace lockstep::apps {
namespace {

// 0 where `text` is no whole number from 1.
int64_t positive_number(const std::string& text) {
  int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stopped == end && number >= 1 ? number : 0;
}

std::vector<NamedModel>& registered() {
  static std::vector<NamedModel> models;
  return models;
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

RegisterModel::RegisterModel(NamedModel model) {
  registered().push_back(std::move(model));
}

const std::vector<NamedModel>& named_models() {
  static const std::vector<NamedModel> sorted = [] {
    std::vector<NamedModel> models = registered();
    std::sort(models.begin(), models.end(),
              [](const NamedModel& a, const NamedModel& b) { return a.name < b.name; });
    for (size_t i = 1; i < models.size(); ++i)
      if (models[i - 1].name == models[i].name)
        throw Error(fmt::format(
            "two files of apps/models call their model '{}': give one of them another name", models[i].name));
    return models;
  }();
  return sorted;
}

int64_t number(const ModelDescription& model, const std::string& option) {
  return positive_number(model.at(option));
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

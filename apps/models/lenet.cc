// LeNet, as programs know it by name.
#include "nn/models/lenet.h"

#include "apps/common/command_line.h"
#include "apps/common/models.h"

using namespace lockstep;

namespace {

std::shared_ptr<nn::Module> build(const apps::ModelDescription& model, const Device& device) {
  const auto variant = apps::choose<nn::LeNet>(
      "variant", model.at("variant"),
      {{"article", nn::LeNet::article}, {"chapter", nn::LeNet::chapter}, {"classic", nn::LeNet::classic}});
  return nn::lenet(variant, device);
}

const apps::RegisterModel registered(
    {"lenet",
     {{"variant",
       "article",
       {"article", "chapter", "classic"},
       "article: ReLU and max pooling. chapter: 1-20-50 channels, average pooling. classic: sigmoid, as in "
       "1998."}},
     build});

}  // namespace

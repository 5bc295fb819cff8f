#include "nn/layers/conv_paths.h"

#include "kernels/conv/conv.h"
#include "nn/layers/cast.h"
#include "nn/layers/conv2d.h"

namespace lockstep::nn {
namespace {

void add_rows(const std::string& name, const Module& module, const Device& device,
              std::vector<ConvPathRow>& rows) {
  if (const auto* conv = dynamic_cast<const Conv2d*>(&module); conv != nullptr && conv->last_use()) {
    const Conv2d::Use& use = *conv->last_use();
    const auto add = [&](kernels::ConvPass pass, const char* title) {
      const kernels::ConvChoice choice =
          kernels::conv2d_choice(device.math(), use.shape, pass, operand_type(device) == DType::bfloat16);
      rows.push_back({name, title, choice.path, choice.why});
    };
    add(kernels::ConvPass::forward, "forward");
    if (use.input_needs_gradient) add(kernels::ConvPass::backward_data, "input gradient");
    add(kernels::ConvPass::backward_filter, "weight gradient");
  }
  const std::string prefix = name.empty() ? "" : name + ".";
  for (const auto& [child, layer] : module.children()) add_rows(prefix + child, *layer, device, rows);
}

}  // namespace

std::vector<ConvPathRow> conv_paths(Module& model, const Tensor& x) {
  {
    const EvaluationMode evaluating(model);
    model.forward(x);
  }
  std::vector<ConvPathRow> rows;
  const DeviceGuard guard(x.device());
  add_rows("", model, x.device(), rows);
  return rows;
}

}  // namespace lockstep::nn

#include "labs/article/d2l.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "apps/common/command_line.h"
#include "apps/common/output.h"
#include "core/autograd.h"
#include "kernels/finite.h"
#include "kernels/softmax.h"
#include "nn/data/fashion_mnist.h"
#include "nn/sgd.h"

namespace lockstep::d2l {

int main(const char* program, const char* description, const Arguments& defaults, int argc, char** argv,
         const std::function<void(const Arguments&)>& train) {
  CLI::App app(description, program);
  Arguments arguments = defaults;
  apps::use_help_format(app);
  app.add_option("--devices", arguments.devices, "Replicas to train");
  app.add_option("--batch-size", arguments.batch_size, "Images per step, over all devices");
  app.add_option("--lr", arguments.lr, "Learning rate");
  app.add_option("--epochs", arguments.epochs, "Passes over the training images");
  app.add_option("--limit", arguments.limit, "Only the first N training and N test images")
      ->default_str("all");
  app.add_option("--data-dir", arguments.data_dir, "Folder with the Fashion-MNIST files");
  if (const int exit_code = apps::parse(app, argc, argv); exit_code >= 0) return exit_code;
  return apps::report_errors(program, [&] {
    const auto check_count = [&app](const char* option, int64_t value, int64_t most) {
      if (app.count(option) > 0)
        apps::check_value(value >= 1 && value <= most, option, static_cast<double>(value),
                          fmt::format("1 to {}", most).c_str());
    };
    check_count("--devices", arguments.devices, kMaxDevices);
    for (const auto& [option, value] : {std::pair<const char*, int64_t>{"--batch-size", arguments.batch_size},
                                        {"--epochs", arguments.epochs},
                                        {"--limit", arguments.limit}})
      check_count(option, value, 1'000'000);
    apps::check_value(arguments.lr > 0, "--lr", arguments.lr, "more than 0");
    train(arguments);
    return 0;
  });
}

DataIterator::DataIterator(data::DeviceData data, int64_t rows, int64_t batch_size, bool shuffles)
    : data_(std::move(data)), rows_(rows), batches_(data::batches(rows, batch_size)), shuffles_(shuffles) {}

void DataIterator::set_order(int64_t epoch) {
  std::vector<int32_t> order(static_cast<size_t>(rows_));
  std::iota(order.begin(), order.end(), 0);
  data_.set_order(shuffles_ ? data::permutation(rows_, 0, static_cast<uint64_t>(epoch)) : order);
}

std::pair<DataIterator, DataIterator> load_data_fashion_mnist(const Arguments& arguments,
                                                              const Device& device) {
  const auto limit = arguments.limit > 0 ? std::optional(arguments.limit) : std::nullopt;
  const auto [train, test] = data::load_fashion_mnist(data::find_fashion_mnist(arguments.data_dir), limit);
  if (arguments.batch_size > train.rows)
    throw Error(fmt::format("--batch-size is {}, but there are {} training images: use at most that",
                            arguments.batch_size, train.rows));
  const int64_t test_rows = std::min(limit.value_or(test.rows), test.rows);
  const auto on_device = [&](const data::ImageData& part) {
    return data::DeviceData(part.images, part.labels, part.height, part.width, {.mean = 0, .stddev = 1},
                            device);
  };
  return {DataIterator(on_device(train), train.rows, arguments.batch_size, true),
          DataIterator(on_device(test), test_rows, std::min(arguments.batch_size, test_rows), false)};
}

void sgd(const std::vector<Tensor>& params, float lr, int64_t batch_size) {
  nn::Sgd(params, {}).step(lr, 1.0F / static_cast<float>(batch_size));
  for (const Tensor& param : params) param.set_grad(Tensor());
}

double evaluate_accuracy(const std::function<Tensor(const Tensor&)>& net, DataIterator& data) {
  const NoGrad no_grad;
  constexpr int32_t kNoRow = std::numeric_limits<int32_t>::max();
  Tensor correct, without_largest;
  int64_t rows = 0;
  for (const auto& [x, y] : data.epoch(0)) {
    if (!correct.defined()) {
      correct = Tensor::zeros({1}, x.device(), DType::int32);
      without_largest = Tensor::from_host<int32_t>({kNoRow}, {1}, x.device());
    }
    const Tensor logits = net(x);
    const DeviceGuard guard(logits.device());
    const auto classes = static_cast<int>(logits.dim(1));
    kernels::count_correct(logits.data<float>(), y.data<int32_t>(), logits.dim(0), classes,
                           correct.data<int32_t>(), logits.device().label_fault(), logits.device().stream());
    kernels::first_row_without_largest(logits.data<float>(), logits.dim(0), classes,
                                       static_cast<int32_t>(rows), without_largest.data<int32_t>(),
                                       logits.device().stream());
    rows += logits.dim(0);
  }
  if (const int32_t row = without_largest.to_host<int32_t>()[0]; row != kNoRow)
    throw Error(
        fmt::format("the model's outputs for test image {} are NaN or infinite: use a smaller --lr", row));
  const auto right = static_cast<double>(correct.to_host<int32_t>()[0]);
  correct.device().check_labels();
  return right / static_cast<double>(data.rows());
}

void print_epoch(int64_t epoch, double loss, double test_accuracy, double seconds) {
  if (!std::isfinite(loss))
    throw Error(fmt::format("the loss became {} in epoch {}: use a smaller --lr", loss, epoch));
  fmt::print("epoch {}: loss {:.6f}, test accuracy {:.4f}, {:.1f} s\n", epoch, loss, test_accuracy, seconds);
  apps::flush_output();
}

}  // namespace lockstep::d2l

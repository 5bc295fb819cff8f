// What both articles take from the book's package d2l (Dive into Deep Learning): Fashion-MNIST in batches, a
// step of SGD, the accuracy on the test images. And what a program has that an article has not: arguments.
#pragma once

#include <chrono>
#include <functional>
#include <ranges>
#include <string>
#include <utility>
#include <vector>

#include "nn/data/device_data.h"
#include "nn/data/shuffle.h"

namespace lockstep::d2l {

struct Arguments {
  int devices = 2;
  int64_t batch_size = 256;
  float lr = 0.1F;
  int64_t epochs = 10;
  int64_t limit = 0;  // training images, and test images; 0: all
  std::string data_dir = {};
};

// main() of an article's program: parses the arguments (`defaults` where none are given) and runs `train`.
// Returns the exit code; what is wrong is told in one line.
int main(const char* program, const char* description, const Arguments& defaults, int argc, char** argv,
         const std::function<void(const Arguments&)>& train);

// Batches of images [rows, 28, 28, 1] with labels [rows]: `for (const auto& [x, y] : train_iter.epoch(3))`.
class DataIterator {
 public:
  DataIterator(data::DeviceData data, int64_t rows, int64_t batch_size, bool shuffles);

  int64_t rows() const { return rows_; }
  // All batches, the shorter last one too; shuffled anew each epoch where this iterator shuffles.
  auto epoch(int64_t number) {
    set_order(number);
    return batches_ | std::views::transform([this](const data::Batch& rows) {
             const data::LabelledBatch batch = data_.batch(rows.begin, rows.end - rows.begin);
             return std::pair(batch.x, batch.y);
           });
  }

 private:
  void set_order(int64_t epoch);

  data::DeviceData data_;
  int64_t rows_;
  std::vector<data::Batch> batches_;
  bool shuffles_;
};

// The training and the test images, as bytes on `device`; a batch's pixels are divided by 255, as in d2l.
std::pair<DataIterator, DataIterator> load_data_fashion_mnist(const Arguments& arguments,
                                                              const Device& device);

// param -= lr * gradient / batch_size for every one of `params`, a list; their gradients are dropped.
void sgd(const std::vector<Tensor>& params, float lr, int64_t batch_size);

// The share of rows whose largest logit is the label's. No history is recorded.
double evaluate_accuracy(const std::function<Tensor(const Tensor&)>& net, DataIterator& data);

// Seconds since it was made.
class Timer {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Prints "epoch 1: loss 0.8123, test accuracy 0.7421, 1.3 s". Throws where the loss is no number any more.
void print_epoch(int64_t epoch, double loss, double test_accuracy, double seconds);

}  // namespace lockstep::d2l

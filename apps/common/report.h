// What a training run reports: a row per epoch for people; for programs a line of JSON that tells what run it
// is, one an epoch, and the totals.
#pragma once

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <string>

namespace lockstep::apps {

struct EpochResult {
  int64_t epoch = 0;  // from 1
  double train_loss = 0;
  double train_accuracy = 0;
  double test_accuracy = 0;
  double learning_rate = 0;  // of its last step
  double seconds = 0;        // training alone, without the evaluation
  double images_per_second = 0;
  double allreduce_share = 0;  // of the seconds
};

struct Totals {
  int64_t epochs = 0, steps = 0, images = 0;
  double seconds = 0;
  double images_per_second = 0;
  double allreduce_share = 0;
  double test_accuracy = 0;
  int64_t peak_memory_bytes = 0;  // of the device that needed most
  std::string weights_sha256;
};

// What two runs must have in common to be compared.
struct RunDescription {
  std::map<std::string, std::string> model, options;
  std::string devices;  // device_summary()
  int64_t parameters = 0;
  std::string data_folder, data_sha256;  // of all images and labels that are used
  int64_t train_images = 0, test_images = 0;
};

class Report {
 public:
  // Opens `json_path` (empty: none; "-": standard output) for writing at once, so that a path that cannot be
  // written is found before training. Prints to standard output unless `quiet`.
  Report(const std::string& json_path, bool quiet);
  void run(const RunDescription& run);
  void epoch(const EpochResult& result);
  void totals(const Totals& totals);

 private:
  void write_json_line(const std::string& line);

  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string json_path_;
  std::unique_ptr<std::FILE, Close> json_;
  bool quiet_;
  bool headed_ = false;
};

}  // namespace lockstep::apps

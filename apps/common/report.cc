#include "apps/common/report.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "apps/common/command_line.h"
#include "apps/common/output.h"
#include "apps/common/progress_bar.h"
#include "kernels/check.h"

namespace lockstep::apps {

Report::Report(const std::string& json_path, bool quiet) : json_path_(json_path), quiet_(quiet) {
  if (json_path.empty() || json_path == "-") return;
  json_.reset(std::fopen(json_path.c_str(), "w"));
  if (!json_) throw Error(fmt::format("--json {}: cannot be written: {}", json_path, std::strerror(errno)));
}

void Report::write_json_line(const std::string& line) {
  if (json_path_ == "-") {
    fmt::print("{}\n", line);
    flush_output();
  }
  if (!json_) return;
  if (std::fputs((line + "\n").c_str(), json_.get()) < 0 || std::fflush(json_.get()) != 0)
    throw Error(fmt::format("--json {}: writing failed: {}", json_path_, std::strerror(errno)));
}

void Report::run(const RunDescription& run) {
  write_json_line(nlohmann::ordered_json{{"version", version()},
                                         {"model", run.model},
                                         {"parameters", run.parameters},
                                         {"options", run.options},
                                         {"devices", run.devices},
                                         {"data",
                                          {{"folder", run.data_folder},
                                           {"train_images", run.train_images},
                                           {"test_images", run.test_images},
                                           {"sha256", run.data_sha256}}}}
                      .dump());
}

void Report::epoch(const EpochResult& result) {
  if (!quiet_) {
    if (!std::exchange(headed_, true))
      fmt::print("{:>5} {:>10} {:>9} {:>9} {:>9} {:>8} {:>9} {:>9}\n", "epoch", "train loss", "train acc",
                 "test acc", "last rate", "seconds", "images/s", "allreduce");
    fmt::print("{:>5} {:>10.4f} {:>9.4f} {:>9.4f} {:>9.3g} {:>8.2f} {:>9.0f} {:>8.1f}%\n", result.epoch,
               result.train_loss, result.train_accuracy, result.test_accuracy, result.learning_rate,
               result.seconds, result.images_per_second, 100 * result.allreduce_share);
    flush_output();
  }
  write_json_line(nlohmann::ordered_json{{"epoch", result.epoch},
                                         {"train_loss", result.train_loss},
                                         {"train_accuracy", result.train_accuracy},
                                         {"test_accuracy", result.test_accuracy},
                                         {"learning_rate", result.learning_rate},
                                         {"seconds", result.seconds},
                                         {"images_per_second", result.images_per_second},
                                         {"allreduce_share", result.allreduce_share}}
                      .dump());
}

void Report::totals(const Totals& totals) {
  if (!quiet_) {
    fmt::print(
        "{} steps, {} images in {}: {:.0f} images/s, {:.1f}% of it in allreduce\n"
        "at most {:.1f} MiB of memory per device\n",
        totals.steps, totals.images, format_seconds(totals.seconds), totals.images_per_second,
        100 * totals.allreduce_share, static_cast<double>(totals.peak_memory_bytes) / (1 << 20));
    fmt::print("test accuracy {:.4f}\nweights sha256 {}\n", totals.test_accuracy, totals.weights_sha256);
    flush_output();
  }
  write_json_line(nlohmann::ordered_json{{"epochs", totals.epochs},
                                         {"steps", totals.steps},
                                         {"images", totals.images},
                                         {"seconds", totals.seconds},
                                         {"images_per_second", totals.images_per_second},
                                         {"allreduce_share", totals.allreduce_share},
                                         {"test_accuracy", totals.test_accuracy},
                                         {"peak_memory_bytes", totals.peak_memory_bytes},
                                         {"weights_sha256", totals.weights_sha256}}
                      .dump());
}

}  // namespace lockstep::apps

// Trains ResNet-18 on Fashion-MNIST, on any number of devices.
#include "apps/common/program.h"

using namespace lockstep;

int main(int argc, char** argv) {
  apps::Program program{
      .name = "train_resnet18",
      .about =
          "Trains ResNet-18 on Fashion-MNIST. All devices hold the same weights; each\n"
          "computes the gradients of its part of the batch, an allreduce sums them, and\n"
          "all take the same step.",
      .examples =
          "Examples:\n"
          "  ./lab train_resnet18 --devices 2 --epochs 1 --limit 2000 a quick look\n"
          "  ./lab train_resnet18 --epochs 5                          most of it\n"
          "  ./lab train_resnet18 --stem imagenet                     faster, less accurate",
  };
  apps::Options& options = program.options;
  options.epochs = 20;
  options.batch_size = options.base_batch = 128;
  options.lr = 0.05;
  options.warmup_epochs = 0.5;
  options.clip_norm = 5;
  options.decay_on = "weights";
  options.label_smoothing = 0.1;
  options.augment = "crop+flip";
  return apps::run(argc, argv, program, "resnet18");
}

// Replicas and train_batch with a model small enough to follow: least squares over small integers, whose sums
// are exact, so that every number of devices must give the same bits.
#include "parallel/replicas.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "core/autograd.h"
#include "kernels/check.h"
#include "kernels/launch.cuh"

namespace lockstep::parallel {
namespace {

using Floats = std::vector<float>;

TEST(GetParams, CopiesDeeplyAndWantsGradients) {
  const std::vector<Device> devices = make_devices(2);
  const std::vector<Tensor> params{Tensor::from_host<float>({1, 2, 3}, {3}, devices[0]),
                                   Tensor::from_host<float>({4}, {1}, devices[0])};
  for (const Device& device : devices) {  // the same device too
    const std::vector<Tensor> replica = get_params(params, device);
    ASSERT_EQ(replica.size(), 2u);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(replica[i].device(), device);
      EXPECT_TRUE(replica[i].requires_grad());
      EXPECT_FALSE(replica[i].grad().defined());
      EXPECT_NE(replica[i].data<float>(), params[i].data<float>());
      EXPECT_EQ(replica[i].to_host<float>(), params[i].to_host<float>());
    }
    replica[1].copy_from(Tensor::from_host<float>({9}, {1}, device));
    EXPECT_EQ(params[1].to_host<float>(), Floats{4}) << "the original moved with its copy";
  }
}

TEST(GetParams, MakesLeavesOfParametersWithAHistory) {
  const Device device = make_devices(1)[0];
  Tensor leaf = Tensor::from_host<float>({1, 2}, {2}, device);
  leaf.set_requires_grad(true);
  const Tensor replica = get_params({leaf.reshape({1, 2})}, device)[0];
  backward(replica, Tensor::from_host<float>({5, 6}, {1, 2}, device));
  EXPECT_EQ(replica.grad().to_host<float>(), (Floats{5, 6}));
  EXPECT_FALSE(leaf.grad().defined());
}

TEST(SplitSizes, DifferByOneAtMostAndTheLargerComeFirst) {
  using Sizes = std::vector<int64_t>;
  EXPECT_EQ(split_sizes(9, 4), (Sizes{3, 2, 2, 2}));
  EXPECT_EQ(split_sizes(36, 7), (Sizes{6, 5, 5, 5, 5, 5, 5}));
  EXPECT_EQ(split_sizes(2, 4), (Sizes{1, 1, 0, 0}));
  EXPECT_EQ(split_sizes(0, 2), (Sizes{0, 0}));
  EXPECT_THROW(split_sizes(4, 0), Error);
  for (int64_t rows = 0; rows < 70; ++rows)
    for (int parts = 1; parts < 20; ++parts) {
      const Sizes sizes = split_sizes(rows, parts);
      EXPECT_EQ(std::accumulate(sizes.begin(), sizes.end(), int64_t{0}), rows);
      EXPECT_TRUE(std::is_sorted(sizes.rbegin(), sizes.rend()));
      EXPECT_LE(sizes.front() - sizes.back(), 1);
    }
}

TEST(SplitBatch, GivesTheChaptersWorkedExample) {
  Floats arange(20);
  std::iota(arange.begin(), arange.end(), 0.0f);
  const std::vector<Device> devices = make_devices(2);
  const Tensor x = Tensor::from_host(arange, {4, 5}, devices[0]);
  const Tensor y = Tensor::from_host<int32_t>({7, 8, 9, 6}, {4}, devices[1]);
  const Shards shards = split_batch(x, y, devices);
  EXPECT_EQ(shards.x[0].to_host<float>(), Floats(arange.begin(), arange.begin() + 10));
  EXPECT_EQ(shards.x[1].to_host<float>(), Floats(arange.begin() + 10, arange.end()));
  EXPECT_EQ(shards.x[1].shape(), (Shape{2, 5}));
  EXPECT_EQ(shards.y[0].to_host<int32_t>(), (std::vector<int32_t>{7, 8}));
  EXPECT_EQ(shards.y[1].to_host<int32_t>(), (std::vector<int32_t>{9, 6}));
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(shards.x[i].device(), devices[i]);
    EXPECT_EQ(shards.y[i].device(), devices[i]);
  }
}

TEST(SplitBatch, LeavesEmptyShardsWhereThereAreFewerRowsThanDevices) {
  const std::vector<Device> devices = make_devices(4);
  const Shards shards =
      split_batch(Tensor::zeros({2, 3}, devices[0]), Tensor::zeros({2}, devices[0], DType::int32), devices);
  ASSERT_EQ(shards.x.size(), 4u);
  EXPECT_EQ(shards.x[1].shape(), (Shape{1, 3}));
  EXPECT_EQ(shards.x[3].shape(), (Shape{0, 3}));
  EXPECT_EQ(shards.y[3].shape(), (Shape{0}));
}

template <typename F>
std::string refusal(F f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(SplitBatch, NamesBothNumbersOfRows) {
  const std::vector<Device> devices = make_devices(2);
  const Tensor x = Tensor::zeros({256, 2}, devices[0]), y = Tensor::zeros({255}, devices[0]);
  EXPECT_EQ(refusal([&] { split_batch(x, y, devices); }), "split_batch: x has 256 rows but y has 255");
}

// --- train_batch

constexpr int kFeatures = 3;

// y_hat[r] = sum_j x[r, j] w[j] + b
Tensor linear_model(const Tensor& x, const std::vector<Tensor>& params) {
  const Device device = x.device();
  const DeviceGuard guard(device);
  const int64_t rows = x.dim(0);
  const Tensor y_hat = Tensor::empty({rows}, device);
  {
    const float *from = x.data<float>(), *w = params[0].data<float>(), *b = params[1].data<float>();
    float* to = y_hat.data<float>();
    kernels::launch_elements(device.stream(), rows, [=] __device__(int64_t r) {
      float sum = b[0];
      for (int j = 0; j < kFeatures; ++j) sum += from[r * kFeatures + j] * w[j];
      to[r] = sum;
    });
  }
  return record("linear_model", y_hat, {x, params[0], params[1]}, [x, rows, device](const Tensor& gradient) {
    const Tensor dw = Tensor::empty({kFeatures}, device), db = Tensor::empty({1}, device);
    const float *from = x.data<float>(), *dy = gradient.data<float>();
    float *dw_out = dw.data<float>(), *db_out = db.data<float>();
    kernels::launch_elements(device.stream(), kFeatures + 1, [=] __device__(int64_t j) {
      float sum = 0;
      for (int64_t r = 0; r < rows; ++r) sum += dy[r] * (j < kFeatures ? from[r * kFeatures + j] : 1.0f);
      (j < kFeatures ? dw_out[j] : *db_out) = sum;
    });
    return std::vector<Tensor>{Tensor(), dw, db};
  });
}

// sum over r of (y_hat[r] - y[r])^2 / 2
Tensor squared_loss(const Tensor& y_hat, const Tensor& y) {
  const Device device = y.device();
  const DeviceGuard guard(device);
  const int64_t rows = y.dim(0);
  const Tensor loss = Tensor::empty({1}, device), error = Tensor::empty({rows}, device);
  const float *from = y_hat.data<float>(), *want = y.data<float>();
  float *sum = loss.data<float>(), *errors = error.data<float>();
  kernels::launch_elements(device.stream(), 1, [=] __device__(int64_t) {
    *sum = 0;
    for (int64_t r = 0; r < rows; ++r) {
      errors[r] = from[r] - want[r];
      *sum += errors[r] * errors[r] / 2;
    }
  });
  return record("squared_loss", loss, {y_hat}, [error](const Tensor&) { return std::vector<Tensor>{error}; });
}

struct Batch {
  Floats x, y;
};

Batch small_batch(int rows) {
  Batch batch;
  for (int r = 0; r < rows; ++r) {
    for (int j = 0; j < kFeatures; ++j) batch.x.push_back(static_cast<float>((r * 5 + j * 3) % 9 - 4));
    batch.y.push_back(static_cast<float>(r * 7 % 11 - 5));
  }
  return batch;
}

struct Trained {
  std::vector<std::vector<Floats>> weights;  // by replica, then parameter
  float loss = 0;                            // of the last step, summed over all shards
};

Trained train(int k, int rows, float lr, int steps, collective::Algorithm algorithm) {
  const std::vector<Device> devices = make_devices(k);
  const std::vector<Tensor> params{Tensor::from_host<float>({1, -2, 3}, {kFeatures}, devices[0]),
                                   Tensor::from_host<float>({-1}, {1}, devices[0])};
  std::vector<std::vector<Tensor>> device_params;
  for (const Device& device : devices) device_params.push_back(get_params(params, device));
  const Batch batch = small_batch(rows);
  const Tensor x = Tensor::from_host(batch.x, {rows, kFeatures}, devices[0]);
  const Tensor y = Tensor::from_host(batch.y, {rows}, devices[0]);
  Trained result;
  for (int step = 0; step < steps; ++step) {
    const std::vector<Tensor> losses =
        train_batch(x, y, device_params, devices, lr, linear_model, squared_loss, algorithm);
    result.loss = 0;
    for (const Tensor& loss : losses)
      if (loss.defined()) result.loss += loss.item();
  }
  EXPECT_EQ(first_difference(device_params, {"w", "b"}), std::nullopt) << k << " replicas";
  for (const auto& replica : device_params) {
    result.weights.emplace_back();
    for (const Tensor& param : replica) {
      EXPECT_FALSE(param.grad().defined()) << "a gradient is left for the next step";
      result.weights.back().push_back(param.to_host<float>());
    }
  }
  return result;
}

TEST(TrainBatch, TakesOneStepOfGradientDescentOnTheMeanLoss) {
  const int rows = 9;
  const Batch batch = small_batch(rows);
  const std::vector<double> before{1, -2, 3, -1};
  std::vector<double> gradient(kFeatures + 1);
  double loss = 0;
  for (int r = 0; r < rows; ++r) {
    double error = before[kFeatures] - batch.y[r];
    for (int j = 0; j < kFeatures; ++j) error += before[j] * batch.x[r * kFeatures + j];
    for (int j = 0; j < kFeatures; ++j) gradient[j] += error * batch.x[r * kFeatures + j];
    gradient[kFeatures] += error;
    loss += error * error / 2;
  }
  for (int k = 1; k <= 4; ++k) {
    const Trained trained = train(k, rows, 0.125f, 1, collective::ring);
    EXPECT_EQ(trained.loss, loss) << k << " devices";
    for (const auto& replica : trained.weights)
      for (int j = 0; j <= kFeatures; ++j) {
        const double want = before[j] - 0.125 * gradient[j] / rows;
        const double got = j < kFeatures ? replica[0][j] : replica[1][0];
        // Three roundings of float32 (1/9, the product, the difference), of values below 64.
        EXPECT_NEAR(got, want, 3 * 64 * 6e-8) << "weight " << j << ", " << k << " devices";
      }
  }
}

// The sums are exact, and what follows them is one computation, so the bits cannot depend on k.
TEST(TrainBatch, GivesTheSameBitsForEveryNumberOfDevicesWhereSumsAreExact) {
  for (const int rows : {1, 2, 9, 31}) {
    const Trained one = train(1, rows, 0.125f, 1, collective::ring);
    for (const int k : {2, 3, 4, 7, 9})
      for (const auto& [name, algorithm, in_chunks] : collective::algorithms()) {
        const Trained many = train(k, rows, 0.125f, 1, algorithm);
        EXPECT_EQ(many.loss, one.loss) << rows << " rows on " << k;
        for (const auto& replica : many.weights)
          EXPECT_EQ(replica, one.weights[0]) << rows << " rows on " << k;
      }
  }
}

TEST(TrainBatch, KeepsReplicasInLockstepForManySteps) {
  const Trained first = train(5, 13, 0.01f, 30, collective::ring),
                second = train(5, 13, 0.01f, 30, collective::ring);
  EXPECT_EQ(first.weights, second.weights) << "two runs differ";
  EXPECT_LT(second.loss, train(5, 13, 0.01f, 1, collective::ring).loss / 2) << "it does not learn";
}

TEST(TrainBatch, RefusesReplicasThatDoNotMatchTheDevices) {
  const std::vector<Device> devices = make_devices(2);
  const std::vector<Tensor> params{Tensor::zeros({kFeatures}, devices[0]), Tensor::zeros({1}, devices[0])};
  const Tensor x = Tensor::zeros({4, kFeatures}, devices[0]), y = Tensor::zeros({4}, devices[0]);
  const auto on = [&](int index) { return get_params(params, devices[index]); };
  const auto attempt = [&](const std::vector<std::vector<Tensor>>& replicas, const Tensor& rows) {
    return refusal([&] {
      train_batch(rows, y.slice(0, rows.dim(0)), replicas, devices, 0.1f, linear_model, squared_loss);
    });
  };
  EXPECT_EQ(attempt({on(0)}, x), "train_batch: 1 replicas for 2 devices");
  EXPECT_EQ(attempt({on(0), on(0)}, x),
            "train_batch: parameter 0 of replica 1 is on device 0, not on device 1");
  EXPECT_EQ(attempt({on(0), {on(1)[0]}}, x), "train_batch: replica 1 has 1 parameters but replica 0 has 2");
  EXPECT_EQ(attempt({on(0), on(1)}, x.slice(0, 0)), "train_batch: the batch has no rows");
}

TEST(FirstDifference, NamesTheParameterTheIndexAndBothBits) {
  const std::vector<Device> devices = make_devices(3);
  const std::vector<Tensor> params{Tensor::from_host<float>({1, 2}, {2}, devices[0]),
                                   Tensor::from_host<float>({0, 1, 5}, {3}, devices[0])};
  std::vector<std::vector<Tensor>> device_params;
  for (const Device& device : devices) device_params.push_back(get_params(params, device));
  EXPECT_EQ(first_difference(device_params, {"conv.weight", "conv.bias"}), std::nullopt);
  device_params[2][1].copy_from(Tensor::from_host<float>({0, 1.0000001f, 5}, {3}, devices[2]));
  EXPECT_EQ(first_difference(device_params, {"conv.weight", "conv.bias"}),
            "conv.bias[1]: replica 0 has 0x3f800000 (1), replica 2 has 0x3f800001 (1.0000001)");
  device_params[1][1].copy_from(Tensor::from_host<float>({-0.0f, 1, 5}, {3}, devices[1]));
  EXPECT_EQ(first_difference(device_params, {"conv.weight", "conv.bias"}),
            "conv.bias[0]: replica 0 has 0x00000000 (0), replica 1 has 0x80000000 (-0)");
}

}  // namespace
}  // namespace lockstep::parallel

// The executor: sums over every number of ranks, counts and alignments, compared bit for bit; the order of
// the sums; its place in the order of the streams; what it allocates; what it refuses. Run again with other
// numbers of physical devices, with peer access off or broken, and in checked mode (tests/CMakeLists.txt).
#include "parallel/collective/allreduce.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <random>
#include <set>
#include <thread>

#include "core/handle.h"
#include "core/pool.h"
#include "core/stream.h"
#include "kernels/check.h"
#include "kernels/elementwise.h"
#include "kernels/float_types.h"
#include "parallel/collective/serial.h"
#include "tests/parallel/buffers.h"

namespace lockstep::collective {
namespace {

// Kernels as fibers (hostcuda's checked mode) are slow: fewer ranks there.
const std::vector<int> kRanks = std::getenv("HOSTCUDA_CHECK") != nullptr
                                    ? std::vector<int>{1, 2, 3}
                                    : std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17};

class AllreduceTest : public testing::TestWithParam<std::string> {
 protected:
  const Algorithm algorithm_ = algorithm_named(GetParam());
};

INSTANTIATE_TEST_SUITE_P(Algorithms, AllreduceTest, testing::ValuesIn(algorithm_names()),
                         [](const auto& test) { return test.param; });

TEST_P(AllreduceTest, WritesTheSumIntoEveryBuffer) {
  for (const int n : kRanks) {
    const std::vector<Device> devices = make_devices(n);
    for (const int64_t count : std::set<int64_t>{0, 1, n - 1, n, n + 1, 32 * n - 1, 32 * n, 32 * n + 1}) {
      for (const int64_t offset : {0, 1, 3}) {
        const Values values = small_integers(n, count);
        const Buffers buffers(devices, values, offset);
        allreduce(buffers.data(), algorithm_);
        EXPECT_TRUE(buffers.all_hold(sum_of(values)))
            << n << " ranks, " << count << " elements, " << offset << " floats off alignment";
      }
    }
  }
}

TEST_P(AllreduceTest, SumsAMillionElements) {
  for (const int n : {2, 3, 8}) {
    const Values values = small_integers(n, 1000003);
    const Buffers buffers(make_devices(n), values);
    allreduce(buffers.data(), algorithm_);
    EXPECT_TRUE(buffers.all_hold(sum_of(values))) << n << " ranks";
  }
}

TEST_P(AllreduceTest, GivesTheChaptersWorkedExample) {
  const std::vector<Device> devices = make_devices(2);
  const std::vector<Tensor> data{Tensor::from_host<float>({1, 1}, {1, 2}, devices[0]),
                                 Tensor::from_host<float>({2, 2}, {1, 2}, devices[1])};
  allreduce(data, algorithm_);
  EXPECT_EQ(data[0].to_host<float>(), (std::vector<float>{3, 3}));
  EXPECT_EQ(data[1].to_host<float>(), (std::vector<float>{3, 3}));
}

// --- the order of the sums

Values random_floats(int ranks, int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 1);
  Values values(static_cast<size_t>(ranks), std::vector<float>(static_cast<size_t>(count)));
  for (auto& buffer : values)
    for (float& value : buffer) value = normal(random) * std::exp2(normal(random) * 4);
  return values;
}

TEST_P(AllreduceTest, SumsInOneOrderBitForBit) {
  const unsigned seed = 7;
  SCOPED_TRACE(fmt::format("seed {}", seed));
  for (const int n : kRanks) {
    for (const int64_t count : {5, 1000, 20011}) {
      const Values values = random_floats(n, count, seed);
      const std::vector<float> want = carried_out(algorithm_(n, count), values).front();
      for (int run = 0; run < 2; ++run) {
        const Buffers buffers(make_devices(n), values);
        allreduce(buffers.data(), algorithm_);
        EXPECT_TRUE(buffers.all_hold(want)) << n << " ranks, " << count << " elements, run " << run;
      }
    }
  }
}

// --- other types, other reductions

// Element i of rank r: small integers, whose sums are exact in every type.
int small_value(int rank, int64_t i) {
  return static_cast<int>((i * 5 + rank * 3) % 9) - 4;
}

template <typename T>
std::vector<T> converted(const std::vector<float>& values) {
  std::vector<T> result;
  for (const float value : values) {
    if constexpr (std::is_same_v<T, int32_t>)
      result.push_back(static_cast<int32_t>(value));
    else
      result.push_back(kernels::from_float<T>(value));
  }
  return result;
}

float reduced(Reduction reduction, int ranks, int64_t i) {
  int sum = 0, most = -100, least = 100;
  for (int rank = 0; rank < ranks; ++rank) {
    sum += small_value(rank, i);
    most = std::max(most, small_value(rank, i));
    least = std::min(least, small_value(rank, i));
  }
  if (reduction == Reduction::max) return static_cast<float>(most);
  if (reduction == Reduction::min) return static_cast<float>(least);
  return static_cast<float>(sum) * (reduction == Reduction::mean ? 1.0f / static_cast<float>(ranks) : 1.0f);
}

TEST_P(AllreduceTest, ReducesEveryTypeInEveryWay) {
  const int64_t count = 103;
  for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16, DType::int32})
    for (const Reduction reduction : {Reduction::sum, Reduction::mean, Reduction::max, Reduction::min})
      for (const int n : {1, 2, 3, 8}) {
        const std::vector<Device> devices = make_devices(n);
        for_summed_type(dtype, [&]<typename T>(T) {
          std::vector<Tensor> data;
          for (int rank = 0; rank < n; ++rank) {
            std::vector<float> values;
            for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(small_value(rank, i)));
            data.push_back(Tensor::from_host(converted<T>(values), {count}, devices[rank]));
          }
          if (reduction == Reduction::mean && dtype == DType::int32) {
            EXPECT_THROW(allreduce(data, algorithm_, reduction), Error);
            return;
          }
          allreduce(data, algorithm_, reduction);
          std::vector<float> values;
          for (int64_t i = 0; i < count; ++i) values.push_back(reduced(reduction, n, i));
          const std::vector<T> want = converted<T>(values);
          for (const Tensor& tensor : data)
            EXPECT_EQ(std::memcmp(tensor.to_host<T>().data(), want.data(), want.size() * sizeof(T)), 0)
                << name_of(dtype) << ", " << n << " ranks, reduction " << static_cast<int>(reduction);
        });
      }
}

// --- its place in the order of the streams

TEST_P(AllreduceTest, RepeatsWithoutTheHostWaiting) {
  for (const int n : {2, 3, 4, 8, 17}) {
    const std::vector<Device> devices = make_devices(n);
    const Values values = small_integers(n, 5000);
    const Buffers buffers(devices, values);
    Allreduce reduce(devices, algorithm_);
    const int repeats = 5;  // 8 * 17^5 is below 2^24: still exact
    for (int i = 0; i < repeats; ++i) reduce(buffers.data());
    std::vector<float> want = sum_of(values);
    for (float& value : want)
      for (int i = 1; i < repeats; ++i) value *= static_cast<float>(n);
    EXPECT_TRUE(buffers.all_hold(want)) << n << " ranks";
  }
}

TEST_P(AllreduceTest, ComesAfterWhatTheCallerEnqueuedAndBeforeWhatFollows) {
  const int64_t count = 100000;
  for (const int n : {2, 3, 5, 8}) {
    const std::vector<Device> devices = make_devices(n);
    const Buffers buffers(devices, small_integers(n, count));
    float want = 0;
    for (int step = 0; step < 4; ++step) {
      float sum = 0;
      for (int rank = 0; rank < n; ++rank) {
        const DeviceGuard guard(devices[rank]);
        float* data = buffers.data()[rank].data<float>();
        const float value = static_cast<float>(rank + step);
        // Unequal work before, so that ranks arrive at different times.
        for (int i = 0; i <= rank % 3; ++i) kernels::fill(data, value, count, devices[rank].stream());
        sum += value;
      }
      allreduce(buffers.data(), algorithm_);
      for (int rank = 0; rank < n; ++rank) {
        const DeviceGuard guard(devices[rank]);
        float* data = buffers.data()[rank].data<float>();
        kernels::add(data, data, data, count, devices[rank].stream());
      }
      want = 2 * sum;
    }
    EXPECT_TRUE(buffers.all_hold(std::vector<float>(count, want))) << n << " ranks";
  }
}

TEST_P(AllreduceTest, BuffersOfManySizesShareOneCommunicator) {
  const int n = 4;
  const std::vector<Device> devices = make_devices(n);
  Allreduce reduce(devices, algorithm_);
  const std::vector<int64_t> counts{10, 3000, 1, 0, 150, 70000, 3000, 10};
  std::vector<Buffers> buffers;
  for (const int64_t count : counts) buffers.emplace_back(devices, small_integers(n, count));
  for (const Buffers& each : buffers) reduce(each.data());
  for (size_t i = 0; i < counts.size(); ++i)
    EXPECT_TRUE(buffers[i].all_hold(sum_of(small_integers(n, counts[i])))) << counts[i] << " elements";
}

TEST_P(AllreduceTest, TwoCommunicatorsInterleaveOnTheSameDevices) {
  for (const int n : {2, 4, 7}) {
    const std::vector<Device> devices = make_devices(n);
    std::vector<Device> turned(devices.rbegin(), devices.rend());  // rank 0 is another device
    Allreduce one(devices, algorithm_), other(turned, ring);
    const Values values = small_integers(n, 4001), others = small_integers(n, 777, 1);
    const Buffers a(devices, values), b(turned, others);
    for (int i = 0; i < 4; ++i) {
      one(a.data());
      other(b.data());
    }
    const auto times = [](std::vector<float> sum, int n_cubed) {
      for (float& value : sum) value *= static_cast<float>(n_cubed);
      return sum;
    };
    EXPECT_TRUE(a.all_hold(times(sum_of(values), n * n * n))) << n << " ranks";
    EXPECT_TRUE(b.all_hold(times(sum_of(others), n * n * n))) << n << " ranks";
  }
}

TEST_P(AllreduceTest, TwoHostThreadsMayCallAtOnce) {
  const int n = 4;
  const std::vector<Device> devices = make_devices(n);
  std::vector<Buffers> buffers;
  for (int i = 0; i < 2; ++i) buffers.emplace_back(devices, small_integers(n, 3001, i));
  for (const bool shared : {false, true}) {  // communicators of their own, or the one behind the function
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i)
      threads.emplace_back([&, i] {
        Allreduce own(devices, algorithm_);
        for (int repeat = 0; repeat < 2; ++repeat)
          shared ? allreduce(buffers[i].data(), algorithm_) : own(buffers[i].data());
      });
    for (std::thread& thread : threads) thread.join();
  }
  for (int i = 0; i < 2; ++i) {
    std::vector<float> want = sum_of(small_integers(n, 3001, i));
    for (float& value : want) value *= n * n * n;
    EXPECT_TRUE(buffers[i].all_hold(want)) << "thread " << i;
  }
}

TEST_P(AllreduceTest, CanBeCapturedAndReplayed) {
  for (const int n : {2, 3, 4}) {
    const std::vector<Device> devices = make_devices(n);
    const Values values = small_integers(n, 1001);
    const Buffers buffers(devices, values);
    Allreduce reduce(devices, algorithm_);
    reduce(buffers.data());  // prepares, and is the first of the sums below

    const cudaStream_t first = devices[0].stream();
    std::vector<Event> events;
    for (const Device& device : devices) {
      const DeviceGuard guard(device);
      events.emplace_back();
    }
    LOCKSTEP_CUDA(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal));
    events[0].record(first);
    for (int i = 1; i < n; ++i) devices[i].wait(events[0]);
    reduce(buffers.data());
    for (int i = 1; i < n; ++i) {
      events[i].record(devices[i].stream());
      devices[0].wait(events[i]);
    }
    cudaGraph_t graph = nullptr;
    LOCKSTEP_CUDA(cudaStreamEndCapture(first, &graph));
    const Handle<cudaGraph_t, cudaGraphDestroy> owned_graph(graph);
    cudaGraphExec_t exec = nullptr;
    LOCKSTEP_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    const Handle<cudaGraphExec_t, cudaGraphExecDestroy> owned_exec(exec);
    EXPECT_TRUE(buffers.all_hold(sum_of(values))) << "capturing ran something";

    for (const Device& device : devices) device.synchronize();
    for (int i = 0; i < 2; ++i) LOCKSTEP_CUDA(cudaGraphLaunch(exec, first));
    devices[0].synchronize();
    reduce(buffers.data());  // outside of a graph again
    std::vector<float> want = sum_of(values);
    for (float& value : want) value *= static_cast<float>(n * n * n);
    EXPECT_TRUE(buffers.all_hold(want)) << n << " ranks";
  }
}

TEST_P(AllreduceTest, AllocatesNothingAfterTheFirstCall) {
  const int n = 4;
  const std::vector<Device> devices = make_devices(n);
  const Buffers buffers(devices, small_integers(n, 10007));
  Allreduce reduce(devices, algorithm_);
  reduce(buffers.data());
  std::vector<PoolStatistics> before;
  for (const Device& device : devices) before.push_back(device.pool().statistics());
  for (int i = 0; i < 10; ++i) reduce(buffers.data());
  for (int i = 0; i < n; ++i) {
    const PoolStatistics now = devices[i].pool().statistics();
    EXPECT_EQ(now.in_use, before[i].in_use) << "device " << i;
    EXPECT_EQ(now.reserved, before[i].reserved) << "device " << i;
  }
}

// --- what it refuses

std::string refusal(const std::vector<Tensor>& data, Algorithm algorithm = ring) {
  try {
    allreduce(data, algorithm);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_P(AllreduceTest, RoundsEverySumToBfloat16) {
  for (const int k : {2, 3, 8}) {
    const std::vector<Device> devices = make_devices(k);
    for (const int64_t count : {1, 7, 1000}) {
      std::vector<Tensor> data;
      std::vector<float> sum(static_cast<size_t>(count));
      for (int rank = 0; rank < k; ++rank) {
        std::vector<float> values(static_cast<size_t>(count));
        for (int64_t i = 0; i < count; ++i) {
          // Small integers, whose sums are exact; and in every fifth element one 256 and ones.
          values[i] = i % 5 == 4 ? (rank == k - 1 ? 256.0F : 1.0F) : static_cast<float>((i + 3 * rank) % 9);
          sum[i] += values[i];
        }
        const Tensor wide = Tensor::from_host(values, {count}, devices[rank]);
        const DeviceGuard guard(devices[rank]);
        data.push_back(Tensor::empty({count}, devices[rank], DType::bfloat16));
        kernels::cast(wide.data<float>(), data.back().data<__nv_bfloat16>(), count, devices[rank].stream());
      }
      Allreduce reduce(devices, algorithm_named(GetParam()));
      reduce(data);
      std::vector<std::vector<float>> results;
      for (int rank = 0; rank < k; ++rank) {
        const Tensor wide = Tensor::empty({count}, devices[rank]);
        const DeviceGuard guard(devices[rank]);
        kernels::cast(data[rank].data<__nv_bfloat16>(), wide.data<float>(), count, devices[rank].stream());
        results.push_back(wide.to_host<float>());
      }
      for (int rank = 0; rank < k; ++rank) {
        EXPECT_EQ(results[rank], results[0]) << "rank " << rank << " of " << k;
        for (int64_t i = 0; i < count; ++i) {
          // 256 + 1 lies halfway between two bfloat16 and becomes 256; 256 + 2 is one.
          const bool rounds = i % 5 == 4;
          const float want = rounds && k == 2 ? 256.0F : sum[i];
          EXPECT_NEAR(results[rank][i], want, rounds && k > 2 ? k - 1 : 0)
              << "element " << i << " of rank " << rank << " of " << k;
        }
      }
    }
  }
}

TEST(Allreduce, RefusesBuffersThatDoNotFitTogetherAndLeavesThemAlone) {
  const std::vector<Device> devices = make_devices(3);
  const Tensor a = Tensor::from_host<float>({1, 2, 3, 4}, {2, 2}, devices[0]);
  const Tensor b = Tensor::from_host<float>({1, 2, 3, 4}, {2, 2}, devices[1]);
  const Tensor c = Tensor::from_host<float>({1, 2, 3, 4}, {4}, devices[2]);
  EXPECT_EQ(refusal({a, b, c}), "allreduce: data[2] has shape [4] but data[0] has [2, 2]");
  EXPECT_EQ(refusal({a, Tensor::zeros({2, 2}, devices[1], DType::int32)}),
            "allreduce: data[1] is int32 but data[0] is float32");
  EXPECT_EQ(
      refusal({Tensor::zeros({2}, devices[0], DType::uint8), Tensor::zeros({2}, devices[1], DType::uint8)}),
      "allreduce: data[0] is uint8: only float32, bfloat16, float16 and int32 are summed");
  EXPECT_EQ(refusal({a, Tensor()}), "allreduce: data[1] is undefined");
  EXPECT_EQ(refusal({a, b, Tensor::zeros({2, 2}, devices[1])}),
            "allreduce: ranks 1 and 2 are both on device 1: each needs one of its own");
  EXPECT_EQ(refusal({}), "allreduce: there is no buffer");
  for (const Tensor& tensor : {a, b, c}) EXPECT_EQ(tensor.to_host<float>(), (std::vector<float>{1, 2, 3, 4}));

  Allreduce reduce(devices);
  EXPECT_THROW(reduce({a, b}), Error);
  EXPECT_THROW(reduce({b, a, c}), Error);
}

TEST(Allreduce, RefusesAPlanThatDoesNotSumUp) {
  const std::vector<Device> devices = make_devices(2);
  const std::vector<Tensor> data{Tensor::from_host<float>({1}, {1}, devices[0]),
                                 Tensor::from_host<float>({2}, {1}, devices[1])};
  const Algorithm forgets_the_broadcast = [](int ranks, int64_t count) {
    return Plan{ranks, count, {{0, 1, 0, {0, count}, Action::add}}};
  };
  EXPECT_EQ(refusal(data, forgets_the_broadcast),
            "plan: rank 1 ends without the contribution of rank 0 to elements [0, 1)");
  const Algorithm of_another_size = [](int ranks, int64_t count) { return ring(ranks, count + 1); };
  EXPECT_EQ(refusal(data, of_another_size),
            "allreduce: asked for a plan of 2 ranks and 1 elements, got one of 2 and 2");
  EXPECT_EQ(refusal(data, reduce_scatter), "allreduce: the plan is one for reduce_scatter");
  EXPECT_EQ(data[0].to_host<float>(), std::vector<float>{1});
  EXPECT_EQ(data[1].to_host<float>(), std::vector<float>{2});
}

// A plan from outside: every rank's slice is summed by its owner, in rank order, and copied to all. It uses
// one link twice in a round and receives several copies in one, which none of the built-in plans does.
TEST(Allreduce, RunsAPlanMadeElsewhere) {
  const Algorithm sharded_star = [](int n, int64_t count) {
    Plan plan{n, count, {}};
    const auto piece = [&](int owner, int half) {
      const auto cut = [&](int64_t i) { return count * i / (2 * n); };
      return Slice{cut(2 * owner + half), cut(2 * owner + half + 1)};
    };
    const auto send = [&](int round, int from, int to, int owner, Action action) {
      for (const int half : {0, 1})
        if (piece(owner, half).size() > 0)
          plan.transfers.push_back({round, from, to, piece(owner, half), action});
    };
    for (int shift = 1; shift < n; ++shift)
      for (int owner = 0; owner < n; ++owner) send(shift - 1, (owner + shift) % n, owner, owner, Action::add);
    for (int owner = 0; owner < n; ++owner)
      for (int to = 0; to < n; ++to)
        if (to != owner) send(n - 1, owner, to, owner, Action::copy);
    return plan;
  };
  for (const int n : {2, 3, 4, 8})
    for (const int64_t count : {1, 2 * n - 1, 64 * n + 1, 20011}) {
      const Values values = small_integers(n, count);
      const Buffers buffers(make_devices(n), values);
      allreduce(buffers.data(), sharded_star);
      EXPECT_TRUE(buffers.all_hold(sum_of(values))) << n << " ranks, " << count << " elements";
    }
}

// Rank 2 is overwritten in round 1 with what it was still sending in round 0; nothing but rank 2 itself
// orders the two.
TEST(Allreduce, OverwritesNothingThatIsStillBeingSent) {
  const Algorithm overwrites = [](int n, int64_t count) {
    const Slice all{0, count};
    return Plan{n,
                count,
                {{0, 2, 1, all, Action::add},
                 {1, 0, 2, all, Action::copy},
                 {2, 0, 1, all, Action::add},
                 {3, 1, 0, all, Action::copy},
                 {3, 1, 2, all, Action::copy}}};
  };
  const Values values = small_integers(3, 300007);
  for (int repeat = 0; repeat < 10; ++repeat) {
    const Buffers buffers(make_devices(3), values);
    allreduce(buffers.data(), overwrites);
    ASSERT_TRUE(buffers.all_hold(sum_of(values))) << "repeat " << repeat;
  }
}

}  // namespace
}  // namespace lockstep::collective

// Host threads by physical device. Run again with other numbers of physical devices (tests/CMakeLists.txt).
#include "parallel/device_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <stdexcept>
#include <thread>

#include "core/autograd.h"

namespace lockstep::parallel {
namespace {

TEST(DeviceThreads, EachPhysicalDeviceHasOneAndReplicasThatShareItFollowEachOther) {
  const std::vector<Device> devices = make_devices(5);
  DeviceThreads threads(devices);
  for (int repeat = 0; repeat < 20; ++repeat) {
    std::vector<std::thread::id> ran_in(5);
    std::vector<int> position(5, -1);
    std::atomic<int> next{0};
    threads.run({true, true, false, true, true}, [&](size_t r) {
      int current = -1;
      ASSERT_EQ(cudaGetDevice(&current), cudaSuccess);
      EXPECT_EQ(current, devices[r].physical());
      ran_in[r] = std::this_thread::get_id();
      position[r] = next++;
    });
    EXPECT_EQ(next, 4);
    EXPECT_EQ(position[2], -1);
    EXPECT_EQ(ran_in[0], std::this_thread::get_id());
    for (const size_t a : {0, 1, 3, 4})
      for (const size_t b : {0, 1, 3, 4}) {
        EXPECT_EQ(ran_in[a] == ran_in[b], devices[a].physical() == devices[b].physical());
        if (a >= b || devices[a].physical() != devices[b].physical()) continue;
        EXPECT_LT(position[a], position[b]);
      }
  }
}

TEST(DeviceThreads, TheErrorOfTheFirstReplicaIsThrownWhenAllHaveEnded) {
  DeviceThreads threads(make_devices(4));
  std::atomic<int> ended{0};
  try {
    threads.run({true, true, true, true}, [&](size_t r) {
      ++ended;
      if (r > 0) throw std::runtime_error("replica " + std::to_string(r));
    });
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "replica 1");
  }
  EXPECT_GE(ended, 2);
  int again = 0;
  threads.run({true, false, false, false}, [&](size_t) { ++again; });
  EXPECT_EQ(again, 1);
}

TEST(DeviceThreads, WorkUnderTheCallersNoGrad) {
  DeviceThreads threads(make_devices(3));
  const auto without = [&] {
    std::atomic<int> count{0};
    threads.run({true, true, true}, [&](size_t) { count += NoGrad::in_force() ? 1 : 0; });
    return count.load();
  };
  EXPECT_EQ(without(), 0);
  const NoGrad no_grad;
  EXPECT_EQ(without(), 3);
}

}  // namespace
}  // namespace lockstep::parallel

// Copies between devices, and the route that they take. Run again with peer access off and broken
// (HOSTCUDA_PEER), where they have to go through host memory and still arrive.
#include "core/peer.h"

#include <gtest/gtest.h>

#include <malloc.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/check.h"

namespace lockstep {
namespace {

std::string hostcuda_peer() {
  const char* value = std::getenv("HOSTCUDA_PEER");
  return value == nullptr ? "" : value;
}

// The first of this file: afterwards the pair is known.
TEST(Peer, AccessThatIsEnabledAlreadyIsFineAndLeavesNoError) {
  const int physical = physical_device_count();
  if (physical < 2) GTEST_SKIP() << "needs two physical devices";
  int possible = 0;
  LOCKSTEP_CUDA(cudaDeviceCanAccessPeer(&possible, 0, 1));
  if (!possible) GTEST_SKIP() << "needs peer access";
  {
    const PhysicalDeviceGuard guard(0);
    ASSERT_EQ(cudaDeviceEnablePeerAccess(1, 0), cudaSuccess);  // somebody else was first
  }
  const std::vector<Device> devices = make_devices(2);
  EXPECT_EQ(peer_route(devices[0], devices[1]),
            hostcuda_peer() == "broken" ? PeerRoute::host : PeerRoute::direct);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST(Peer, TakesTheRouteThatTheMachineOffers) {
  const std::vector<Device> devices = make_devices(4);
  for (const Device& a : devices) {
    for (const Device& b : devices) {
      const PeerRoute route = peer_route(a, b);
      EXPECT_EQ(route, peer_route(b, a)) << a.index() << " and " << b.index();
      if (a.physical() == b.physical())
        EXPECT_EQ(route, PeerRoute::same_device) << a.index() << " and " << b.index();
      else if (hostcuda_peer() == "0" || hostcuda_peer() == "broken")
        EXPECT_EQ(route, PeerRoute::host) << a.index() << " and " << b.index();
      else
        EXPECT_NE(route, PeerRoute::same_device) << a.index() << " and " << b.index();
    }
  }
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess) << "probing left an error behind";
}

TEST(Peer, NotesSayWhyACopyIsNotDirect) {
  const std::vector<Device> devices = make_devices(2);
  const std::vector<std::string> notes = peer_notes(devices);
  if (devices[0].physical() == devices[1].physical()) {
    EXPECT_TRUE(notes.empty());
  } else if (hostcuda_peer() == "0") {
    ASSERT_EQ(notes.size(), 1u);
    EXPECT_EQ(notes[0], "physical devices 0 and 1: there is no peer access: copies go through host memory");
  } else if (hostcuda_peer() == "broken") {
    ASSERT_EQ(notes.size(), 1u);
    EXPECT_EQ(
        notes[0],
        "physical devices 0 and 1: peer access is offered, but a test pattern did not arrive from 0 to 1 (an "
        "IOMMU is the usual reason): copies go through host memory");
  } else {
    EXPECT_EQ(notes.empty(), peer_route(devices[0], devices[1]) == PeerRoute::direct);
  }
}

// Sizes around the halves of the staging memory (1 MiB), on streams of either end, in both directions, and
// two in a row without the host waiting.
TEST(Peer, EveryByteArrivesOnStreamsOfEitherEnd) {
  const std::vector<Device> devices = make_devices(2);
  for (const bool forward : {true, false}) {
    const Device &from = devices[forward ? 0 : 1], &to = devices[forward ? 1 : 0];
    for (const bool on_source : {true, false}) {
      const Device& runs = on_source ? from : to;
      for (const size_t count : {1u, 1000u, (1u << 18) - 1, 1u << 18, (1u << 18) + 1, 3 * (1u << 18) + 5}) {
        std::vector<float> values(count);
        for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i % 16000003) + 0.5f;
        const auto size = static_cast<int64_t>(count);
        const Tensor source = Tensor::from_host(values, {size}, from);
        const Tensor between = Tensor::zeros({size}, to), back = Tensor::zeros({size}, from);
        for (const Device& device : devices) device.synchronize();
        peer_copy(between.data<float>(), to, source.data<float>(), from, source.bytes(), runs.stream());
        peer_copy(back.data<float>(), from, between.data<float>(), to, source.bytes(), runs.stream());
        runs.synchronize();
        EXPECT_EQ(between.to_host<float>(), values)
            << count << " floats, forward " << forward << ", " << on_source;
        EXPECT_EQ(back.to_host<float>(), values)
            << count << " floats, forward " << forward << ", " << on_source;
      }
    }
  }
}

// Bytes of this process that are in memory.
int64_t resident_bytes() {
  malloc_trim(0);
  std::ifstream file("/proc/self/statm");
  int64_t pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(Peer, WhatACopyNeededOnTheHostIsFreedWithItsStream) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer keeps what was freed";
#endif
  const std::vector<Device> devices = make_devices(2);
  const Tensor source = Tensor::zeros({1 << 19}, devices[0]),
               destination = Tensor::zeros({1 << 19}, devices[1]);
  for (const Device& device : devices) device.synchronize();
  const auto copy_on_new_streams = [&] {
    std::vector<Stream> streams(50);
    for (const Stream& stream : streams)
      peer_copy(destination.data<float>(), devices[1], source.data<float>(), devices[0], source.bytes(),
                stream.get());
    for (const Stream& stream : streams) stream.synchronize();
  };
  copy_on_new_streams();
  const int64_t before = resident_bytes();
  for (int round = 0; round < 2; ++round) copy_on_new_streams();
  // Through the host, a stream has 2 MiB.
  EXPECT_LE(resident_bytes() - before, 50 << 20);
}

// Another stream may get the handle of one that is gone, on the other end of the same way.
TEST(Peer, ANewStreamsCopiesDoNotDependOnOneThatIsGone) {
  const std::vector<Device> devices = make_devices(2);
  for (int round = 0; round < 10; ++round) {
    const std::vector<float> values(3 << 18, static_cast<float>(round + 1));
    const auto size = static_cast<int64_t>(values.size());
    const Tensor source = Tensor::from_host(values, {size}, devices[0]);
    const Tensor destination = Tensor::zeros({size}, devices[1]);
    devices[1].synchronize();
    const DeviceGuard guard(devices[static_cast<size_t>(round % 2)]);
    const Stream stream;
    peer_copy(destination.data<float>(), devices[1], source.data<float>(), devices[0], source.bytes(),
              stream.get());
    stream.synchronize();
    EXPECT_EQ(destination.to_host<float>(), values) << "round " << round;
  }
}

TEST(Peer, TensorsCopyBetweenDevices) {
  const std::vector<Device> devices = make_devices(3);
  const std::vector<float> values{1, 2, 3, 4, 5};
  const Tensor a = Tensor::from_host(values, {5}, devices[0]);
  EXPECT_EQ(a.copy_to(devices[1]).copy_to(devices[2]).copy_to(devices[0]).to_host<float>(), values);
}

}  // namespace
}  // namespace lockstep

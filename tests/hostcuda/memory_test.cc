// Memory: every kind of copy, what is asynchronous and what is not, who owns an address, and misuse.
#include <cstdint>
#include <limits>

#include "tests/hostcuda/cuda_objects.h"

namespace {

constexpr size_t kCounts[] = {1, 3, 1000, 1 << 20};

}  // namespace

TEST(Memory, CopiesOfEveryKindArrive) {
  for (const size_t count : kCounts) {
    SCOPED_TRACE(count);
    const std::vector<int> values = counting(count, 5);
    DeviceInts a(count), b(count);
    PinnedInts pinned(count), pinned_back(count);
    std::vector<int> back(count), moved(count);
    ASSERT_CUDA(cudaMemcpy(a.get(), values.data(), a.bytes(), cudaMemcpyHostToDevice));
    ASSERT_CUDA(cudaMemcpy(b.get(), a.get(), a.bytes(), cudaMemcpyDeviceToDevice));
    ASSERT_CUDA(cudaMemcpy(pinned.get(), b.get(), a.bytes(), cudaMemcpyDeviceToHost));
    ASSERT_CUDA(cudaMemcpy(moved.data(), pinned.get(), a.bytes(), cudaMemcpyHostToHost));
    EXPECT_EQ(moved, values);
    ASSERT_CUDA(cudaMemset(a.get(), 0, a.bytes()));
    ASSERT_CUDA(cudaMemcpy(a.get(), moved.data(), a.bytes(), cudaMemcpyDefault));
    ASSERT_CUDA(cudaMemcpy(pinned_back.get(), a.get(), a.bytes(), cudaMemcpyDefault));
    ASSERT_CUDA(cudaMemcpy(back.data(), a.get(), a.bytes(), cudaMemcpyDefault));
    EXPECT_EQ(back, values);
    EXPECT_EQ(std::vector<int>(pinned_back.get(), pinned_back.get() + count), values);
  }
}

TEST(Memory, FillWritesEveryByteAndNoneBeside) {
  DeviceInts data(100);
  data.set(counting(100));
  ASSERT_CUDA(cudaMemset(data.get() + 10, 0x11, 20 * sizeof(int)));
  std::vector<int> wanted = counting(100);
  for (int i = 10; i < 30; ++i) wanted[static_cast<size_t>(i)] = 0x11111111;
  EXPECT_EQ(data.values(), wanted);
}

TEST(Memory, ACopyFromPageableMemoryTakesItsSnapshotAtOnce) {
  StreamHandle stream;
  DeviceInts data(1000);
  std::vector<int> values = counting(1000);
  // No gate: a driver may wait for the stream before it takes the snapshot.
  ASSERT_CUDA(cudaLaunchHostFunc(
      stream, [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(10)); }, nullptr));
  ASSERT_CUDA(cudaMemcpyAsync(data.get(), values.data(), data.bytes(), cudaMemcpyHostToDevice, stream));
  values.assign(1000, -1);
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(data.values(), counting(1000));
}

TEST(Memory, ACopyToPageableMemoryIsDoneWhenItReturns) {
  StreamHandle stream;
  DeviceInts data(1000);
  data.set(counting(1000));
  std::vector<int> back(1000);
  ASSERT_CUDA(cudaLaunchHostFunc(
      stream, [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(10)); }, nullptr));
  ASSERT_CUDA(cudaMemcpyAsync(back.data(), data.get(), data.bytes(), cudaMemcpyDeviceToHost, stream));
  EXPECT_EQ(back, counting(1000));
}

TEST(Memory, ACopyFromPinnedMemoryReadsItWhenTheStreamComesToIt) {
  Gate gate;
  StreamHandle stream;
  DeviceInts data(1000);
  PinnedInts pinned(1000);
  gate.hold(stream);
  ASSERT_CUDA(cudaMemcpyAsync(data.get(), pinned.get(), data.bytes(), cudaMemcpyHostToDevice, stream));
  for (int i = 0; i < 1000; ++i) pinned[static_cast<size_t>(i)] = i;
  gate.open();
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(data.values(), counting(1000));
}

TEST(Memory, AKindThatDoesNotFitTheAddressesIsInvalid) {
  DeviceInts a(10), b(10);
  std::vector<int> host(10);
  EXPECT_CUDA_ERROR(cudaMemcpy(host.data(), a.get(), 40, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_CUDA_ERROR(cudaMemcpy(a.get(), host.data(), 40, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_CUDA_ERROR(cudaMemcpy(a.get(), host.data(), 40, cudaMemcpyDeviceToDevice), cudaErrorInvalidValue);
  EXPECT_CUDA_ERROR(cudaMemcpy(a.get(), b.get(), 40, static_cast<cudaMemcpyKind>(7)),
                    cudaErrorInvalidMemcpyDirection);
}

TEST(Memory, ACopyPastTheEndOfAnAllocationIsInvalid) {
  DeviceInts a(10), b(1000);
  EXPECT_CUDA_ERROR(cudaMemcpy(a.get(), b.get(), size_t{1} << 40, cudaMemcpyDeviceToDevice),
                    cudaErrorInvalidValue);
  EXPECT_CUDA_ERROR(cudaMemset(a.get(), 0, size_t{1} << 40), cudaErrorInvalidValue);
}

TEST(Memory, NothingToCopyIsFine) {
  EXPECT_CUDA(cudaMemcpy(nullptr, nullptr, 0, cudaMemcpyDefault));
  EXPECT_CUDA(cudaMemset(nullptr, 0, 0));
  int* none = reinterpret_cast<int*>(8);
  EXPECT_CUDA(cudaMalloc(&none, 0));
  EXPECT_EQ(none, nullptr);
  EXPECT_CUDA(cudaFree(nullptr));
}

TEST(Memory, IsAlignedTo256Bytes) {
  for (const size_t count : {1u, 100u, 12345u}) {
    DeviceInts data(count);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data.get()) % 256, 0u);
  }
}

TEST(Memory, FreeingWhatIsNotAllocatedIsInvalid) {
  int on_stack = 0;
  EXPECT_CUDA_ERROR(cudaFree(&on_stack), cudaErrorInvalidValue);
  DeviceInts data(100);
  EXPECT_CUDA_ERROR(cudaFree(data.get() + 1), cudaErrorInvalidValue);
  int* twice = nullptr;
  ASSERT_CUDA(cudaMalloc(&twice, 64));
  ASSERT_CUDA(cudaFree(twice));
  EXPECT_CUDA_ERROR(cudaFree(twice), cudaErrorInvalidValue);
}

TEST(Memory, FreeWaitsForTheDevice) {
  StreamHandle stream;
  Diary diary;
  int* data = nullptr;
  ASSERT_CUDA(cudaMalloc(&data, 400));
  ASSERT_CUDA(cudaLaunchHostFunc(
      stream, [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(10)); }, nullptr));
  ASSERT_CUDA(cudaMemsetAsync(data, 1, 400, stream));
  diary.note(stream, 1);
  ASSERT_CUDA(cudaFree(data));
  EXPECT_EQ(diary.entries().size(), 1u);
}

TEST(Memory, AskingForTooMuchFailsOnceAndCanBeSurvived) {
  size_t free = 0, total = 0;
  ASSERT_CUDA(cudaMemGetInfo(&free, &total));
  EXPECT_LE(free, total);
  void* data = nullptr;
  EXPECT_EQ(cudaMalloc(&data, total * 2), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  ASSERT_CUDA(cudaMalloc(&data, 1024));
  ASSERT_CUDA(cudaFree(data));
}

TEST(Memory, StreamOrderedMemoryIsUsableInItsStream) {
  StreamHandle stream;
  int* data = nullptr;
  PinnedInts back(1000);
  ASSERT_CUDA(cudaMallocAsync(&data, back.bytes(), stream));
  ASSERT_CUDA(cudaMemsetAsync(data, 1, back.bytes(), stream));
  ASSERT_CUDA(cudaMemcpyAsync(back.get(), data, back.bytes(), cudaMemcpyDeviceToHost, stream));
  ASSERT_CUDA(cudaFreeAsync(data, stream));
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  for (size_t i = 0; i < 1000; ++i) ASSERT_EQ(back[i], 0x01010101);
}

TEST(Memory, AttributesTellWhoOwnsAnAddress) {
  DeviceInts device(10);
  PinnedInts pinned(10);
  int plain = 0;
  cudaPointerAttributes attributes;
  ASSERT_CUDA(cudaPointerGetAttributes(&attributes, device.get() + 3));
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  EXPECT_EQ(attributes.device, 0);
  ASSERT_CUDA(cudaPointerGetAttributes(&attributes, pinned.get()));
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  ASSERT_CUDA(cudaPointerGetAttributes(&attributes, &plain));
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
}

TEST(Peer, CopiesArriveWithAndWithoutAccess) {
  SKIP_BELOW_DEVICES(2);
  constexpr size_t kCount = 700001;  // more than one stage of a copy through the host
  const std::vector<int> values = counting(kCount, 3);
  DeviceInts source(kCount);
  source.set(values);
  ASSERT_CUDA(cudaSetDevice(1));
  DeviceInts destination(kCount);
  int possible = 0;
  ASSERT_CUDA(cudaDeviceCanAccessPeer(&possible, 1, 0));
  for (int access = 0; access <= possible; ++access) {
    SCOPED_TRACE(access);
    if (access == 1) {
      ASSERT_CUDA(cudaDeviceEnablePeerAccess(0, 0));
    }
    destination.set(std::vector<int>(kCount));
    ASSERT_CUDA(cudaMemcpyPeer(destination.get(), 1, source.get(), 0, source.bytes()));
    ASSERT_CUDA(cudaDeviceSynchronize());
    EXPECT_EQ(destination.values(), values);
    destination.set(std::vector<int>(kCount));
    StreamHandle stream;
    ASSERT_CUDA(cudaMemcpyPeerAsync(destination.get(), 1, source.get(), 0, source.bytes(), stream));
    ASSERT_CUDA(cudaStreamSynchronize(stream));
    EXPECT_EQ(destination.values(), values);
  }
  if (possible != 0) {
    ASSERT_CUDA(cudaDeviceDisablePeerAccess(0));
  }
  ASSERT_CUDA(cudaSetDevice(0));
}

TEST(Peer, AccessIsEnabledOnceAndDisabledOnce) {
  SKIP_BELOW_DEVICES(2);
  int possible = 0;
  ASSERT_CUDA(cudaDeviceCanAccessPeer(&possible, 0, 1));
  if (possible == 0) GTEST_SKIP() << "devices 0 and 1 cannot access each other";
  ASSERT_CUDA(cudaDeviceEnablePeerAccess(1, 0));
  EXPECT_CUDA_ERROR(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessAlreadyEnabled);
  ASSERT_CUDA(cudaDeviceDisablePeerAccess(1));
  EXPECT_CUDA_ERROR(cudaDeviceDisablePeerAccess(1), cudaErrorPeerAccessNotEnabled);
}

TEST(Peer, ADeviceIsNoPeerOfItself) {
  int possible = 1;
  ASSERT_CUDA(cudaDeviceCanAccessPeer(&possible, 0, 0));
  EXPECT_EQ(possible, 0);
  EXPECT_CUDA_ERROR(cudaDeviceEnablePeerAccess(0, 0), cudaErrorInvalidDevice);
}

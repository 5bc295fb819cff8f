// Streams: asynchrony for real, order within a stream, none between streams unless asked for, and the rules
// of the legacy default stream.
#include "tests/hostcuda/cuda_objects.h"

TEST(Stream, RunsWhatIsEnqueuedInOrder) {
  StreamHandle stream;
  Diary diary;
  for (int i = 0; i < 100; ++i) diary.note(stream, i);
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(diary.entries(), counting(100));
}

TEST(Stream, AHeldStreamDoesNotKeepAnotherFromItsWork) {
  Gate gate;
  StreamHandle held, other;
  DeviceInts data(1000);
  gate.hold(held);
  ASSERT_CUDA(cudaMemsetAsync(data.get(), 1, data.bytes(), other));
  ASSERT_CUDA(cudaStreamSynchronize(other));
  EXPECT_EQ(cudaStreamQuery(held), cudaErrorNotReady);
  (void)cudaGetLastError();
  gate.open();
  ASSERT_CUDA(cudaStreamSynchronize(held));
  EXPECT_CUDA(cudaStreamQuery(held));
}

TEST(Stream, EnqueuingDoesNotWaitForTheWork) {
  Gate gate;
  StreamHandle stream;
  DeviceInts data(1);
  Diary diary;
  gate.hold(stream);
  for (int i = 0; i < 500; ++i) ASSERT_CUDA(cudaMemsetAsync(data.get(), i, data.bytes(), stream));
  diary.note(stream, 1);
  EXPECT_TRUE(diary.entries().empty());
  gate.open();
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(diary.entries().size(), 1u);
}

TEST(Stream, ManyHeldStreamsLeaveRoomForOneMore) {
  Gate gate;
  std::vector<std::unique_ptr<StreamHandle>> held;
  for (int i = 0; i < 20; ++i) {
    held.push_back(std::make_unique<StreamHandle>());
    gate.hold(*held.back());
  }
  StreamHandle other;
  Diary diary;
  diary.note(other, 7);
  ASSERT_CUDA(cudaStreamSynchronize(other));
  EXPECT_EQ(diary.entries(), std::vector<int>{7});
  gate.open();
  ASSERT_CUDA(cudaDeviceSynchronize());
}

TEST(Stream, TwoStreamsMayWaitForEachOtherInTurn) {
  StreamHandle a, b;
  EventHandle a_done, b_done;
  Diary diary;
  for (int round = 0; round < 50; ++round) {
    diary.note(a, 2 * round);
    ASSERT_CUDA(cudaEventRecord(a_done, a));
    ASSERT_CUDA(cudaStreamWaitEvent(b, a_done));
    diary.note(b, 2 * round + 1);
    ASSERT_CUDA(cudaEventRecord(b_done, b));
    ASSERT_CUDA(cudaStreamWaitEvent(a, b_done));
  }
  ASSERT_CUDA(cudaDeviceSynchronize());
  EXPECT_EQ(diary.entries(), counting(100));
}

TEST(Stream, DestroyingItLetsEnqueuedWorkComplete) {
  Gate gate;
  Diary diary;
  StreamHandle stream;
  gate.hold(stream);
  for (int i = 0; i < 10; ++i) diary.note(stream, i);
  ASSERT_CUDA(cudaStreamDestroy(stream.release()));
  EXPECT_TRUE(diary.entries().empty());
  gate.open();
  ASSERT_CUDA(cudaDeviceSynchronize());
  EXPECT_EQ(diary.entries(), counting(10));
}

TEST(Stream, DeviceSynchronizeWaitsForEveryStream) {
  Diary diary;
  std::vector<std::unique_ptr<StreamHandle>> streams;
  for (int i = 0; i < 8; ++i) {
    streams.push_back(std::make_unique<StreamHandle>(i % 2 == 0 ? cudaStreamNonBlocking : cudaStreamDefault));
    for (int j = 0; j < 10; ++j) diary.note(*streams.back(), i);
  }
  ASSERT_CUDA(cudaDeviceSynchronize());
  EXPECT_EQ(diary.entries().size(), 80u);
}

TEST(Stream, BadHandlesAndFlagsAreErrors) {
  cudaStream_t stream = nullptr;
  EXPECT_CUDA_ERROR(cudaStreamCreateWithFlags(&stream, 0x40), cudaErrorInvalidValue);
  StreamHandle good;
  EXPECT_CUDA_ERROR(cudaStreamWaitEvent(good, nullptr), cudaErrorInvalidResourceHandle);
}

TEST(DefaultStream, WaitsForBlockingStreamsAndTheyForIt) {
  Gate gate;
  StreamHandle first(cudaStreamDefault), second(cudaStreamDefault);
  Diary diary;
  gate.hold(first);
  diary.note(first, 0);
  diary.note(nullptr, 1);
  diary.note(second, 2);
  EXPECT_TRUE(diary.entries().empty());
  gate.open();
  ASSERT_CUDA(cudaStreamSynchronize(second));
  EXPECT_EQ(diary.entries(), counting(3));
}

TEST(DefaultStream, HasNoOrderWithNonBlockingStreams) {
  Gate gate;
  StreamHandle held(cudaStreamNonBlocking);
  gate.hold(held);
  DeviceInts data(4);
  data.set({1, 2, 3, 4});  // would never return, did it wait for `held`
  EXPECT_EQ(data.values(), counting(4, 1));
  EXPECT_EQ(cudaStreamQuery(held), cudaErrorNotReady);
  (void)cudaGetLastError();
  gate.open();
  ASSERT_CUDA(cudaStreamSynchronize(held));
}

TEST(DefaultStream, OfOneDeviceLeavesOtherDevicesAlone) {
  SKIP_BELOW_DEVICES(2);
  Gate gate;
  ASSERT_CUDA(cudaSetDevice(1));
  StreamHandle held(cudaStreamDefault);
  gate.hold(held);
  ASSERT_CUDA(cudaSetDevice(0));
  Diary diary;
  diary.note(nullptr, 1);
  ASSERT_CUDA(cudaStreamSynchronize(nullptr));
  EXPECT_EQ(diary.entries(), std::vector<int>{1});
  gate.open();
  ASSERT_CUDA(cudaStreamSynchronize(held));
}

TEST(Stream, DevicesWorkAtTheSameTime) {
  SKIP_BELOW_DEVICES(2);
  // Each waits for the other one's sign: possible only where both run.
  struct Meeting {
    std::atomic<int> here{0};
    void arrive() {
      here.fetch_add(1);
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
      while (here.load() < 2 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    }
  } meeting;
  std::vector<std::unique_ptr<StreamHandle>> streams;
  for (int device = 0; device < 2; ++device) {
    ASSERT_CUDA(cudaSetDevice(device));
    streams.push_back(std::make_unique<StreamHandle>());
    ASSERT_CUDA(cudaLaunchHostFunc(
        *streams.back(), [](void* argument) { static_cast<Meeting*>(argument)->arrive(); }, &meeting));
  }
  for (auto& stream : streams) ASSERT_CUDA(cudaStreamSynchronize(*stream));
  EXPECT_EQ(meeting.here.load(), 2);
  ASSERT_CUDA(cudaSetDevice(0));
}

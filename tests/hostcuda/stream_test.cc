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

// Seven and one are as many as a GPU serves by queues of their own, unless CUDA_DEVICE_MAX_CONNECTIONS says
// more.
TEST(Stream, ManyHeldStreamsLeaveRoomForOneMore) {
  Gate gate;
  StreamHandle other;
  DeviceInts data(10);
  std::vector<std::unique_ptr<StreamHandle>> held;
  for (int i = 0; i < 7; ++i) held.push_back(std::make_unique<StreamHandle>());
  for (const auto& stream : held) gate.hold(*stream);
  ASSERT_CUDA(cudaMemsetAsync(data.get(), 0x11, data.bytes(), other));
  ASSERT_CUDA(cudaStreamSynchronize(other));
  for (const auto& stream : held) EXPECT_EQ(cudaStreamQuery(*stream), cudaErrorNotReady);
  (void)cudaGetLastError();
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
  DeviceInts data(4);
  gate.hold(held);
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
  DeviceInts data(10);
  ASSERT_CUDA(cudaSetDevice(1));
  StreamHandle held(cudaStreamDefault);
  gate.hold(held);
  ASSERT_CUDA(cudaSetDevice(0));
  ASSERT_CUDA(cudaMemsetAsync(data.get(), 0x11, data.bytes(), nullptr));
  ASSERT_CUDA(cudaStreamSynchronize(nullptr));
  EXPECT_EQ(cudaStreamQuery(held), cudaErrorNotReady);
  (void)cudaGetLastError();
  gate.open();
  ASSERT_CUDA(cudaStreamSynchronize(held));
}

TEST(Stream, NoDeviceWaitsForAnother) {
  SKIP_BELOW_DEVICES(2);
  std::vector<std::unique_ptr<StreamHandle>> streams;
  std::vector<std::unique_ptr<DeviceInts>> data;
  for (int device = 0; device < 2; ++device) {
    ASSERT_CUDA(cudaSetDevice(device));
    streams.push_back(std::make_unique<StreamHandle>());
    data.push_back(std::make_unique<DeviceInts>(1000));
  }
  // Each works while the other one is held.
  for (size_t held = 0; held < 2; ++held) {
    const size_t works = 1 - held;
    Gate gate;
    gate.hold(*streams[held]);
    ASSERT_CUDA(cudaMemsetAsync(data[held]->get(), 1, data[held]->bytes(), *streams[held]));
    ASSERT_CUDA(cudaMemsetAsync(data[works]->get(), 1, data[works]->bytes(), *streams[works]));
    ASSERT_CUDA(cudaStreamSynchronize(*streams[works]));
    EXPECT_EQ(cudaStreamQuery(*streams[held]), cudaErrorNotReady);
    (void)cudaGetLastError();
    gate.open();
    ASSERT_CUDA(cudaStreamSynchronize(*streams[held]));
  }
  ASSERT_CUDA(cudaSetDevice(0));
}

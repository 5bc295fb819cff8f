// Events: a wait keeps the position at the time of its call; queries tell the truth; times and their errors.
#include "tests/hostcuda/cuda_objects.h"

TEST(Event, ThatWasNeverRecordedIsReached) {
  EventHandle event;
  EXPECT_CUDA(cudaEventQuery(event));
  EXPECT_CUDA(cudaEventSynchronize(event));
  StreamHandle stream;
  EXPECT_CUDA(cudaStreamWaitEvent(stream, event));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
}

TEST(Event, IsNotReadyUntilItsStreamComesToIt) {
  Gate gate;
  StreamHandle stream;
  EventHandle event;
  gate.hold(stream);
  ASSERT_CUDA(cudaEventRecord(event, stream));
  EXPECT_CUDA_ERROR(cudaEventQuery(event), cudaErrorNotReady);
  gate.open();
  EXPECT_CUDA(cudaEventSynchronize(event));
  EXPECT_CUDA(cudaEventQuery(event));
}

TEST(Event, AWaitKeepsThePositionThatWasRecordedThen) {
  Gate gate;
  StreamHandle producer, consumer;
  EventHandle event;
  DeviceInts made(1000), seen(1000);
  ASSERT_CUDA(cudaMemsetAsync(made.get(), 0x11, made.bytes(), producer));
  ASSERT_CUDA(cudaEventRecord(event, producer));
  ASSERT_CUDA(cudaStreamWaitEvent(consumer, event));
  gate.hold(producer);
  ASSERT_CUDA(cudaEventRecord(event, producer));  // a later position: not what the consumer waits for
  ASSERT_CUDA(cudaMemcpyAsync(seen.get(), made.get(), made.bytes(), cudaMemcpyDeviceToDevice, consumer));
  ASSERT_CUDA(cudaStreamSynchronize(consumer));
  EXPECT_EQ(cudaStreamQuery(producer), cudaErrorNotReady);
  (void)cudaGetLastError();
  gate.open();
  EXPECT_EQ(seen.values(), std::vector<int>(1000, 0x11111111));
  ASSERT_CUDA(cudaStreamSynchronize(producer));
}

TEST(Event, MayBeDestroyedWhileItIsWaitedFor) {
  Gate gate;
  StreamHandle producer, consumer;
  Diary diary;
  gate.hold(producer);
  diary.note(producer, 0);
  {
    EventHandle event;
    ASSERT_CUDA(cudaEventRecord(event, producer));
    ASSERT_CUDA(cudaStreamWaitEvent(consumer, event));
  }
  diary.note(consumer, 1);
  gate.open();
  ASSERT_CUDA(cudaStreamSynchronize(consumer));
  EXPECT_EQ(diary.entries(), counting(2));
}

TEST(Event, ElapsedTimeCoversWhatLiesBetween) {
  StreamHandle stream;
  EventHandle start(cudaEventDefault), end(cudaEventDefault);
  ASSERT_CUDA(cudaEventRecord(start, stream));
  ASSERT_CUDA(cudaLaunchHostFunc(
      stream, [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }, nullptr));
  ASSERT_CUDA(cudaEventRecord(end, stream));
  float milliseconds = -1;
  ASSERT_CUDA(cudaEventSynchronize(end));
  ASSERT_CUDA(cudaEventElapsedTime(&milliseconds, start, end));
  EXPECT_GE(milliseconds, 19.9f);  // the sleep; a clock's tick less
  ASSERT_CUDA(cudaEventElapsedTime(&milliseconds, end, start));
  EXPECT_LE(milliseconds, -19.9f);
}

TEST(Event, ElapsedTimeNeedsTwoTimedAndReachedEvents) {
  StreamHandle stream;
  EventHandle timed(cudaEventDefault), later(cudaEventDefault), untimed(cudaEventDisableTiming);
  float milliseconds = 0;
  EXPECT_CUDA_ERROR(cudaEventElapsedTime(&milliseconds, timed, later), cudaErrorInvalidResourceHandle);
  ASSERT_CUDA(cudaEventRecord(timed, stream));
  ASSERT_CUDA(cudaEventRecord(untimed, stream));
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_CUDA_ERROR(cudaEventElapsedTime(&milliseconds, timed, untimed), cudaErrorInvalidResourceHandle);
  Gate gate;
  gate.hold(stream);
  ASSERT_CUDA(cudaEventRecord(later, stream));
  EXPECT_CUDA_ERROR(cudaEventElapsedTime(&milliseconds, timed, later), cudaErrorNotReady);
  gate.open();
  ASSERT_CUDA(cudaStreamSynchronize(stream));
}

TEST(Event, NullIsAnInvalidHandle) {
  EXPECT_CUDA_ERROR(cudaEventRecord(nullptr, nullptr), cudaErrorInvalidResourceHandle);
  EXPECT_CUDA_ERROR(cudaEventQuery(nullptr), cudaErrorInvalidResourceHandle);
}

TEST(Event, OrdersStreamsOfTwoDevicesButIsRecordedOnItsOwn) {
  SKIP_BELOW_DEVICES(2);
  Gate gate;
  StreamHandle first;
  EventHandle event;
  Diary diary;
  ASSERT_CUDA(cudaSetDevice(1));
  StreamHandle second;
  gate.hold(first);
  diary.note(first, 0);
  ASSERT_CUDA(cudaEventRecord(event, first));
  EXPECT_CUDA_ERROR(cudaEventRecord(event, second), cudaErrorInvalidResourceHandle);
  ASSERT_CUDA(cudaStreamWaitEvent(second, event));
  diary.note(second, 1);
  gate.open();
  ASSERT_CUDA(cudaStreamSynchronize(second));
  EXPECT_EQ(diary.entries(), counting(2));
  ASSERT_CUDA(cudaSetDevice(0));
}

// What is hostcuda's own: its environment variables, the deadline of a wait, failed launches, and which way
// peer copies go. Each case that ends a device runs in a process of its own.
#include <cublas_v2.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <hostcuda/launch.h>
#include <hostcuda/statistics.h>

#include "tests/hostcuda/cuda_objects.h"

namespace {

constexpr hostcuda::LaunchSite kSite{"internal_runtime_test.cc", 1, "test_kernel"};

// Runs `body` in a new process with the variable set; it must return 0.
#define EXPECT_IN_PROCESS(name, value, body, text)                      \
  do {                                                                  \
    GTEST_FLAG_SET(death_test_style, "threadsafe");                     \
    setenv(name, value, 1);                                             \
    EXPECT_EXIT(std::exit((body)()), testing::ExitedWithCode(0), text); \
    unsetenv(name);                                                     \
  } while (false)

int failures() {
  return testing::Test::HasFailure() ? 1 : 0;
}

int two_streams_wait_for_each_other() {
  struct Never {
    std::mutex mutex;
    std::condition_variable changed;
    void wait() {
      std::unique_lock lock(mutex);
      changed.wait(lock, [] { return false; });
    }
  };
  static auto* const never = new Never;
  StreamHandle a, b;
  EventHandle a_event, b_event;
  EXPECT_CUDA(cudaLaunchHostFunc(a, [](void*) { never->wait(); }, nullptr));
  EXPECT_CUDA(cudaEventRecord(a_event, a));
  EXPECT_CUDA(cudaStreamWaitEvent(b, a_event));
  EXPECT_EQ(cudaStreamSynchronize(b), cudaErrorLaunchTimeout);
  EXPECT_EQ(cudaStreamSynchronize(b), cudaErrorLaunchTimeout);  // sticky
  void* data = nullptr;
  EXPECT_EQ(cudaMalloc(&data, 4), cudaErrorLaunchTimeout);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchTimeout);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchTimeout);
  std::_Exit(failures());  // the handles cannot be destroyed any more
}

// Another process stops this one in the middle of an operation, for twice as long as a wait may take.
int stopped_while_it_waits() {
  static std::atomic<bool> go{false};
  const pid_t waiting = getpid(), other = fork();
  if (other == 0) {
    usleep(200'000);
    kill(waiting, SIGSTOP);
    usleep(2'000'000);
    kill(waiting, SIGCONT);
    _exit(0);
  }
  std::thread end_of_the_operation([other] {
    waitpid(other, nullptr, 0);
    go = true;
  });
  StreamHandle stream;
  EXPECT_CUDA(cudaLaunchHostFunc(
      stream,
      [](void*) {
        while (!go) usleep(1000);
      },
      nullptr));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  end_of_the_operation.join();
  return failures();
}

int a_call_throws() {
  StreamHandle stream;
  EXPECT_CUDA(hostcuda::enqueue_call("multiply", [] { throw std::runtime_error("no such shape"); }, stream));
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
  int device = -1;
  EXPECT_CUDA(cudaGetDevice(&device));
  if (device_count() > 1) {
    EXPECT_CUDA(cudaSetDevice(1));
    EXPECT_CUDA(cudaDeviceSynchronize());  // the other device goes on
  }
  std::_Exit(failures());
}

int bad_environment() {
  int count = 0;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorInitializationError);
  EXPECT_EQ(cudaSetDevice(0), cudaErrorInitializationError);
  std::fprintf(stderr, "%s\n", cudaGetErrorString(cudaErrorInitializationError));
  return failures();
}

int small_memory() {
  void *first = nullptr, *second = nullptr;
  EXPECT_CUDA(cudaMalloc(&first, 600));
  EXPECT_EQ(cudaMalloc(&second, 600), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  size_t free = 0, total = 0;
  EXPECT_CUDA(cudaMemGetInfo(&free, &total));
  EXPECT_EQ(free, 400u);
  EXPECT_EQ(total, 1000u);
  EXPECT_CUDA(cudaFreeAsync(first, nullptr));
  EXPECT_CUDA(cudaMallocAsync(&second, 600, nullptr));  // waits for what is being freed
  EXPECT_CUDA(cudaFree(second));
  return failures();
}

// Copies {1, 2, 3} from device 0 to device 1.
std::vector<int> peer_copy_result() {
  DeviceInts source(3);
  source.set({1, 2, 3});
  EXPECT_CUDA(cudaSetDevice(1));
  DeviceInts destination(3);
  destination.set({9, 9, 9});
  EXPECT_CUDA(cudaMemcpyPeer(destination.get(), 1, source.get(), 0, source.bytes()));
  return destination.values();
}

int no_peer_access() {
  int possible = 1;
  EXPECT_CUDA(cudaDeviceCanAccessPeer(&possible, 0, 1));
  EXPECT_EQ(possible, 0);
  EXPECT_CUDA_ERROR(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessUnsupported);
  EXPECT_EQ(peer_copy_result(), counting(3, 1));
  EXPECT_EQ(hostcuda::peer_copies().staged, 1u);
  EXPECT_EQ(hostcuda::peer_copies().direct, 0u);
  return failures();
}

int broken_peer_access() {
  int possible = 0;
  EXPECT_CUDA(cudaDeviceCanAccessPeer(&possible, 0, 1));
  EXPECT_EQ(possible, 1);
  EXPECT_CUDA(cudaDeviceEnablePeerAccess(1, 0));
  EXPECT_EQ(peer_copy_result(), std::vector<int>(3, 0));
  return failures();
}

// The threads of this process while products run on many streams, each of which every worker may take.
int threads_with_products_on_many_streams() {
  constexpr int kSize = 256, kStreams = 16;
  std::vector<StreamHandle> streams(kStreams);
  cublasHandle_t handle = nullptr;
  EXPECT_EQ(cublasCreate(&handle), CUBLAS_STATUS_SUCCESS);
  float* memory = nullptr;
  EXPECT_CUDA(cudaMalloc(&memory, (1 + kStreams) * kSize * kSize * sizeof(float)));
  const float one = 1, zero = 0;
  for (int repeat = 0; repeat < 20; ++repeat)
    for (int s = 0; s < kStreams; ++s) {
      EXPECT_EQ(cublasSetStream(handle, streams[static_cast<size_t>(s)]), CUBLAS_STATUS_SUCCESS);
      EXPECT_EQ(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, kSize, kSize, kSize, &one, memory, kSize,
                            memory, kSize, &zero, memory + (1 + s) * kSize * kSize, kSize),
                CUBLAS_STATUS_SUCCESS);
    }
  EXPECT_CUDA(cudaDeviceSynchronize());
  int threads = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task"))
    threads += task.is_directory();
  constexpr int kWorkers = 8, kTakeStreams = 4;
  EXPECT_LE(threads, 1 + kWorkers + (1 + kTakeStreams) * (kWorkers - 1))
      << "not a library's threads for each worker";
  EXPECT_GT(threads, kWorkers);
  return failures();
}

// As OpenMP does where it gets no thread.
int a_library_calls_exit() {
  StreamHandle stream;
  EXPECT_CUDA(hostcuda::enqueue_call("multiply", []() -> cudaError_t { std::exit(1); }, stream));
  cudaStreamSynchronize(stream);
  return 0;
}

int no_memory_in_a_call() {
  StreamHandle stream;
  EXPECT_CUDA(hostcuda::enqueue_call("multiply", []() -> cudaError_t { throw std::bad_alloc(); }, stream));
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorOperatingSystem);
  std::fprintf(stderr, "%s\n", cudaGetErrorString(cudaErrorOperatingSystem));
  std::_Exit(failures());
}

}  // namespace

TEST(Leaving, ALibraryThatCallsExitInAWorkerEndsTheProcessAtOnce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::exit(a_library_calls_exit()), testing::ExitedWithCode(1),
              "^hostcuda: multiply: a library ended the program: .*\n$");
}

TEST(Leaving, AShortageOfMemoryInACallIsSaidByItsError) {
  EXPECT_IN_PROCESS("HOSTCUDA_TIMEOUT", "60", no_memory_in_a_call,
                    "^multiply: the system gives this process no more memory: .*ulimit -v.*\n$");
}

TEST(Leaving, AnAddressSpaceThatIsTooSmallIsNamedAtTheStart) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs more address space than any limit";
#endif
  if (std::getenv("PRINT_INITIALIZATION_ERROR") != nullptr) {
    int count = 0;
    EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorInitializationError);
    std::printf("says: %s\n", cudaGetErrorString(cudaErrorInitializationError));
    return;
  }
  std::array<char, 4096> program{};
  ASSERT_GT(readlink("/proc/self/exe", program.data(), program.size() - 1), 0);
  const std::string command = std::string("ulimit -v 307200; PRINT_INITIALIZATION_ERROR=1 '") +
                              program.data() + "' --gtest_filter='Leaving.AnAddress*'";
  FILE* const output = popen(command.c_str(), "r");
  ASSERT_NE(output, nullptr);
  std::string said;
  std::array<char, 512> line{};
  while (std::fgets(line.data(), line.size(), output))
    if (std::strncmp(line.data(), "says: ", 6) == 0) said = line.data();
  EXPECT_EQ(pclose(output), 0) << command;
  EXPECT_EQ(said,
            "says: this process may have 307200 kB of address space: allow it 524288 or more (ulimit -v)\n");
}

TEST(Workers, DoNotEachHaveALibrarysThreads) {
  setenv("HOSTCUDA_DEVICES", "1", 1);
  EXPECT_IN_PROCESS("HOSTCUDA_THREADS", "8", threads_with_products_on_many_streams, "");
  unsetenv("HOSTCUDA_DEVICES");
}

TEST(Timeout, AWaitThatTakesTooLongEndsAndSaysWhoWaitsForWhat) {
  EXPECT_IN_PROCESS(
      "HOSTCUDA_TIMEOUT", "0.3", two_streams_wait_for_each_other,
      "waited 0.3 s .HOSTCUDA_TIMEOUT.(.|\n)*which is in a host function(.|\n)*which waits for an "
      "event on stream");
}

TEST(Timeout, DoesNotCountWhileTheProcessIsStopped) {
  EXPECT_IN_PROCESS("HOSTCUDA_TIMEOUT", "1", stopped_while_it_waits, "");
}

TEST(Failure, AnExceptionInALibraryCallEndsTheDeviceAndIsPrinted) {
  EXPECT_IN_PROCESS("HOSTCUDA_TIMEOUT", "60", a_call_throws, "hostcuda: multiply failed: no such shape");
}

TEST(Environment, BadValuesAreNamedAndNothingWorks) {
  EXPECT_IN_PROCESS("HOSTCUDA_DEVICES", "two", bad_environment,
                    "^HOSTCUDA_DEVICES is 'two': use a whole number from 1 to 64\n$");
  EXPECT_IN_PROCESS("HOSTCUDA_THREADS", "0", bad_environment, "HOSTCUDA_THREADS is '0'");
  EXPECT_IN_PROCESS("HOSTCUDA_THREADS", "100000", bad_environment,
                    "^HOSTCUDA_THREADS is '100000': use .*, as .* device.* share .* core.*\n$");
  EXPECT_IN_PROCESS("HOSTCUDA_MEMORY", "1G", bad_environment, "HOSTCUDA_MEMORY is '1G'");
  EXPECT_IN_PROCESS("HOSTCUDA_PEER", "yes", bad_environment, "HOSTCUDA_PEER is 'yes'");
  EXPECT_IN_PROCESS("HOSTCUDA_TIMEOUT", "-1", bad_environment, "HOSTCUDA_TIMEOUT is '-1'");
}

TEST(Environment, MemoryIsBounded) {
  EXPECT_IN_PROCESS("HOSTCUDA_MEMORY", "1000", small_memory, "");
}

TEST(Environment, PeerAccessCanBeTakenAway) {
  SKIP_BELOW_DEVICES(2);
  EXPECT_IN_PROCESS("HOSTCUDA_PEER", "0", no_peer_access, "");
}

TEST(Environment, PeerAccessCanBeBroken) {
  SKIP_BELOW_DEVICES(2);
  EXPECT_IN_PROCESS("HOSTCUDA_PEER", "broken", broken_peer_access, "");
}

TEST(Sharing, SlicesCoverTheRangeExactlyOnce) {
  for (const int64_t n : {1, 63, 8192, 16384, 16385, 1000003}) {
    SCOPED_TRACE(n);
    StreamHandle stream;
    std::vector<std::atomic<int>> hits(static_cast<size_t>(n));
    ASSERT_CUDA(hostcuda::enqueue_elements(
        n,
        [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) hits[static_cast<size_t>(i)].fetch_add(1);
        },
        kSite, stream));
    ASSERT_CUDA(cudaStreamSynchronize(stream));
    for (size_t i = 0; i < hits.size(); ++i) ASSERT_EQ(hits[i].load(), 1) << i;
  }
}

TEST(Statistics, APeerCopyIsDirectOnceAccessIsEnabled) {
  SKIP_BELOW_DEVICES(2);
  const hostcuda::PeerCopies before = hostcuda::peer_copies();
  EXPECT_EQ(peer_copy_result(), counting(3, 1));
  EXPECT_EQ(hostcuda::peer_copies().staged, before.staged + 1);
  ASSERT_CUDA(cudaDeviceEnablePeerAccess(0, 0));
  ASSERT_CUDA(cudaSetDevice(0));
  EXPECT_EQ(peer_copy_result(), counting(3, 1));
  EXPECT_EQ(hostcuda::peer_copies().direct, before.direct + 1);
  ASSERT_CUDA(cudaDeviceDisablePeerAccess(0));
  ASSERT_CUDA(cudaSetDevice(0));
}

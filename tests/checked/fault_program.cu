// A program with one planted fault, which its argument names. It prints what the CUDA calls returned and what
// the kernel computed, and exits 0 only if no call failed. Run by checked_test.cc, once for each fault.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "kernels/launch.cuh"

namespace {

using lockstep::kernels::dynamic_shared;
using lockstep::kernels::launch;

constexpr int kThreads = 128;
constexpr unsigned kFull = 0xffffffffu;

// Each block reverses its share of x; without the barrier a thread may read what another has not written yet.
template <bool kBarrier>
__global__ void reverse_static(const float* x, float* y) {
  __shared__ float tile[kThreads];
  const unsigned t = threadIdx.x, first = blockIdx.x * kThreads;
  tile[t] = x[first + t];
  if (kBarrier) __syncthreads();
  y[first + t] = tile[kThreads - 1 - t];
}

template <bool kBarrier>
__global__ void reverse_dynamic(const float* x, float* y) {
  float* tile = dynamic_shared<float>();
  const unsigned t = threadIdx.x, first = blockIdx.x * kThreads;
  tile[t] = x[first + t];
  if (kBarrier) __syncthreads();
  y[first + t] = tile[kThreads - 1 - t];
}

// Both branches have their own barrier.
__global__ void divergent_barriers(int* out) {
  if (threadIdx.x < 64) {
    out[threadIdx.x] = 1;
    __syncthreads();
  } else {
    out[threadIdx.x] = 2;
    __syncthreads();
  }
}

__global__ void ended_before_barrier(int* out) {
  if (threadIdx.x == 5) return;
  __syncthreads();
  out[threadIdx.x] = 1;
}

// The upper lanes wait for the block while the lower ones wait for them.
__global__ void shuffle_without_upper_lanes(int* out) {
  int value = static_cast<int>(threadIdx.x);
  if (threadIdx.x % 32 < 16) value = __shfl_down_sync(kFull, value, 8);
  __syncthreads();
  out[threadIdx.x] = value;
}

__global__ void shuffle_in_two_branches(int* out) {
  int value = static_cast<int>(threadIdx.x);
  if (threadIdx.x % 2 == 0)
    value = __shfl_xor_sync(kFull, value, 2);
  else
    value = __shfl_xor_sync(kFull, value, 4);
  out[threadIdx.x] = value;
}

__global__ void shuffle_outside_own_mask(int* out) {
  out[threadIdx.x] = __shfl_sync(0x0000ffffu, static_cast<int>(threadIdx.x), 0);
}

__global__ void shuffle_from_ended_lane(int* out) {
  if (threadIdx.x % 32 >= 20) return;
  out[threadIdx.x] = __shfl_down_sync(kFull, static_cast<int>(threadIdx.x), 4);
}

__global__ void vote_without_upper_lanes(int* out) {
  if (threadIdx.x % 32 < 16) out[threadIdx.x] = static_cast<int>(__ballot_sync(kFull, 1));
  __syncthreads();
}

__global__ void write_at(float* x, long long index) {
  if (blockIdx.x == 1 && threadIdx.x == 3) x[index] = 1.0f;
}

__global__ void read_at(const float* x, long long index, float* out) {
  if (blockIdx.x == 1 && threadIdx.x == 3) *out = x[index];
}

__global__ void write_shared_at(int index) {
  if (threadIdx.x == 3) dynamic_shared<volatile float>()[index] = 1.0f;
}

__global__ void sum_of(const float* x, int n, float* sum) {
  for (int i = 0; i < n; ++i) *sum += x[i];
}

__device__ __attribute__((noinline)) int recurse(int depth) {
  volatile char large[1024];
  large[0] = static_cast<char>(depth);
  return depth == 0 ? 0 : recurse(depth - 1) + large[0] % 2;
}

__global__ void recurse_deeply(int* out, int depth) {
  out[threadIdx.x] = recurse(depth);
}

__global__ void divide(int* out, int divisor) {
  out[threadIdx.x] = 7 / divisor;
}

// A row a block, each normalised to mean 0; a thread takes a column, also where there is none.
__global__ void centre_rows_without_a_bound(float* x, int columns) {
  float* row = x + static_cast<int>(blockIdx.x) * columns;
  float sum = 0;
  for (int i = 0; i < columns; ++i) sum += row[i];
  __syncthreads();
  row[threadIdx.x] -= sum / static_cast<float>(columns);
}

float* device_floats(size_t count, bool initialised = true) {
  float* memory = nullptr;
  LOCKSTEP_CUDA(cudaMalloc(&memory, count * sizeof(float)));
  if (initialised) LOCKSTEP_CUDA(cudaMemset(memory, 0, count * sizeof(float)));
  return memory;
}

float first_of(const float* memory) {
  float value = 0;
  LOCKSTEP_CUDA(cudaMemcpy(&value, memory, sizeof value, cudaMemcpyDeviceToHost));
  return value;
}

// Reverses x with the kernel and says whether the result is right, wrong, or has NaN in it.
void run_reverse(void (*kernel)(const float*, float*)) {
  constexpr int kBlocks = 4, kCount = kBlocks * kThreads;
  std::vector<float> values(kCount);
  for (int i = 0; i < kCount; ++i) values[i] = static_cast<float>(i + 1);
  float *x = device_floats(kCount), *y = device_floats(kCount);
  LOCKSTEP_CUDA(cudaMemcpy(x, values.data(), kCount * sizeof(float), cudaMemcpyHostToDevice));
  launch(kernel, kBlocks, kThreads, kThreads * sizeof(float), nullptr, x, y);
  std::vector<float> found(kCount);
  LOCKSTEP_CUDA(cudaMemcpy(found.data(), y, kCount * sizeof(float), cudaMemcpyDeviceToHost));
  bool right = true, nan = false;
  for (int i = 0; i < kCount; ++i) {
    right = right && found[i] == values[i / kThreads * kThreads + kThreads - 1 - i % kThreads];
    nan = nan || std::isnan(found[i]);
  }
  std::printf("result: %s\n", right ? "right" : nan ? "NaN" : "wrong");
}

void run_on_ints(void (*kernel)(int*)) {
  launch(kernel, 2, kThreads, 0, nullptr, reinterpret_cast<int*>(device_floats(kThreads)));
}

// A kernel on device 0 writes into memory of device 1.
void run_foreign_write(bool enabled) {
  LOCKSTEP_CUDA(cudaSetDevice(1));
  float* foreign = device_floats(64);
  LOCKSTEP_CUDA(cudaDeviceSynchronize());
  LOCKSTEP_CUDA(cudaSetDevice(0));
  if (enabled) LOCKSTEP_CUDA(cudaDeviceEnablePeerAccess(1, 0));
  launch(write_at, 2, 32, 0, nullptr, foreign, 10LL);
}

// A kernel fills a buffer on one stream; another stream copies it, after the event or without waiting.
__global__ void fill(float* x, int n, float value) {
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) x[i] = value;
}

void run_two_streams(bool wait) {
  constexpr int kCount = 1024;
  float *x = device_floats(kCount), *y = device_floats(kCount);
  cudaStream_t producer, consumer;
  cudaEvent_t filled;
  LOCKSTEP_CUDA(cudaStreamCreateWithFlags(&producer, cudaStreamNonBlocking));
  LOCKSTEP_CUDA(cudaStreamCreateWithFlags(&consumer, cudaStreamNonBlocking));
  LOCKSTEP_CUDA(cudaEventCreateWithFlags(&filled, cudaEventDisableTiming));
  LOCKSTEP_CUDA(cudaDeviceSynchronize());
  for (int round = 0; round < 2; ++round) {  // threads of the streams are made in the first, and used again
    launch(fill, 1, kThreads, 0, producer, x, kCount, 1.0f);
    LOCKSTEP_CUDA(cudaEventRecord(filled, producer));
    if (wait) LOCKSTEP_CUDA(cudaStreamWaitEvent(consumer, filled, 0));
    LOCKSTEP_CUDA(cudaMemcpyAsync(y, x, kCount * sizeof(float), cudaMemcpyDeviceToDevice, consumer));
    launch(fill, 1, kThreads, 0, consumer, x, kCount, 2.0f);
    LOCKSTEP_CUDA(cudaStreamSynchronize(producer));
    LOCKSTEP_CUDA(cudaStreamSynchronize(consumer));
  }
}

// Faults around tensors, whose memory comes from the device's pool.
bool run_on_tensors(const std::string& fault) {
  using lockstep::Tensor;
  const lockstep::Device device = lockstep::make_devices(1)[0];
  const auto write = [&](float* memory, long long index) {
    launch(write_at, 2, 32, 0, device.stream(), memory, index);
  };
  if (fault.starts_with(
          "tensor_of_")) {  // tensor_of_64_write_at_65: its elements, and the one that is touched
    int elements = 0, index = 0;
    char access[8] = "";
    std::sscanf(fault.c_str(), "tensor_of_%d_%7[a-z]_at_%d", &elements, access, &index);
    const Tensor before = Tensor::zeros({64}, device), x = Tensor::zeros({elements}, device),
                 after = Tensor::zeros({64}, device), out = Tensor::zeros({1}, device);
    if (std::string(access) == "write")
      write(x.data<float>(), index);
    else
      launch(read_at, 2, 32, 0, device.stream(), x.data<float>(), static_cast<long long>(index),
             out.data<float>());
    return true;
  }
  if (fault == "tensor_rows_without_a_bound") {
    const Tensor x = Tensor::zeros({4, 100}, device), after = Tensor::zeros({4, 100}, device);
    launch(centre_rows_without_a_bound, 4, 128, 0, device.stream(), x.data<float>(), 100);
    return true;
  }
  if (fault == "dead_tensor_write" || fault == "dead_tensor_read") {
    float* dead = nullptr;
    {
      const Tensor x = Tensor::zeros({64}, device);
      dead = x.data<float>();
    }
    const Tensor other = Tensor::zeros({64}, device);  // a pool gives it the same memory
    if (fault == "dead_tensor_write")
      write(dead, 7);
    else
      launch(read_at, 2, 32, 0, device.stream(), dead, 7LL, other.data<float>());
    return true;
  }
  if (fault == "tensor_used_before_its_death") {
    for (int i = 0; i < 3; ++i) write(Tensor::zeros({64}, device).data<float>(), 63);
    return true;
  }
  return false;
}

void run(const std::string& fault) {
  if (run_on_tensors(fault)) return;
  if (fault == "static_barrier") return run_reverse(reverse_static<true>);
  if (fault == "static_barrier_missing") return run_reverse(reverse_static<false>);
  if (fault == "dynamic_barrier") return run_reverse(reverse_dynamic<true>);
  if (fault == "dynamic_barrier_missing") return run_reverse(reverse_dynamic<false>);
  if (fault == "divergent_barriers") return run_on_ints(divergent_barriers);
  if (fault == "ended_before_barrier") return run_on_ints(ended_before_barrier);
  if (fault == "shuffle_without_upper_lanes") return run_on_ints(shuffle_without_upper_lanes);
  if (fault == "shuffle_in_two_branches") return run_on_ints(shuffle_in_two_branches);
  if (fault == "shuffle_outside_own_mask") return run_on_ints(shuffle_outside_own_mask);
  if (fault == "shuffle_from_ended_lane") return run_on_ints(shuffle_from_ended_lane);
  if (fault == "vote_without_upper_lanes") return run_on_ints(vote_without_upper_lanes);
  if (fault == "write_behind") return launch(write_at, 2, 32, 0, nullptr, device_floats(64), 64LL);
  if (fault == "write_behind_61") return launch(write_at, 2, 32, 0, nullptr, device_floats(61), 61LL);
  if (fault == "write_before") return launch(write_at, 2, 32, 0, nullptr, device_floats(64), -1LL);
  if (fault == "write_far") return launch(write_at, 2, 32, 0, nullptr, device_floats(64), 1LL << 40);
  if (fault == "write_inside") return launch(write_at, 2, 32, 0, nullptr, device_floats(64), 63LL);
  if (fault == "read_behind")
    return launch(read_at, 2, 32, 0, nullptr, device_floats(64), 64LL, device_floats(1));
  if (fault == "read_before") {
    float* out = device_floats(1);
    launch(read_at, 2, 32, 0, nullptr, device_floats(64), -1LL, out);
    std::printf("result: %s\n", std::isnan(first_of(out)) ? "NaN" : "a number");
    return;
  }
  if (fault == "null_pointer") return launch(write_at, 2, 32, 0, nullptr, nullptr, 2LL);
  if (fault == "write_behind_shared") return launch(write_shared_at, 2, 32, 64 * sizeof(float), nullptr, 64);
  if (fault == "write_inside_shared") return launch(write_shared_at, 2, 32, 64 * sizeof(float), nullptr, 63);
  if (fault == "use_after_free") {
    float* memory = device_floats(64);
    LOCKSTEP_CUDA(cudaFree(memory));
    return launch(write_at, 2, 32, 0, nullptr, memory, 7LL);
  }
  if (fault == "foreign_write") return run_foreign_write(false);
  if (fault == "foreign_write_enabled") return run_foreign_write(true);
  if (fault == "host_write") {
    float* memory = device_floats(64);
    LOCKSTEP_CUDA(cudaDeviceSynchronize());
    *static_cast<volatile float*>(memory) = 1.0f;
    return;
  }
  if (fault == "uninitialised_read") {
    float* sum = device_floats(1);
    launch(sum_of, 1, 1, 0, nullptr, device_floats(8, false), 8, sum);
    std::printf("result: %s\n", std::isnan(first_of(sum)) ? "NaN" : "a number");
    return;
  }
  if (fault == "stack_overflow")
    return launch(recurse_deeply, 1, 32, 0, nullptr, reinterpret_cast<int*>(device_floats(32)), 1 << 20);
  if (fault == "division_by_zero")
    return launch(divide, 1, 32, 0, nullptr, reinterpret_cast<int*>(device_floats(32)), 0);
  if (fault == "wait") return run_two_streams(true);
  if (fault == "wait_missing") return run_two_streams(false);
  throw lockstep::Error("fault_program: no fault is called '" + fault + "'");
}

}  // namespace

int main(int argc, char** argv) {
  cudaError_t status = cudaSuccess;
  try {
    run(argc > 1 ? argv[1] : "");
    status = cudaDeviceSynchronize();
  } catch (const std::exception& error) {
    std::printf("error: %s\n", error.what());
    return 2;
  }
  std::printf("status: %s, then %s\n", cudaGetErrorName(status), cudaGetErrorName(cudaDeviceSynchronize()));
  return status == cudaSuccess ? 0 : 1;
}

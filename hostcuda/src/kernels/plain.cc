// The launches of ordinary CUDA programs: a configuration waits for the call of the kernel's host function,
// which then enqueues the kernel's body. Also what CUDA asks about a kernel by its address.
#include <hostcuda/plain.h>

#include <cxxabi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>

#include "hostcuda/src/kernels/block.h"
#include "hostcuda/src/runtime/api.h"
#include "hostcuda/src/runtime/report.h"

namespace hostcuda::plain {
namespace {

thread_local std::optional<Configuration> waiting;
thread_local Kernel* described_kernel = nullptr;
thread_local cudaError_t launched = cudaSuccess;

struct List {
  std::mutex mutex;
  std::map<const void*, Call> calls;
};

List& all() {
  static auto* const list = new List;
  return *list;
}

}  // namespace

void configure(const Configuration& configuration) {
  waiting = configuration;
}

// void scale<int, 3>(int*, int)::{lambda()#1}
std::string name_of_kernel(const std::type_info& body, const char* plain_name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> demangled(
      abi::__cxa_demangle(body.name(), nullptr, nullptr, &status), std::free);
  if (status != 0) return plain_name;
  const std::string text = demangled.get();
  const size_t end = text.rfind("::{lambda");
  return end == std::string::npos ? plain_name : strip_signature(text.substr(0, end));
}

void launch(Kernel& kernel, std::function<void()> thread) {
  if (operation_of_this_thread() != nullptr)
    throw std::runtime_error("launches kernel " + kernel.name +
                             " from device code: dynamic parallelism is not there, launch it from the host");
  if (!waiting) {
    std::fprintf(stderr,
                 "hostcuda: kernel %s was called as a function: launch it with %s<<<grid, block>>>(...)\n",
                 kernel.name.c_str(), kernel.name.c_str());
    launched = device_call([] { return cudaErrorInvalidDeviceFunction; });
    return;
  }
  const Configuration how = *std::exchange(waiting, std::nullopt);
  KernelLaunch what{&kernel, how.site, how.grid, how.block, how.shared_bytes, std::move(thread)};
  what.name = kernel.name.c_str();
  what.shared_limit = static_cast<size_t>(kernel.max_dynamic_shared_bytes);
  what.cooperative = how.cooperative;
  launched = enqueue_kernel(std::move(what), how.stream);
}

bool describes(Kernel& kernel) {
  if (!waiting || waiting->purpose != Configuration::Purpose::describe) return false;
  waiting.reset();
  described_kernel = &kernel;
  return true;
}

Kernel* described() {
  return std::exchange(described_kernel, nullptr);
}

void list(const void* address, const Call& call) {
  const std::lock_guard hold(all().mutex);
  all().calls.try_emplace(address, call);
}

const Call* find(const void* address) {
  const std::lock_guard hold(all().mutex);
  const auto found = all().calls.find(address);
  return found == all().calls.end() ? nullptr : &found->second;
}

Kernel* describe(const void* address) {
  const Call* const call = find(address);
  if (call == nullptr) return nullptr;
  // Parameters of no value, which are only passed on. CUDA's take 32,764 bytes at most.
  static constexpr int kMostParameters = 1024;
  alignas(64) static char none[32768];
  void* arguments[kMostParameters];
  std::fill(std::begin(arguments), std::end(arguments), static_cast<void*>(none));
  configure(Configuration{Configuration::Purpose::describe, {}, {}, {}, 0, nullptr, false});
  (*call)(arguments);
  return described();
}

namespace {

cudaError_t launch_at(const char* function, const void* kernel, dim3 grid, dim3 block, void** arguments,
                      size_t shared_bytes, cudaStream_t stream, bool cooperative) {
  const Call* const call = find(kernel);
  if (call == nullptr) return device_call([] { return cudaErrorInvalidDeviceFunction; });
  configure({Configuration::Purpose::launch,
             {function, 0, function},
             grid,
             block,
             shared_bytes,
             stream,
             cooperative});
  (*call)(arguments);
  return launched;
}

// How many blocks a multiprocessor holds at once, by threads, blocks and shared memory.
int resident_blocks(int block_size, size_t shared_bytes) {
  cudaDeviceProp properties{};
  cudaGetDeviceProperties(&properties, this_thread().device);
  const int warps = (block_size + 31) / 32;
  int blocks =
      std::min(properties.maxBlocksPerMultiProcessor, properties.maxThreadsPerMultiProcessor / 32 / warps);
  if (shared_bytes > 0)
    blocks = std::min(blocks, static_cast<int>(properties.sharedMemPerMultiprocessor / shared_bytes));
  return blocks;
}

}  // namespace
}  // namespace hostcuda::plain

using namespace hostcuda;

void __trap() {
  if (Block* const block = running_block())
    block->abandon(cudaErrorLaunchFailure, "__trap()", "the kernel gave itself up");
  std::abort();
}

extern "C" {

// What assert() of an ordinary CUDA program calls (hostcuda/compile). In a kernel it ends that, with CUDA's
// message.
[[noreturn]] void hostcuda_assert_fail(const char* assertion, const char* file, unsigned line,
                                       const char* function) noexcept {
  Block* const block = running_block();
  if (block == nullptr) {
    std::fprintf(stderr, "%s:%u: %s: Assertion `%s' failed.\n", file, line, function, assertion);
    std::abort();
  }
  const uint3& thread = block->thread_index();
  std::fprintf(stderr, "%s:%u: %s: block: [%u,%u,%u], thread: [%u,%u,%u] Assertion `%s` failed.\n", file,
               line, block->launch().name, blockIdx.x, blockIdx.y, blockIdx.z, thread.x, thread.y, thread.z,
               assertion);
  block->leave(cudaErrorAssert);
}

cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,
                             cudaStream_t stream) {
  return plain::launch_at("cudaLaunchKernel", kernel, grid, block, arguments, shared_bytes, stream, false);
}

// All blocks must be there at once: as many as the multiprocessors hold.
cudaError_t cudaLaunchCooperativeKernel(const void* kernel, dim3 grid, dim3 block, void** arguments,
                                        size_t shared_bytes, cudaStream_t stream) {
  int processors = 0;
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, this_thread().device);
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  const uint64_t blocks = uint64_t{grid.x} * grid.y * grid.z;
  if (threads >= 1 && threads <= 1024) {
    const int blocks_each = plain::resident_blocks(static_cast<int>(threads), shared_bytes);
    if (blocks > static_cast<uint64_t>(processors) * static_cast<uint64_t>(blocks_each))
      return device_call([] { return cudaErrorCooperativeLaunchTooLarge; });
  }
  return plain::launch_at("cudaLaunchCooperativeKernel", kernel, grid, block, arguments, shared_bytes, stream,
                          true);
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  return device_call([&] {
    plain::Kernel* const found = plain::describe(kernel);
    if (found == nullptr) return cudaErrorInvalidDeviceFunction;
    cudaDeviceProp properties{};
    cudaGetDeviceProperties(&properties, this_thread().device);
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) return cudaSuccess;
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
        static_cast<size_t>(value) > properties.sharedMemPerBlockOptin)
      return cudaErrorInvalidValue;
    found->max_dynamic_shared_bytes = value;
    return cudaSuccess;
  });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  return device_call([&] {
    const plain::Kernel* const found = plain::describe(kernel);
    if (attributes == nullptr) return cudaErrorInvalidValue;
    if (found == nullptr) return cudaErrorInvalidDeviceFunction;
    *attributes = {};
    attributes->maxThreadsPerBlock = 1024;
    attributes->numRegs = 32;
    attributes->ptxVersion = attributes->binaryVersion = 80;
    attributes->maxDynamicSharedSizeBytes = found->max_dynamic_shared_bytes;
    return cudaSuccess;
  });
}

cudaError_t cudaFuncSetCacheConfig(const void* kernel, cudaFuncCache) {
  return device_call([&] { return plain::find(kernel) ? cudaSuccess : cudaErrorInvalidDeviceFunction; });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int block_size,
                                                          size_t shared_bytes) {
  return device_call([&] {
    if (blocks == nullptr || block_size < 1) return cudaErrorInvalidValue;
    if (plain::find(kernel) == nullptr) return cudaErrorInvalidDeviceFunction;
    *blocks = block_size > 1024 ? 0 : plain::resident_blocks(block_size, shared_bytes);
    return cudaSuccess;
  });
}

}  // extern "C"

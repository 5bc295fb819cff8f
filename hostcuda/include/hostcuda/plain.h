// What an ordinary CUDA program is made of once `translate` has rewritten it
// (hostcuda/translate/translate.h): launches with `<<<>>>`, kernels as host functions, dynamic shared memory.
// Programs that are written for hostcuda do not need it.
#pragma once

#include <cuda_runtime.h>
#include <hostcuda/launch.h>

#include <cstddef>
#include <functional>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>

namespace hostcuda::plain {

// What a kernel is to the runtime, beside its code.
struct Kernel {
  std::string name;
  int max_dynamic_shared_bytes = 48 << 10;  // cudaFuncSetAttribute raises it
};

// What the next call of a kernel, as a host function, is to do.
struct Configuration {
  enum class Purpose { launch, describe };
  Purpose purpose = Purpose::launch;
  LaunchSite site{};
  dim3 grid, block;
  size_t shared_bytes = 0;
  cudaStream_t stream = nullptr;
  bool cooperative = false;
};

void configure(const Configuration& configuration);

// kernel<<<grid, block, shared_bytes, stream>>>: the configuration of the call that follows.
inline void configure(const LaunchSite& site, dim3 grid, dim3 block, size_t shared_bytes = 0,
                      cudaStream_t stream = nullptr) {
  configure(Configuration{Configuration::Purpose::launch, site, grid, block, shared_bytes, stream, false});
}

// The kernel's name with its template arguments, from the type of its body, which is within it.
std::string name_of_kernel(const std::type_info& body, const char* plain_name);

// Enqueues `thread` as configured. Sets the last error, as <<<>>> does.
void launch(Kernel& kernel, std::function<void()> thread);

// Whether the call is only to tell which kernel it is of; it is then noted.
bool describes(Kernel& kernel);

// The body of a kernel: run once for each thread, each with its own copy of the parameters.
template <typename Body>
void kernel_body(const char* name, Body body) {
  static Kernel kernel{name_of_kernel(typeid(Body), name)};
  if (describes(kernel)) return;
  launch(kernel, [body] {
    Body own = body;
    own();
  });
}

// A kernel whose parameters are known by their addresses alone, as in cudaLaunchKernel.
using Call = std::function<void(void** arguments)>;
void list(const void* address, const Call& call);
const Call* find(const void* address);

template <typename... Parameters>
const void* kernel_address(void (*kernel)(Parameters...)) {
  const void* const address = reinterpret_cast<const void*>(kernel);
  if (find(address) == nullptr)
    list(address, [kernel](void** arguments) {
      [&]<size_t... i>(std::index_sequence<i...>) {
        kernel(*static_cast<std::remove_cvref_t<Parameters>*>(arguments[i])...);
      }(std::index_sequence_for<Parameters...>());
    });
  return address;
}

struct ListedKernel {
  template <typename... Parameters>
  explicit ListedKernel(void (*kernel)(Parameters...)) {
    kernel_address(kernel);
  }
};

// Which kernel it is that has this address; null for none on the list. Calls it with parameters of no value,
// which it only passes on.
Kernel* describe(const void* address);

// extern __shared__ T name[], where it is declared: converts to its first element's address.
template <typename T>
class DynamicShared {
 public:
  T* data() const { return static_cast<T*>(const_cast<void*>(dynamic_shared_memory())); }
  operator T*() const { return data(); }
};

}  // namespace hostcuda::plain

template <typename... Parameters>
cudaError_t cudaLaunchKernel(void (*kernel)(Parameters...), dim3 grid, dim3 block, void** arguments,
                             size_t shared_bytes = 0, cudaStream_t stream = nullptr) {
  return cudaLaunchKernel(hostcuda::plain::kernel_address(kernel), grid, block, arguments, shared_bytes,
                          stream);
}

template <typename... Parameters>
cudaError_t cudaLaunchCooperativeKernel(void (*kernel)(Parameters...), dim3 grid, dim3 block,
                                        void** arguments, size_t shared_bytes = 0,
                                        cudaStream_t stream = nullptr) {
  return cudaLaunchCooperativeKernel(hostcuda::plain::kernel_address(kernel), grid, block, arguments,
                                     shared_bytes, stream);
}

template <typename... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), cudaFuncAttribute attribute, int value) {
  return cudaFuncSetAttribute(hostcuda::plain::kernel_address(kernel), attribute, value);
}

template <typename... Parameters>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, void (*kernel)(Parameters...)) {
  return cudaFuncGetAttributes(attributes, hostcuda::plain::kernel_address(kernel));
}

template <typename... Parameters>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void (*kernel)(Parameters...),
                                                          int block_size, size_t shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, hostcuda::plain::kernel_address(kernel),
                                                       block_size, shared_bytes);
}

template <typename... Parameters>
cudaError_t cudaFuncSetCacheConfig(void (*kernel)(Parameters...), cudaFuncCache preference) {
  return cudaFuncSetCacheConfig(hostcuda::plain::kernel_address(kernel), preference);
}

// The largest block fills a multiprocessor as well as any other; `shared_bytes_of` gives the dynamic shared
// memory of a block by its size.
template <typename Kernel, typename SharedBytes>
cudaError_t cudaOccupancyMaxPotentialBlockSizeVariableSMem(int* grid, int* block, Kernel kernel,
                                                           SharedBytes shared_bytes_of, int limit = 0) {
  int device = 0, processors = 0, resident = 0;
  cudaGetDevice(&device);
  cudaError_t error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  for (*block = limit > 0 && limit < 1024 ? limit : 1024; error == cudaSuccess; *block -= 32) {
    if (*block < 1) *block = 1;
    error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, *block,
                                                          static_cast<size_t>(shared_bytes_of(*block)));
    if (resident > 0 || *block == 1) break;
  }
  *grid = processors * resident;
  return error;
}

template <typename Kernel>
cudaError_t cudaOccupancyMaxPotentialBlockSize(int* grid, int* block, Kernel kernel, size_t shared_bytes = 0,
                                               int limit = 0) {
  return cudaOccupancyMaxPotentialBlockSizeVariableSMem(
      grid, block, kernel, [shared_bytes](int) { return shared_bytes; }, limit);
}

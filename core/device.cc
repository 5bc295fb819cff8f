#include "core/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <mutex>

#include "core/handle.h"
#include "core/no_device.h"
#include "core/pool.h"
#include "core/stream.h"
#include "kernels/check.h"

namespace lockstep {

struct Device::State {
  State(int logical, int ordinal)
      : index(logical), physical(ordinal), pool(ordinal, fmt::format("device {}", logical), stream.get()) {
    cublasHandle_t blas = nullptr;
    LOCKSTEP_CUBLAS(cublasCreate(&blas));
    cublas = Handle<cublasHandle_t, cublasDestroy>(blas);
    LOCKSTEP_CUBLAS(cublasSetStream(blas, stream.get()));
    cudnnHandle_t dnn = nullptr;
    LOCKSTEP_CUDNN(cudnnCreate(&dnn));
    cudnn = Handle<cudnnHandle_t, cudnnDestroy>(dnn);
    LOCKSTEP_CUDNN(cudnnSetStream(dnn, stream.get()));
    math = {kernels::Math::library, blas, dnn, stream.get()};
    use_precision(kernels::Precision::fp32);
    void* memory = nullptr;
    LOCKSTEP_CUDA(cudaMalloc(&memory, sizeof(kernels::LabelFault)));
    label_fault = Handle<void*, cudaFree>(memory);
    LOCKSTEP_CUDA(cudaMalloc(&memory, kernels::kTickets * sizeof(unsigned)));
    tickets = Handle<void*, cudaFree>(memory);
    LOCKSTEP_CUDA(cudaMemset(memory, 0, kernels::kTickets * sizeof(unsigned)));
    math.tickets = static_cast<unsigned*>(memory);
    forget_label_fault();
  }

  void forget_label_fault() {
    LOCKSTEP_CUDA(cudaMemset(label_fault.get(), 0xff, sizeof(kernels::LabelFault)));
    LOCKSTEP_CUDA(cudaStreamSynchronize(nullptr));  // the compute stream does not wait for this one
  }

  // float32 means float32: no TF32 unless someone asks for it. For bfloat16 operands too, sums stay float32.
  void use_precision(kernels::Precision precision) {
    math.precision = precision;
    LOCKSTEP_CUBLAS(cublasSetMathMode(math.cublas, precision == kernels::Precision::fp32
                                                       ? CUBLAS_PEDANTIC_MATH
                                                   : precision == kernels::Precision::tf32
                                                       ? CUBLAS_TF32_TENSOR_OP_MATH
                                                       : CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION));
  }

  int index;
  int physical;
  Stream stream;
  MemoryPool pool;
  Handle<cublasHandle_t, cublasDestroy> cublas;
  Handle<cudnnHandle_t, cudnnDestroy> cudnn;
  kernels::MathContext math;
  Handle<void*, cudaFree> label_fault;
  Handle<void*, cudaFree> tickets;
};

namespace {
std::atomic<int> devices_made = 0;
}  // namespace

int Device::index() const {
  return state_->index;
}
int Device::physical() const {
  return state_->physical;
}
cudaStream_t Device::stream() const {
  return state_->stream.get();
}
void Device::wait(const Event& event) const {
  state_->stream.wait(event);
}
MemoryPool& Device::pool() const {
  return state_->pool;
}
const kernels::MathContext& Device::math() const {
  return state_->math;
}
void Device::use_math(kernels::Math math) const {
  state_->math.math = math;
}
void Device::use_precision(kernels::Precision precision) const {
  const DeviceGuard guard(*this);
  state_->use_precision(precision);
}
void Device::synchronize() const {
  state_->stream.synchronize();
}

kernels::LabelFault* Device::label_fault() const {
  return static_cast<kernels::LabelFault*>(state_->label_fault.get());
}

unsigned* Device::tickets() const {
  return static_cast<unsigned*>(state_->tickets.get());
}

void Device::check_labels() const {
  const DeviceGuard guard(*this);
  kernels::LabelFault fault{};
  LOCKSTEP_CUDA(cudaMemcpy(&fault, label_fault(), sizeof fault, cudaMemcpyDeviceToHost));
  if (fault.first == ~0ULL) return;
  state_->forget_label_fault();
  throw Error(
      fmt::format("label {} in row {} of a batch on device {}: the model has {} outputs: labels must be 0 to "
                  "{}: mend the labels, or give the model an output for every class",
                  static_cast<int32_t>(fault.first & 0xffffffffU), fault.first >> 32, index(), fault.classes,
                  fault.classes - 1));
}

void check_labels() {
  if (const int count = devices_made; count > 0)
    for (const Device& device : make_devices(count)) device.check_labels();
}

std::string why_no_device(cudaError_t status, int driver_version, int runtime_version) {
  if (status == cudaErrorInsufficientDriver && driver_version != 0)
    return fmt::format(
        "the GPU's driver is too old: it supports CUDA {}.{}, this program was built with {}.{}: update the "
        "driver, or build with that CUDA or with --backend host",
        driver_version / 1000, driver_version % 1000 / 10, runtime_version / 1000,
        runtime_version % 1000 / 10);
  return "found no GPU: check nvidia-smi, or build with --backend host";
}

int physical_device_count() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver) {
    (void)cudaGetLastError();
    int driver = 0, runtime = 0;
    LOCKSTEP_CUDA(cudaDriverGetVersion(&driver));
    LOCKSTEP_CUDA(cudaRuntimeGetVersion(&runtime));
    throw Error(why_no_device(status, driver, runtime));
  }
  if (status == cudaErrorInitializationError) throw Error(cudaGetErrorString(status));  // says what to set
  if (status != cudaSuccess) detail::throw_cuda(status, "cudaGetDeviceCount(&count)", __FILE__, __LINE__);
  return count;
}

std::vector<Device> make_devices(int count) {
  // Never destroyed: tensors with static lifetime may outlive any order of destruction that one could choose.
  static auto& states = *new std::array<std::unique_ptr<Device::State>, kMaxDevices>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);

  if (count < 1) throw Error(fmt::format("asked for {} devices: use at least 1", count));
  if (count > kMaxDevices)
    throw Error(fmt::format("asked for {} devices, at most {} can be made: use fewer", count, kMaxDevices));
  const int physical = physical_device_count();
  std::vector<Device> devices;
  for (int i = 0; i < count; ++i) {
    const PhysicalDeviceGuard guard(i % physical);
    auto& state = states[static_cast<size_t>(i)];
    if (!state) state = std::make_unique<Device::State>(i, i % physical);
    devices.push_back(Device(state.get()));
  }
  devices_made = std::max(devices_made.load(), count);
  return devices;
}

std::string device_summary(const std::vector<Device>& devices) {
  const int physical = physical_device_count();
  cudaDeviceProp properties{};
  LOCKSTEP_CUDA(cudaGetDeviceProperties(&properties, devices.front().physical()));
  const size_t asked = devices.size();
  const size_t used = std::min(asked, static_cast<size_t>(physical));
  if (asked <= used) return fmt::format("{} device{}: {}", asked, asked == 1 ? "" : "s", properties.name);
  return fmt::format("{} logical devices that share {} physical one{}:\n  {}", asked, used,
                     used == 1 ? "" : "s", properties.name);
}

PhysicalDeviceGuard::PhysicalDeviceGuard(int physical) {
  LOCKSTEP_CUDA(cudaGetDevice(&before_));
  if (before_ != physical) LOCKSTEP_CUDA(cudaSetDevice(physical));
}

PhysicalDeviceGuard::~PhysicalDeviceGuard() {
  (void)cudaSetDevice(before_);
}

}  // namespace lockstep

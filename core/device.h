// Logical devices. A program asks for k of them; where there are fewer physical ones, several share one, each
// with a stream, a memory pool and library handles of its own. Everything about k devices can so be seen on
// one GPU, and on none.
#pragma once

#include <cuda_runtime.h>

#include <string>
#include <vector>

#include "kernels/label_fault.h"
#include "kernels/math_context.h"
#include "kernels/scratch.h"

namespace lockstep {

class Event;
class MemoryPool;

// A value that names a logical device; copies name the same one. Made by make_devices.
class Device {
 public:
  int index() const;     // 0, 1, ...: what users count
  int physical() const;  // CUDA's ordinal: index modulo the number of physical devices
  // The compute stream: every tensor operation on this device is enqueued here.
  cudaStream_t stream() const;
  // As Stream::wait, for the compute stream.
  void wait(const Event& event) const;
  MemoryPool& pool() const;
  // cuBLAS and cuDNN handles, bound to stream(), and who does the heavy matrix work.
  const kernels::MathContext& math() const;
  void use_math(kernels::Math math) const;
  // fp32 at the start. Not while an operation is being made on this device by another thread.
  void use_precision(kernels::Precision precision) const;
  // Blocks the host until the compute stream is idle.
  void synchronize() const;
  // For the sums of kernels on stream(): see kernels::SumScratch.
  unsigned* tickets() const;
  // Where kernels note a label that is no class; device memory.
  kernels::LabelFault* label_fault() const;
  // Throws where they did since the last time, naming label, row and classes. For a host that waits already:
  // what is still enqueued is not waited for.
  void check_labels() const;

  friend bool operator==(const Device&, const Device&) = default;

 private:
  friend std::vector<Device> make_devices(int count);
  struct State;
  explicit Device(State* state) : state_(state) {}
  State* state_;
};

inline constexpr int kMaxDevices = 64;

// Logical devices 0 .. count-1; the same ones at every call. Throws for count < 1 or above kMaxDevices, and
// where there is no physical device.
std::vector<Device> make_devices(int count);

// Device::check_labels for every device that was made.
void check_labels();

int physical_device_count();

// For people: "1 device: NVIDIA H200"; where several share one, what they share is a line of its own.
std::string device_summary(const std::vector<Device>& devices);

// Makes a physical device current, and the one before it again at the end of the scope.
class PhysicalDeviceGuard {
 public:
  explicit PhysicalDeviceGuard(int physical);
  ~PhysicalDeviceGuard();
  PhysicalDeviceGuard(const PhysicalDeviceGuard&) = delete;
  PhysicalDeviceGuard& operator=(const PhysicalDeviceGuard&) = delete;

 private:
  int before_ = 0;
};

// The same for the physical device behind a logical one.
class DeviceGuard : public PhysicalDeviceGuard {
 public:
  explicit DeviceGuard(const Device& device) : PhysicalDeviceGuard(device.physical()) {}
};

}  // namespace lockstep

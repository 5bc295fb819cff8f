#include "core/device.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>
#include <string>

#include "core/no_device.h"
#include "core/stream.h"
#include "kernels/check.h"

namespace lockstep {
namespace {

TEST(Devices, AreMadeInAnyNumberOverThePhysicalOnes) {
  const int physical = physical_device_count();
  const std::vector<Device> devices = make_devices(5);
  std::set<cudaStream_t> streams;
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(devices[static_cast<size_t>(i)].index(), i);
    EXPECT_EQ(devices[static_cast<size_t>(i)].physical(), i % physical);
    streams.insert(devices[static_cast<size_t>(i)].stream());
  }
  EXPECT_EQ(streams.size(), 5u) << "every logical device has a stream of its own";
}

TEST(Devices, AreTheSameOnesAtEveryCall) {
  EXPECT_EQ(make_devices(2)[1], make_devices(3)[1]);
}

TEST(Devices, RefuseNumbersThatCannotBeMade) {
  for (const int count : {0, -1, kMaxDevices + 1}) {
    try {
      make_devices(count);
      ADD_FAILURE() << count << " devices were made";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(std::to_string(count)), std::string::npos) << error.what();
    }
  }
}

TEST(Devices, AreMissingForAReasonThatIsNamed) {
  EXPECT_EQ(why_no_device(cudaErrorNoDevice, 13000, 13000),
            "found no GPU: check nvidia-smi, or build with --backend host");
  // Where there is no driver at all, CUDA calls it insufficient.
  EXPECT_EQ(why_no_device(cudaErrorInsufficientDriver, 0, 13000),
            "found no GPU: check nvidia-smi, or build with --backend host");
  EXPECT_EQ(
      why_no_device(cudaErrorInsufficientDriver, 12020, 13000),
      "the GPU's driver is too old: it supports CUDA 12.2, this program was built with 13.0: update the "
      "driver, or build with that CUDA or with --backend host");
}

TEST(Devices, SummaryNamesTheirNumberAndTheHardware) {
  const int sharing = physical_device_count() + 1;
  std::istringstream summary(device_summary(make_devices(sharing)));
  std::string first, second, third;
  std::getline(summary, first);
  std::getline(summary, second);
  EXPECT_EQ(first.rfind(fmt::format("{} logical devices that share ", sharing), 0), 0U) << first;
  EXPECT_EQ(second.rfind("  ", 0), 0U) << second;
  EXPECT_GT(second.size(), 2U);
  EXPECT_FALSE(std::getline(summary, third)) << third;
  EXPECT_EQ(device_summary(make_devices(1)).rfind("1 device: ", 0), 0U) << device_summary(make_devices(1));
  EXPECT_EQ(device_summary(make_devices(1)).find('\n'), std::string::npos);
}

TEST(DeviceGuard, RestoresTheDeviceThatWasCurrent) {
  int before = -1, inside = -1, after = -1;
  LOCKSTEP_CUDA(cudaGetDevice(&before));
  {
    const DeviceGuard guard(make_devices(2)[1]);
    LOCKSTEP_CUDA(cudaGetDevice(&inside));
  }
  LOCKSTEP_CUDA(cudaGetDevice(&after));
  EXPECT_EQ(inside, make_devices(2)[1].physical());
  EXPECT_EQ(after, before);
}

TEST(Check, NamesTheStatementTheErrorAndThePlace) {
  try {
    LOCKSTEP_CUDA(cudaSetDevice(12345));
    FAIL() << "device 12345 was set";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("cudaSetDevice(12345)"), std::string::npos) << text;
    EXPECT_NE(text.find("cudaErrorInvalidDevice"), std::string::npos) << text;
    EXPECT_NE(text.find("device_test.cc"), std::string::npos) << text;
    EXPECT_NE(text.find("device 0"), std::string::npos) << text;
  }
  (void)cudaGetLastError();
}

TEST(Event, MeasuresTimeBetweenTwoPoints) {
  const Stream stream;
  const Event start(Event::Timing::on), end(Event::Timing::on);
  start.record(stream.get());
  end.record(stream.get());
  end.synchronize();
  EXPECT_GE(end.milliseconds_since(start), 0.0f);
}

}  // namespace
}  // namespace lockstep

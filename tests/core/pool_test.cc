#include "core/pool.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "core/device.h"
#include "core/stream.h"
#include "core/tensor.h"
#include "kernels/check.h"
#include "tests/error_of.h"

namespace lockstep {
namespace {

TEST(MemoryPool, HandsABlockOutAgainForTheSameSize) {
  MemoryPool pool(0, "device 0", nullptr);
  void* first = pool.allocate(1000);
  pool.release(first);
  EXPECT_EQ(pool.allocate(1000), first);
  pool.release(first);
}

TEST(MemoryPool, NeverHandsOneBlockToTwo) {
  MemoryPool pool(0, "device 0", nullptr);
  void* first = pool.allocate(1000);
  void* second = pool.allocate(1000);
  EXPECT_NE(first, second);
  pool.release(first);
  pool.release(second);
}

TEST(MemoryPool, CountsInUsePeakAndReserved) {
  MemoryPool pool(0, "device 0", nullptr);
  void* a = pool.allocate(512);
  void* b = pool.allocate(1024);
  pool.release(a);
  EXPECT_EQ(pool.statistics().in_use, 1024u);
  EXPECT_EQ(pool.statistics().peak, 1536u);
  EXPECT_EQ(pool.statistics().reserved, 1536u);
  pool.release(b);
  EXPECT_EQ(pool.statistics().in_use, 0u);
}

TEST(MemoryPool, GivesNoMemoryForNoBytes) {
  MemoryPool pool(0, "device 0", nullptr);
  EXPECT_EQ(pool.allocate(0), nullptr);
  pool.release(nullptr);
  EXPECT_EQ(pool.statistics().reserved, 0u);
}

TEST(MemoryPool, SaysWhatWasAskedForAndWhatIsFreeWhenMemoryRunsOut) {
  MemoryPool pool(0, "device 7", nullptr);
  const size_t absurd = size_t{1} << 50;
  try {
    pool.allocate(absurd);
    FAIL() << "a petabyte was handed out";
  } catch (const OutOfMemory& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("device 7"), std::string::npos) << text;
    EXPECT_NE(text.find(std::to_string(absurd)), std::string::npos) << text;
    EXPECT_NE(text.find("free"), std::string::npos) << text;
  }
  // The failure is not left behind as the runtime's last error.
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST(MemoryPool, KeepsBlocksReleasedWhileCapturingOutOfUse) {
  MemoryPool pool(0, "device 0", nullptr);
  void* before = pool.allocate(4096);
  pool.release(before);
  pool.begin_capture();
  void* captured = pool.allocate(4096);
  EXPECT_EQ(captured, before) << "the cache serves a capture too";
  pool.release(captured);
  EXPECT_EQ(pool.allocate(4096), captured) << "within the capture the block is free again";
  pool.release(captured);
  const std::vector<void*> kept = pool.end_capture();
  EXPECT_EQ(kept, std::vector<void*>{captured});
  void* outside = pool.allocate(4096);
  EXPECT_NE(outside, captured) << "the captured graph still uses that block";
  pool.give_back(kept);
  EXPECT_EQ(pool.allocate(4096), captured);
  pool.release(captured);
  pool.release(outside);
}

// An environment variable for the length of a scope.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Environment() { unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
};

TEST(MemoryPool, ThatIsSwitchedOffRoundsNothingAndKeepsNothing) {
  const Environment off("LOCKSTEP_POOL", "0");
  const Stream stream;
  MemoryPool pool(0, "device 0", stream.get());
  void* first = pool.allocate(1000);
  EXPECT_EQ(pool.statistics().in_use, 1000U);
  EXPECT_EQ(pool.statistics().reserved, 1000U);
  LOCKSTEP_CUDA(cudaMemsetAsync(first, 1, 1000, stream.get()));
  pool.release(first);
  EXPECT_EQ(pool.statistics().in_use, 0U);
  EXPECT_EQ(pool.statistics().reserved, 0U);
  stream.synchronize();
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST(MemoryPool, ThatIsSwitchedOffKeepsWhatACapturedGraphUses) {
  const Environment off("LOCKSTEP_POOL", "0");
  MemoryPool pool(0, "device 0", nullptr);
  pool.begin_capture();
  void* block = pool.allocate(100);
  pool.release(block);
  const std::vector<void*> kept = pool.end_capture();
  EXPECT_EQ(kept, std::vector<void*>{block});
  EXPECT_EQ(pool.statistics().reserved, 100U);
  pool.give_back(kept);
  EXPECT_EQ(pool.statistics().reserved, 0U);
  LOCKSTEP_CUDA(cudaDeviceSynchronize());
}

TEST(MemoryPool, SaysWhatItsVariableMayBe) {
  const Environment wrong("LOCKSTEP_POOL", "off");
  EXPECT_EQ(error_of([] { MemoryPool(0, "device 0", nullptr); }),
            "LOCKSTEP_POOL is 'off': use 1 (memory is kept for the next tensor) or 0");
}

TEST(MemoryPool, TensorsReturnTheirMemory) {
  const Device device = make_devices(1)[0];
  const size_t before = device.pool().statistics().in_use;
  {
    const Tensor tensor = Tensor::empty({100, 10}, device);
    const Tensor view = tensor.slice(0, 1);
    EXPECT_GE(device.pool().statistics().in_use, before + 4000);
  }
  EXPECT_EQ(device.pool().statistics().in_use, before);
}

}  // namespace
}  // namespace lockstep

// The model's terms one by one, on a GPU of round figures: what is expected is computed by hand.
#include <gtest/gtest.h>

#include "hostcuda/src/forecast/model.h"

namespace {

using namespace hostcuda;
using namespace hostcuda::forecast;

// 10 multiprocessors at 1 GHz; 100 GB/s, which a copy reaches 92 % of.
Gpu round_gpu() {
  Gpu gpu;
  gpu.name = "round";
  gpu.multiprocessors = 10;
  gpu.warps_per_multiprocessor = 64;
  gpu.blocks_per_multiprocessor = 16;
  gpu.shared_kilobytes = 64;
  gpu.registers = 65536;
  gpu.issues_per_clock = 4;
  gpu.clock_ghz = 1;
  gpu.memory_gb = 1;
  gpu.dram_gb_s = 100;
  gpu.l2_gb_s = 400;
  gpu.l2_mb = 2;
  gpu.fp32_tflops = 1;
  gpu.tf32_tflops = 2;
  gpu.bf16_tflops = 4;
  gpu.shared_latency_clocks = 20;
  gpu.l2_latency_clocks = 200;
  gpu.dram_latency_clocks = 500;
  gpu.partial_write = 2;
  gpu.launch_host_us = 2;
  gpu.launch_device_us = 1;
  gpu.pinned_gb_s = 10;
  gpu.pageable_gb_s = 5;
  gpu.peer_gb_s = 20;
  return gpu;
}

KernelCounts copy_of(double bytes) {
  KernelCounts counts;
  counts.blocks = 1000;
  counts.warps_per_block = 8;
  counts.read_bytes = counts.written_bytes = bytes;
  counts.l2_bytes = 2 * bytes;
  counts.global_sectors = 2 * bytes / 32;
  counts.global_requests = counts.global_sectors / 4;
  counts.global_chain = 2;
  return counts;
}

TEST(ForecastModel, DividesBytesByWhatACopyReachesOfTheBandwidth) {
  EXPECT_DOUBLE_EQ(terms_of(copy_of(46e6), round_gpu()).dram, 92e6 / 92e9);
}

TEST(ForecastModel, TakesFromTheL2WhatFitsInHalfOfIt) {
  EXPECT_DOUBLE_EQ(terms_of(copy_of(0.5e6), round_gpu()).dram, 1e6 / 400e9);
  EXPECT_DOUBLE_EQ(terms_of(copy_of(0.6e6), round_gpu()).dram, 1.2e6 / 92e9);
}

TEST(ForecastModel, PaysForSectorsThatAreWrittenInPart) {
  KernelCounts counts = copy_of(46e6);
  counts.partial_sectors = 1e6;
  EXPECT_DOUBLE_EQ(terms_of(counts, round_gpu()).dram, (92e6 + 2 * 32e6) / 92e9);
}

// One block of one warp: two requests of 128 bytes under way at once, each for 500 clocks of 1 ns.
TEST(ForecastModel, NeedsBytesInFlight) {
  KernelCounts counts = copy_of(46e6);
  counts.blocks = counts.warps_per_block = 1;
  EXPECT_NEAR(terms_of(counts, round_gpu()).few_warps, 92e6 / (2 * 128) * 500e-9, 1e-12);
  EXPECT_EQ(estimate(counts, round_gpu()).bound, Bound::few_warps);
}

TEST(ForecastModel, HoldsAsManyBlocksAsItsScarcestResourceAllows) {
  KernelCounts counts;
  counts.warps_per_block = 8;
  EXPECT_EQ(resident_blocks(counts, round_gpu()), 8);  // 64 warps
  counts.warps_per_block = 1;
  EXPECT_EQ(resident_blocks(counts, round_gpu()), 16);  // 16 blocks
  counts.shared_bytes = 20 * 1024;
  EXPECT_EQ(resident_blocks(counts, round_gpu()), 3);  // 64 kB
  counts.warps_per_block = 8;
  counts.registers = 128;
  EXPECT_EQ(resident_blocks(counts, round_gpu()), 2);  // 65536 / (128 * 256)
}

// 11 blocks on 10 multiprocessors: one of them runs two.
TEST(ForecastModel, WaitsForTheBusiestMultiprocessor) {
  KernelCounts counts;
  counts.blocks = 11;
  counts.shared_passes = 11000;
  EXPECT_DOUBLE_EQ(terms_of(counts, round_gpu()).shared, 2000e-9);
  counts.global_sectors = 1100;
  EXPECT_DOUBLE_EQ(terms_of(counts, round_gpu()).l1, 2200e-9);
}

// A sum over 400 numbers by one thread that finds them in the L1: 100 waits of 1.4 * 20 clocks.
TEST(ForecastModel, WaitsForTheChainOfAThread) {
  KernelCounts counts;
  counts.global_requests = counts.global_sectors = 400;
  counts.global_chain = 400;
  EXPECT_NEAR(terms_of(counts, round_gpu()).latency, 100 * 28e-9, 1e-15);
  counts.l2_bytes = 400 * 32;  // each of them from the L2
  EXPECT_NEAR(terms_of(counts, round_gpu()).latency, 100 * 200e-9, 1e-15);
  counts.barriers = 10;
  EXPECT_NEAR(terms_of(counts, round_gpu()).latency, 100 * 200e-9 + 10 * 30e-9, 1e-15);
  counts.blocks = 320;  // 160 run at once
  EXPECT_NEAR(terms_of(counts, round_gpu()).latency, 2 * (100 * 28e-9 + 172e-9 * 100 + 300e-9), 1e-12);
}

TEST(ForecastModel, CountsInstructions) {
  KernelCounts counts;
  counts.blocks = 10;
  counts.operations = 64 * 1000;  // 1000 of a warp
  counts.global_requests = 1000;  // 3 each
  counts.shared_requests = 1000;
  counts.shared_replays = 500;
  counts.narrow_requests = 100;  // 4 each
  counts.barriers = 5;           // 4 each, of 10 warps
  const double instructions = 1000 + 3000 + 1000 + 500 + 400 + 200;
  EXPECT_NEAR(terms_of(counts, round_gpu()).issue, instructions / 10 / (4 * 0.6) * 1e-9, 1e-15);
}

TEST(ForecastModel, AnEmptyKernelTakesALaunch) {
  const Estimate empty = estimate(KernelCounts{}, round_gpu());
  EXPECT_DOUBLE_EQ(empty.seconds, 1e-6);
  EXPECT_EQ(empty.bound, Bound::launch);
}

TEST(ForecastModel, FillsTheGpuWithTilesOfAProduct) {
  Operation product;
  product.kind = Operation::Kind::product;
  product.rows = product.columns = 1280;  // 100 tiles of 128 x 128 on 10 multiprocessors
  product.depth = 1000;
  product.bytes = 1;
  const double operations = 2.0 * 1280 * 1280 * 1000;
  EXPECT_NEAR(estimate(product, round_gpu()).seconds, 1e-6 + operations / (0.6 * 1e12), 1e-9);
  product.arithmetics = Arithmetics::bf16;
  EXPECT_NEAR(estimate(product, round_gpu()).seconds, 1e-6 + operations / (0.7 * 4e12), 1e-9);
  product.kind = Operation::Kind::convolution;
  EXPECT_NEAR(estimate(product, round_gpu()).seconds, 1e-6 + operations / (0.75 * 0.7 * 4e12), 1e-9);
  // One tile, too flat to be cut: a tenth of the GPU, or 4 tiles of 64 at 0.6, or 10 of 16 of 32 at 0.35 * 8
  // / 10.
  product.kind = Operation::Kind::product;
  product.arithmetics = Arithmetics::fp32;
  product.rows = product.columns = 128;
  product.depth = 100;
  EXPECT_NEAR(estimate(product, round_gpu()).seconds, 1e-6 + 2 * 128 * 128 * 100 / (0.6e12 * 0.35 * 0.8),
              1e-9);
}

TEST(ForecastModel, TakesTheLinkOfACopy) {
  Operation copy;
  copy.kind = Operation::Kind::copy;
  copy.bytes = 1e9;
  copy.link = Link::pinned;
  EXPECT_DOUBLE_EQ(estimate(copy, round_gpu()).seconds, 1e-6 + 0.1);
  EXPECT_EQ(estimate(copy, round_gpu()).bound, Bound::link);
  copy.link = Link::pageable;
  EXPECT_DOUBLE_EQ(estimate(copy, round_gpu()).seconds, 1e-6 + 0.2);
  EXPECT_DOUBLE_EQ(host_seconds(copy, round_gpu()), 4e-6 + 0.2);  // the host copies it to a stage
  copy.link = Link::peer;
  EXPECT_DOUBLE_EQ(estimate(copy, round_gpu()).seconds, 1e-6 + 0.05);
  copy.link = Link::device;
  EXPECT_DOUBLE_EQ(estimate(copy, round_gpu()).seconds, 1e-6 + 2e9 / 92e9);
}

TEST(ForecastModel, CountsTheHostsCalls) {
  Operation operation;
  operation.kind = Operation::Kind::kernel;
  EXPECT_DOUBLE_EQ(host_seconds(operation, round_gpu()), 2e-6);
  operation.kind = Operation::Kind::product;
  EXPECT_DOUBLE_EQ(host_seconds(operation, round_gpu()), 4e-6);
  operation.kind = Operation::Kind::convolution;
  EXPECT_DOUBLE_EQ(host_seconds(operation, round_gpu()), 8e-6);
}

TEST(ForecastModel, EveryBuiltInGpuIsAWholeFile) {
  for (const std::string& name : known_gpus()) {
    const Gpu gpu = find_gpu(name);
    EXPECT_EQ(parse_gpu(name, gpu_to_json(gpu)).name, gpu.name);
  }
}

}  // namespace

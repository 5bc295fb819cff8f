// The oracle of --check-allreduce: what a right allreduce gives passes, and one wrong bit in one rank is
// named.
#include "parallel/collective/oracle.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "kernels/check.h"
#include "kernels/float_types.h"
#include "parallel/collective/allreduce.h"

namespace lockstep::collective {
namespace {

std::vector<Tensor> random_data(int ranks, int64_t count, DType dtype, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 1);
  std::vector<Tensor> data;
  for (const Device& device : make_devices(ranks)) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = normal(random);
    if (dtype == DType::float32) {
      data.push_back(Tensor::from_host(values, {count}, device));
      continue;
    }
    std::vector<__nv_bfloat16> rounded;
    for (const float value : values) rounded.push_back(kernels::from_float<__nv_bfloat16>(value));
    data.push_back(Tensor::from_host(rounded, {count}, device));
  }
  return data;
}

std::string difference(const Oracle& oracle, const std::vector<Tensor>& data) {
  try {
    oracle.compare(data);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Oracle, AgreesWithEveryAlgorithm) {
  const unsigned seed = 11;
  SCOPED_TRACE(fmt::format("seed {}", seed));
  for (const NamedAlgorithm& algorithm : algorithms())
    for (const DType dtype : {DType::float32, DType::bfloat16})
      for (const int ranks : {2, 3, 5}) {
        const std::vector<Tensor> data = random_data(ranks, 1001, dtype, seed);
        const Oracle oracle(algorithm.plan(ranks, 1001), data);
        allreduce(data, algorithm.plan);
        EXPECT_EQ(difference(oracle, data), "") << algorithm.name << ", " << ranks << " ranks";
      }
}

TEST(Oracle, NamesTheFirstElementThatDiffers) {
  const std::vector<Tensor> data{Tensor::from_host<float>({1, 2, 3}, {3}, make_devices(2)[0]),
                                 Tensor::from_host<float>({10, 20, 30}, {3}, make_devices(2)[1])};
  const Oracle oracle(ring(2, 3), data);
  allreduce(data, ring);
  data[1].copy_from(Tensor::from_host<float>({11, 22, 33.000004f}, {3}, make_devices(2)[1]));
  EXPECT_EQ(
      difference(oracle, data),
      "allreduce: rank 1 has 33.000004 in element 2, the plan carried out one transfer after the other gives "
      "33");
}

// Sums in another order, which are as good as those of the plan in all but their bits, are not its sums.
TEST(Oracle, SeesAnotherOrderOfTheSums) {
  const std::vector<Tensor> data = random_data(4, 4000, DType::float32, 3);
  const Oracle oracle(ring(4, 4000), data);
  allreduce(data, star);
  EXPECT_NE(difference(oracle, data), "");
}

}  // namespace
}  // namespace lockstep::collective

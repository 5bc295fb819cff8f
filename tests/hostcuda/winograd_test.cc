// The algorithm that cuDNN reports first for 3x3 convolutions with many channels, against plain loops in
// double. Written against cuDNN's interface: on the CPU it is Winograd's, which rounds more than a plain sum.
#include <cudnn.h>

#include <cstring>

#include "tests/hostcuda/convolution_problem.h"

namespace {

// A shape's operands and one pass of it on the device, by the algorithm that is reported first.
class BestRun {
 public:
  BestRun(const Shape& s, Pass pass, unsigned seed, float beta = 0)
      : shape(s),
        pass_(pass),
        problem_(s),
        generator_(seed),
        x(values(s.x_size())),
        w(values(s.w_size())),
        y(values(s.y_size())) {
    if (beta == 0) result() = nans(result().size());
    deterministic = problem_.take_best();
  }

  std::vector<float> compute(float alpha = 1, float beta = 0) const {
    const size_t bytes = problem_.workspace_bytes(pass_);
    const DeviceArray<char> workspace(std::vector<char>(bytes, '\x7f'));
    const DeviceArray<float> device_x(x), device_w(w), device_y(y);
    LOCKSTEP_CUDNN(problem_.run(pass_, alpha, device_x.get(), device_w.get(), device_y.get(), beta,
                                workspace.get(), bytes));
    return (pass_ == Pass::forward ? device_y : pass_ == Pass::backward_data ? device_x : device_w).host();
  }

  void expect_close_to_plain_loops(float alpha = 1, float beta = 0) {
    SCOPED_TRACE(testing::Message() << shape << ", pass " << static_cast<int>(pass_) << ", alpha " << alpha
                                    << ", beta " << beta);
    const std::vector<Sum> wanted = convolve(shape, pass_, x, w, y, alpha, beta, result());
    const std::vector<float> got = compute(alpha, beta);
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], wanted[i].value,
                  kWinogradTolerance * std::numeric_limits<float>::epsilon() * wanted[i].magnitude)
          << "at element " << i << " of " << got.size();
  }

  bool deterministic;
  const Shape shape;

 private:
  std::vector<float> values(size_t count) { return random_floats(count, generator_); }
  std::vector<float>& result() { return pass_ == Pass::forward ? y : pass_ == Pass::backward_data ? x : w; }

  const Pass pass_;
  Problem problem_;
  std::mt19937 generator_;

 public:
  std::vector<float> x, w, y;
};

TEST(CudnnBestConvolution, AgreesWithPlainLoopsOverSizesBatchesAndPaddings) {
  unsigned seed = 1;
  for (const auto& [height, width] : {std::pair{28, 28}, {14, 14}, {7, 7}, {4, 4}, {5, 9}})
    for (const int batch : {1, 3})
      for (const int padding : {0, 1, 2}) {
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        for (const Pass pass : kPasses)
          BestRun({batch, 16, height, width, 16, 3, 3, padding, 1}, pass, seed).expect_close_to_plain_loops();
        if (HasFatalFailure()) return;
        ++seed;
      }
}

// Channels that fill the vectors and panels of the products, or leave a part of one; more of them than tiles,
// and fewer.
TEST(CudnnBestConvolution, AgreesWithPlainLoopsOverChannels) {
  unsigned seed = 100;
  for (const auto& [in, out] : {std::pair{64, 64}, {16, 48}, {80, 16}, {112, 96}, {16, 144}, {144, 16}})
    for (const int batch : {1, 5})
      for (const Pass pass : kPasses) {
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        BestRun({batch, in, 7, 6, out, 3, 3, 1, 1}, pass, seed).expect_close_to_plain_loops();
        if (HasFatalFailure()) return;
        ++seed;
      }
}

// Many more tiles than channels, and many but fewer: sums that go on over several blocks of tiles.
TEST(CudnnBestConvolution, AgreesWithPlainLoopsOverManyTiles) {
  for (const Pass pass : kPasses) {
    SCOPED_TRACE("seed 150");
    BestRun({10, 16, 28, 26, 16, 3, 3, 1, 1}, pass, 150).expect_close_to_plain_loops();
    BestRun({18, 16, 7, 6, 144, 3, 3, 1, 1}, pass, 150).expect_close_to_plain_loops();
    BestRun({18, 144, 7, 6, 16, 3, 3, 1, 1}, pass, 150).expect_close_to_plain_loops();
  }
}

TEST(CudnnBestConvolution, ScalesByAlphaAndBeta) {
  for (const Pass pass : kPasses)
    for (const int in : {16, 64})  // fewer channels than tiles, and more
      for (const float beta : {0.0f, -0.25f})
        BestRun({2, in, 9, 14, 32, 3, 3, 1, 1}, pass, 200, beta).expect_close_to_plain_loops(0.5f, beta);
}

TEST(CudnnBestConvolution, RepeatsBitForBit) {
  for (const Pass pass : kPasses)
    for (const int size : {4, 28}) {
      const BestRun run({3, 32, size, size, 80, 3, 3, 1, 1}, pass, 300);
      ASSERT_TRUE(run.deterministic);
      const std::vector<float> first = run.compute();
      for (int repeat = 1; repeat < 4; ++repeat) {
        const std::vector<float> got = run.compute();
        ASSERT_EQ(std::memcmp(got.data(), first.data(), got.size() * sizeof(float)), 0)
            << "pass " << static_cast<int>(pass) << ", size " << size << ", repeat " << repeat;
      }
    }
}

}  // namespace

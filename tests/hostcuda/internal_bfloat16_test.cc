// oneDNN's own bfloat16 convolutions, which hostcuda takes only where they are faster than float: here
// wherever the processor has the instructions.
#include <cstddef>
#include <memory>
#include <vector>

#include "hostcuda/src/onednn_convolution.h"
#include "tests/hostcuda/convolution_problem.h"
#include "tests/hostcuda/library_test.h"

namespace {

TEST(InternalBfloat16, OnednnRoundsTheFloatSumOnce) {
  if (!__builtin_cpu_supports("avx512bf16")) GTEST_SKIP() << "needs a processor with AVX-512's bfloat16";
  SCOPED_TRACE("seed 1");
  std::mt19937 generator(1);
  const auto draw = [&](size_t count) { return to_bfloat16(random_floats(count, generator, 0.25f)); };
  // Never destroyed, like all convolutions: a thread remembers them by address.
  static auto& made = *new std::vector<std::unique_ptr<hostcuda::onednn::OnednnConvolution>>;
  for (const Shape& s : {Shape{3, 32, 9, 7, 16, 3, 3, 1, 2}, Shape{2, 64, 6, 6, 64, 1, 1, 0, 2},
                         Shape{16, 16, 16, 16, 16, 3, 3, 1, 1}})
    for (const Pass pass : kPasses) {
      SCOPED_TRACE(testing::Message() << s << ", pass " << static_cast<int>(pass));
      made.push_back(std::make_unique<hostcuda::onednn::OnednnConvolution>(hostcuda::ConvolutionProblem{
          static_cast<hostcuda::Pass>(pass), hostcuda::Arithmetic::bfloat16, hostcuda::Layout::nhwc,
          hostcuda::Layout::nhwc, s.n, s.c, s.h, s.w, s.k, s.kernel_h, s.kernel_w, s.out_h(), s.out_w(),
          s.padding, s.padding, s.stride, s.stride, 1}));
      const auto& convolution = *made.back();
      std::vector<__nv_bfloat16> x = draw(s.x_size()), w = draw(s.w_size()), y = draw(s.y_size());
      const std::vector<Sum> wanted = convolve(s, pass, to_floats(x), to_floats(w), to_floats(y), 1, 0, {});
      std::vector<std::byte> workspace(convolution.workspace_bytes());
      convolution.run(1, {x.data(), w.data(), y.data()}, workspace.data(), 0);
      expect_close(pass == Pass::forward ? y : pass == Pass::backward_data ? x : w, wanted);
    }
}

}  // namespace

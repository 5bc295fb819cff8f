#include "onednn_setup.h"

#include <array>
#include <mutex>

#include "onednn.h"
#include "scheduler.h"

namespace hostcuda::onednn {
namespace {

// One product of every form: all transpositions, and each operand a single column or row.
void multiply() {
  constexpr dnnl_dim_t kSize = 16;
  std::array<float, kSize * kSize> a{}, b{}, c{};
  for (const char transpose_a : {'N', 'T'})
    for (const char transpose_b : {'N', 'T'})
      for (const dnnl_dim_t m : {dnnl_dim_t{1}, kSize})
        for (const dnnl_dim_t n : {dnnl_dim_t{1}, kSize})
          dnnl_sgemm(transpose_a, transpose_b, m, n, kSize, 1.0f, a.data(), kSize, b.data(), kSize, 0.0f,
                     c.data(), kSize);
}

// Any primitive will do to make the cache of primitives.
void reorder() {
  using Memory = dnnl::memory;
  const Memory::dims shape{1, 16, 4, 4};
  Memory from({shape, Memory::data_type::f32, Memory::format_tag::nchw}, cpu());
  Memory to({shape, Memory::data_type::f32, Memory::format_tag::nhwc}, cpu());
  dnnl::stream stream(cpu());
  dnnl::reorder(from, to).execute(stream, from, to);
  stream.wait();
}

}  // namespace

void set_up() {
  static std::once_flag once;
  std::call_once(once, [] {
    const ThreadScope one_thread(1);
    multiply();
    reorder();
    wait_for_work_at_exit();
  });
}

}  // namespace hostcuda::onednn

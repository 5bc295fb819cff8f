// Convolution by cuDNN (legacy API): NHWC, float32 with FMA or TF32, or bfloat16 with sums in float32, and
// only algorithms that cuDNN reports to be deterministic. What cuDNN answers for a shape is asked once a
// device and kept, with the descriptors.
#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <type_traits>

#include "kernels/bias.h"
#include "kernels/check.h"
#include "kernels/conv/conv_paths.h"
#include "kernels/elementwise.h"

namespace lockstep::kernels {
namespace {

// cuDNN's description of a convolution: both activations, the weights, the operation.
class Descriptors {
 public:
  Descriptors(const Conv2dShape& s, cudnnDataType_t type, cudnnMathType_t math) {
    LOCKSTEP_CUDNN(cudnnCreateTensorDescriptor(&input));
    LOCKSTEP_CUDNN(cudnnCreateTensorDescriptor(&output));
    LOCKSTEP_CUDNN(cudnnCreateFilterDescriptor(&filter));
    LOCKSTEP_CUDNN(cudnnCreateConvolutionDescriptor(&convolution));
    LOCKSTEP_CUDNN(cudnnSetTensor4dDescriptor(input, CUDNN_TENSOR_NHWC, type, static_cast<int>(s.batch),
                                              s.in_channels, s.height, s.width));
    LOCKSTEP_CUDNN(cudnnSetTensor4dDescriptor(output, CUDNN_TENSOR_NHWC, type, static_cast<int>(s.batch),
                                              s.out_channels, s.out_height(), s.out_width()));
    LOCKSTEP_CUDNN(cudnnSetFilter4dDescriptor(filter, type, CUDNN_TENSOR_NHWC, s.out_channels, s.in_channels,
                                              s.kernel_height, s.kernel_width));
    LOCKSTEP_CUDNN(cudnnSetConvolution2dDescriptor(convolution, s.padding, s.padding, s.stride, s.stride, 1,
                                                   1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
    LOCKSTEP_CUDNN(cudnnSetConvolutionMathType(convolution, math));
  }
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;
  ~Descriptors() {
    cudnnDestroyConvolutionDescriptor(convolution);
    cudnnDestroyFilterDescriptor(filter);
    cudnnDestroyTensorDescriptor(output);
    cudnnDestroyTensorDescriptor(input);
  }

  cudnnTensorDescriptor_t input = nullptr;
  cudnnTensorDescriptor_t output = nullptr;
  cudnnFilterDescriptor_t filter = nullptr;
  cudnnConvolutionDescriptor_t convolution = nullptr;
};

// An algorithm of one pass, and its workspace; `supported` is false where cuDNN has none.
template <typename Algorithm>
struct Choice {
  bool supported = false;
  Algorithm algorithm{};
  size_t workspace_bytes = 0;
};

constexpr int kMostAnswers = 8;

// The first of cuDNN's answers, best first, that is deterministic and that it gives a workspace size for.
// query(count, answers), called `name`, and workspace(algorithm, bytes) are cuDNN's functions for a pass.
template <typename Answer, typename Query, typename Workspace>
auto choose(const char* name, Query query, Workspace workspace) {
  Choice<decltype(Answer::algo)> choice;
  std::array<Answer, kMostAnswers> answers;
  int count = 0;
  const cudnnStatus_t status = query(&count, answers.data());
  if (status == CUDNN_STATUS_NOT_SUPPORTED) return choice;
  if (status != CUDNN_STATUS_SUCCESS) detail::throw_cudnn(status, name, __FILE__, __LINE__);
  for (int i = 0; i < count && !choice.supported; ++i) {
    const Answer& answer = answers[static_cast<size_t>(i)];
    if (answer.status != CUDNN_STATUS_SUCCESS || answer.determinism != CUDNN_DETERMINISTIC) continue;
    if (workspace(answer.algo, &choice.workspace_bytes) != CUDNN_STATUS_SUCCESS) continue;
    choice.supported = true;
    choice.algorithm = answer.algo;
  }
  return choice;
}

// What is known of a shape on a device: all three passes are asked for together.
struct Plan {
  Plan(cudnnHandle_t handle, const Conv2dShape& shape, cudnnDataType_t type, cudnnMathType_t math)
      : descriptors(shape, type, math) {
    const Descriptors& d = descriptors;
    forward = choose<cudnnConvolutionFwdAlgoPerf_t>(
        "cudnnGetConvolutionForwardAlgorithm_v7",
        [&](int* count, cudnnConvolutionFwdAlgoPerf_t* answers) {
          return cudnnGetConvolutionForwardAlgorithm_v7(handle, d.input, d.filter, d.convolution, d.output,
                                                        kMostAnswers, count, answers);
        },
        [&](cudnnConvolutionFwdAlgo_t algorithm, size_t* bytes) {
          return cudnnGetConvolutionForwardWorkspaceSize(handle, d.input, d.filter, d.convolution, d.output,
                                                         algorithm, bytes);
        });
    backward_data = choose<cudnnConvolutionBwdDataAlgoPerf_t>(
        "cudnnGetConvolutionBackwardDataAlgorithm_v7",
        [&](int* count, cudnnConvolutionBwdDataAlgoPerf_t* answers) {
          return cudnnGetConvolutionBackwardDataAlgorithm_v7(handle, d.filter, d.output, d.convolution,
                                                             d.input, kMostAnswers, count, answers);
        },
        [&](cudnnConvolutionBwdDataAlgo_t algorithm, size_t* bytes) {
          return cudnnGetConvolutionBackwardDataWorkspaceSize(handle, d.filter, d.output, d.convolution,
                                                              d.input, algorithm, bytes);
        });
    backward_filter = choose<cudnnConvolutionBwdFilterAlgoPerf_t>(
        "cudnnGetConvolutionBackwardFilterAlgorithm_v7",
        [&](int* count, cudnnConvolutionBwdFilterAlgoPerf_t* answers) {
          return cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle, d.input, d.output, d.convolution,
                                                               d.filter, kMostAnswers, count, answers);
        },
        [&](cudnnConvolutionBwdFilterAlgo_t algorithm, size_t* bytes) {
          return cudnnGetConvolutionBackwardFilterWorkspaceSize(handle, d.input, d.output, d.convolution,
                                                                d.filter, algorithm, bytes);
        });
  }

  Descriptors descriptors;
  Choice<cudnnConvolutionFwdAlgo_t> forward;
  Choice<cudnnConvolutionBwdDataAlgo_t> backward_data;
  Choice<cudnnConvolutionBwdFilterAlgo_t> backward_filter;
};

template <typename T>
constexpr bool kIsFloat = std::is_same_v<T, float>;

template <typename T>
const Plan& plan(const MathContext& context, const Conv2dShape& s) {
  using Key = std::tuple<int, cudnnDataType_t, cudnnMathType_t, int64_t, std::array<int, 8>>;
  static std::mutex mutex;
  static std::map<Key, std::unique_ptr<Plan>> plans;  // a model has few shapes, and they recur every step
  int device = 0;
  LOCKSTEP_CUDA(cudaGetDevice(&device));
  const cudnnDataType_t type = kIsFloat<T> ? CUDNN_DATA_FLOAT : CUDNN_DATA_BFLOAT16;
  const bool tensor_cores = !kIsFloat<T> || context.precision == Precision::tf32;
  const cudnnMathType_t math = tensor_cores ? CUDNN_TENSOR_OP_MATH : CUDNN_FMA_MATH;
  const Key key{device,
                type,
                math,
                s.batch,
                {s.height, s.width, s.in_channels, s.out_channels, s.kernel_height, s.kernel_width, s.stride,
                 s.padding}};
  const std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<Plan>& known = plans[key];
  if (!known) known = std::make_unique<Plan>(context.cudnn, s, type, math);
  return *known;
}

constexpr float kOne = 1.0f;
constexpr float kZero = 0.0f;

// cuDNN writes the gradient of bfloat16 weights as bfloat16: to the front of the workspace, of which it gets
// the rest.
template <typename T>
size_t filter_offset(const Conv2dShape& shape) {
  if (kIsFloat<T>) return 0;
  return (static_cast<size_t>(shape.weight_size()) * sizeof(T) + 255) / 256 * 256;
}

template <typename T>
bool supports(const MathContext& context, const Conv2dShape& shape, ConvPass pass) {
  const Plan& p = plan<T>(context, shape);
  switch (pass) {
    case ConvPass::forward:
      return p.forward.supported;
    case ConvPass::backward_data:
      return p.backward_data.supported;
    default:
      return p.backward_filter.supported;
  }
}

template <typename T>
size_t workspace_bytes(const MathContext& context, const Conv2dShape& shape, ConvPass pass) {
  const Plan& p = plan<T>(context, shape);
  switch (pass) {
    case ConvPass::forward:
      return p.forward.workspace_bytes;
    case ConvPass::backward_data:
      return p.backward_data.workspace_bytes;
    default:
      return filter_offset<T>(shape) + p.backward_filter.workspace_bytes;
  }
}

template <typename T>
void forward(const MathContext& context, const Conv2dShape& shape, const T* x, const T* w, const float* bias,
             T* y, void* workspace) {
  const Plan& p = plan<T>(context, shape);
  const Descriptors& d = p.descriptors;
  LOCKSTEP_CUDNN(cudnnConvolutionForward(context.cudnn, &kOne, d.input, x, d.filter, w, d.convolution,
                                         p.forward.algorithm, workspace, p.forward.workspace_bytes, &kZero,
                                         d.output, y));
  if (bias)
    bias_add(y, bias, shape.batch * shape.out_height() * shape.out_width(), shape.out_channels,
             context.stream);
}

template <typename T>
void backward_data(const MathContext& context, const Conv2dShape& shape, const T* dy, const T* w, T* dx,
                   void* workspace) {
  const Plan& p = plan<T>(context, shape);
  const Descriptors& d = p.descriptors;
  LOCKSTEP_CUDNN(cudnnConvolutionBackwardData(context.cudnn, &kOne, d.filter, w, d.output, dy, d.convolution,
                                              p.backward_data.algorithm, workspace,
                                              p.backward_data.workspace_bytes, &kZero, d.input, dx));
}

template <typename T>
void backward_filter(const MathContext& context, const Conv2dShape& shape, const T* x, const T* dy, float* dw,
                     void* workspace) {
  const Plan& p = plan<T>(context, shape);
  const Descriptors& d = p.descriptors;
  T* const gradient = kIsFloat<T> ? reinterpret_cast<T*>(dw) : static_cast<T*>(workspace);
  LOCKSTEP_CUDNN(cudnnConvolutionBackwardFilter(
      context.cudnn, &kOne, d.input, x, d.output, dy, d.convolution, p.backward_filter.algorithm,
      static_cast<std::byte*>(workspace) + filter_offset<T>(shape), p.backward_filter.workspace_bytes, &kZero,
      d.filter, gradient));
  if constexpr (!kIsFloat<T>) cast(gradient, dw, shape.weight_size(), context.stream);
}

}  // namespace

template <typename T>
const ConvPath<T>& conv2d_library_path() {
  static const ConvPath<T> path{"cuDNN",    supports<T>,      workspace_bytes<T>,
                                forward<T>, backward_data<T>, backward_filter<T>};
  return path;
}

template const ConvPath<float>& conv2d_library_path();
template const ConvPath<__nv_bfloat16>& conv2d_library_path();

}  // namespace lockstep::kernels

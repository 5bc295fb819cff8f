// Convolution by cuDNN (legacy API): NHWC, float32 with FMA or TF32, or bfloat16 with sums in float32, and
// only algorithms that cuDNN reports to be deterministic. What cuDNN answers for a shape is asked once a
// handle and kept, with the descriptors.
#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "kernels/bias.h"
#include "kernels/check.h"
#include "kernels/conv/conv_paths.h"
#include "kernels/conv/library_choice.h"
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

// What cuDNN has for one pass, once it was asked, and what it said it had and then declined to run.
template <typename Algorithm>
struct PassPlan {
  void decline(Algorithm algorithm) {
    declined.push_back(algorithm);
    choice.reset();
  }
  std::optional<LibraryChoice<Algorithm>> choice;
  std::vector<Algorithm> declined;
};

// What is known of a shape on a device, a pass at a time: a first layer has no backward data, and the bytes
// that one pass wants say nothing about another.
struct Plan {
  Plan(const Conv2dShape& shape, cudnnDataType_t type, cudnnMathType_t math)
      : descriptors(shape, type, math) {}

  const LibraryChoice<cudnnConvolutionFwdAlgo_t>& forward(cudnnHandle_t handle) {
    const Descriptors& d = descriptors;
    if (!forward_.choice)
      forward_.choice = choose_algorithm<cudnnConvolutionFwdAlgoPerf_t>(
          "cudnnGetConvolutionForwardAlgorithm_v7",
          [&](int* count, cudnnConvolutionFwdAlgoPerf_t* answers) {
            return cudnnGetConvolutionForwardAlgorithm_v7(handle, d.input, d.filter, d.convolution, d.output,
                                                          kMostAnswers, count, answers);
          },
          [&](cudnnConvolutionFwdAlgo_t algorithm, size_t* bytes) {
            return cudnnGetConvolutionForwardWorkspaceSize(handle, d.input, d.filter, d.convolution, d.output,
                                                           algorithm, bytes);
          },
          forward_.declined);
    return *forward_.choice;
  }

  const LibraryChoice<cudnnConvolutionBwdDataAlgo_t>& backward_data(cudnnHandle_t handle) {
    const Descriptors& d = descriptors;
    if (!backward_data_.choice)
      backward_data_.choice = choose_algorithm<cudnnConvolutionBwdDataAlgoPerf_t>(
          "cudnnGetConvolutionBackwardDataAlgorithm_v7",
          [&](int* count, cudnnConvolutionBwdDataAlgoPerf_t* answers) {
            return cudnnGetConvolutionBackwardDataAlgorithm_v7(handle, d.filter, d.output, d.convolution,
                                                               d.input, kMostAnswers, count, answers);
          },
          [&](cudnnConvolutionBwdDataAlgo_t algorithm, size_t* bytes) {
            return cudnnGetConvolutionBackwardDataWorkspaceSize(handle, d.filter, d.output, d.convolution,
                                                                d.input, algorithm, bytes);
          },
          backward_data_.declined);
    return *backward_data_.choice;
  }

  const LibraryChoice<cudnnConvolutionBwdFilterAlgo_t>& backward_filter(cudnnHandle_t handle) {
    const Descriptors& d = descriptors;
    if (!backward_filter_.choice)
      backward_filter_.choice = choose_algorithm<cudnnConvolutionBwdFilterAlgoPerf_t>(
          "cudnnGetConvolutionBackwardFilterAlgorithm_v7",
          [&](int* count, cudnnConvolutionBwdFilterAlgoPerf_t* answers) {
            return cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle, d.input, d.output, d.convolution,
                                                                 d.filter, kMostAnswers, count, answers);
          },
          [&](cudnnConvolutionBwdFilterAlgo_t algorithm, size_t* bytes) {
            return cudnnGetConvolutionBackwardFilterWorkspaceSize(handle, d.input, d.output, d.convolution,
                                                                  d.filter, algorithm, bytes);
          },
          backward_filter_.declined);
    return *backward_filter_.choice;
  }

  void decline(cudnnConvolutionFwdAlgo_t algorithm) { forward_.decline(algorithm); }
  void decline(cudnnConvolutionBwdDataAlgo_t algorithm) { backward_data_.decline(algorithm); }
  void decline(cudnnConvolutionBwdFilterAlgo_t algorithm) { backward_filter_.decline(algorithm); }

  Descriptors descriptors;

 private:
  PassPlan<cudnnConvolutionFwdAlgo_t> forward_;
  PassPlan<cudnnConvolutionBwdDataAlgo_t> backward_data_;
  PassPlan<cudnnConvolutionBwdFilterAlgo_t> backward_filter_;
};

struct Plans {
  using Key = std::tuple<int, cudnnHandle_t, cudnnDataType_t, cudnnMathType_t, int64_t, std::array<int, 8>>;
  std::mutex mutex;
  std::map<Key, std::unique_ptr<Plan>> by_key;
};
Plans& plans() {
  static Plans all;
  return all;
}

template <typename T>
constexpr bool kIsFloat = std::is_same_v<T, float>;

// Calls use(plan), which nobody else uses meanwhile. Plans stay: a model has few shapes, and they recur every
// step. Each handle has its own: a pass that is declined on one thread leaves the workspaces of others right.
template <typename T, typename Use>
auto with_plan(const MathContext& context, const Conv2dShape& s, Use use) {
  Plans& all = plans();
  int device = 0;
  LOCKSTEP_CUDA(cudaGetDevice(&device));
  const cudnnDataType_t type = kIsFloat<T> ? CUDNN_DATA_FLOAT : CUDNN_DATA_BFLOAT16;
  const bool tensor_cores = !kIsFloat<T> || context.precision == Precision::tf32;
  const cudnnMathType_t math = tensor_cores ? CUDNN_TENSOR_OP_MATH : CUDNN_FMA_MATH;
  const Plans::Key key{device,
                       context.cudnn,
                       type,
                       math,
                       s.batch,
                       {s.height, s.width, s.in_channels, s.out_channels, s.kernel_height, s.kernel_width,
                        s.stride, s.padding}};
  const std::lock_guard<std::mutex> lock(all.mutex);
  std::unique_ptr<Plan>& known = all.by_key[key];
  if (!known) known = std::make_unique<Plan>(s, type, math);
  return use(*known);
}

// The descriptors, which do not change, and the choice for a pass.
template <typename Algorithm>
struct Planned {
  const Descriptors& descriptors;
  LibraryChoice<Algorithm> choice;
};

template <typename T>
auto planned_forward(const MathContext& context, const Conv2dShape& shape) {
  return with_plan<T>(context, shape, [&](Plan& plan) {
    return Planned<cudnnConvolutionFwdAlgo_t>{plan.descriptors, plan.forward(context.cudnn)};
  });
}
template <typename T>
auto planned_backward_data(const MathContext& context, const Conv2dShape& shape) {
  return with_plan<T>(context, shape, [&](Plan& plan) {
    return Planned<cudnnConvolutionBwdDataAlgo_t>{plan.descriptors, plan.backward_data(context.cudnn)};
  });
}
template <typename T>
auto planned_backward_filter(const MathContext& context, const Conv2dShape& shape) {
  return with_plan<T>(context, shape, [&](Plan& plan) {
    return Planned<cudnnConvolutionBwdFilterAlgo_t>{plan.descriptors, plan.backward_filter(context.cudnn)};
  });
}

// What cuDNN made of running an algorithm.
template <typename T, typename Algorithm>
void check_ran(cudnnStatus_t status, const char* call, const MathContext& context, const Conv2dShape& shape,
               Algorithm algorithm) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  if (!is_not_supported(status)) detail::throw_cudnn(status, call, __FILE__, __LINE__);
  with_plan<T>(context, shape, [&](Plan& plan) { plan.decline(algorithm); });
  throw ConvDeclined(std::string(call) + " declined when it ran: " + cudnnGetErrorString(status));
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
  switch (pass) {
    case ConvPass::forward:
      return planned_forward<T>(context, shape).choice.supported;
    case ConvPass::backward_data:
      return planned_backward_data<T>(context, shape).choice.supported;
    default:
      return planned_backward_filter<T>(context, shape).choice.supported;
  }
}

template <typename T>
size_t workspace_bytes(const MathContext& context, const Conv2dShape& shape, ConvPass pass) {
  switch (pass) {
    case ConvPass::forward:
      return planned_forward<T>(context, shape).choice.workspace_bytes;
    case ConvPass::backward_data:
      return planned_backward_data<T>(context, shape).choice.workspace_bytes;
    default:
      return filter_offset<T>(shape) + planned_backward_filter<T>(context, shape).choice.workspace_bytes;
  }
}

template <typename T>
void forward(const MathContext& context, const Conv2dShape& shape, const T* x, const T* w, const float* bias,
             T* y, void* workspace) {
  const auto [d, choice] = planned_forward<T>(context, shape);
  const cudnnStatus_t status =
      cudnnConvolutionForward(context.cudnn, &kOne, d.input, x, d.filter, w, d.convolution, choice.algorithm,
                              workspace, choice.workspace_bytes, &kZero, d.output, y);
  check_ran<T>(status, "cudnnConvolutionForward", context, shape, choice.algorithm);
  if (bias)
    bias_add(y, bias, shape.batch * shape.out_height() * shape.out_width(), shape.out_channels,
             context.stream);
}

template <typename T>
void backward_data(const MathContext& context, const Conv2dShape& shape, const T* dy, const T* w, T* dx,
                   void* workspace) {
  const auto [d, choice] = planned_backward_data<T>(context, shape);
  const cudnnStatus_t status =
      cudnnConvolutionBackwardData(context.cudnn, &kOne, d.filter, w, d.output, dy, d.convolution,
                                   choice.algorithm, workspace, choice.workspace_bytes, &kZero, d.input, dx);
  check_ran<T>(status, "cudnnConvolutionBackwardData", context, shape, choice.algorithm);
}

template <typename T>
void backward_filter(const MathContext& context, const Conv2dShape& shape, const T* x, const T* dy, float* dw,
                     void* workspace) {
  const auto [d, choice] = planned_backward_filter<T>(context, shape);
  T* const gradient = kIsFloat<T> ? reinterpret_cast<T*>(dw) : static_cast<T*>(workspace);
  const cudnnStatus_t status = cudnnConvolutionBackwardFilter(
      context.cudnn, &kOne, d.input, x, d.output, dy, d.convolution, choice.algorithm,
      static_cast<std::byte*>(workspace) + filter_offset<T>(shape), choice.workspace_bytes, &kZero, d.filter,
      gradient);
  check_ran<T>(status, "cudnnConvolutionBackwardFilter", context, shape, choice.algorithm);
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

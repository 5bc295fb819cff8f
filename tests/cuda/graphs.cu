// Graphs that are built node by node: order by dependencies alone, copies of graphs, and what is refused.
#include <cuda_runtime.h>

#include "check.h"

__global__ void add(int* x, int amount) {
  x[threadIdx.x] += amount;
}
__global__ void scale(int* x, int factor) {
  x[threadIdx.x] *= factor;
}

constexpr int kCount = 64;

void count_up(void* counter) {
  ++*static_cast<int*>(counter);
}

cudaGraphNode_t kernel_node(cudaGraph_t graph, void (*kernel)(int*, int), int* x, int value) {
  void* arguments[] = {&x, &value};
  cudaKernelNodeParams parameters = {};
  parameters.func = reinterpret_cast<void*>(kernel);
  parameters.gridDim = dim3(1);
  parameters.blockDim = dim3(kCount);
  parameters.kernelParams = arguments;
  cudaGraphNode_t node = nullptr;
  CHECK_CUDA(cudaGraphAddKernelNode(&node, graph, nullptr, 0, &parameters));
  return node;
}

cudaError_t add_edges(cudaGraph_t graph, const cudaGraphNode_t* from, const cudaGraphNode_t* to,
                      size_t count) {
#if CUDART_VERSION >= 13000
  return cudaGraphAddDependencies(graph, from, to, nullptr, count);
#else
  return cudaGraphAddDependencies(graph, from, to, count);
#endif
}

int main() {
  int *device = nullptr, *in = nullptr, *out = nullptr, counter = 0;
  CHECK_CUDA(cudaMalloc(&device, kCount * sizeof(int)));
  CHECK_CUDA(cudaMallocHost(&in, kCount * sizeof(int)));
  CHECK_CUDA(cudaMallocHost(&out, kCount * sizeof(int)));
  cudaStream_t stream;
  CHECK_CUDA(cudaStreamCreate(&stream));

  cudaGraph_t graph;
  CHECK_CUDA(cudaGraphCreate(&graph, 0));
  // Added in the opposite order of what the dependencies say: in -> (+ 1) -> (* 10) -> out -> counted.
  cudaHostNodeParams host = {};
  host.fn = count_up;
  host.userData = &counter;
  cudaGraphNode_t counted, copied_out, copied_in;
  CHECK_CUDA(cudaGraphAddHostNode(&counted, graph, nullptr, 0, &host));
  CHECK_CUDA(cudaGraphAddMemcpyNode1D(&copied_out, graph, nullptr, 0, out, device, kCount * sizeof(int),
                                      cudaMemcpyDeviceToHost));
  const cudaGraphNode_t scaled = kernel_node(graph, scale, device, 10),
                        added = kernel_node(graph, add, device, 1);
  cudaMemcpy3DParms copy = {};
  copy.srcPtr = make_cudaPitchedPtr(in, kCount * sizeof(int), kCount, 1);
  copy.dstPtr = make_cudaPitchedPtr(device, kCount * sizeof(int), kCount, 1);
  copy.extent = make_cudaExtent(kCount * sizeof(int), 1, 1);
  copy.kind = cudaMemcpyHostToDevice;
  CHECK_CUDA(cudaGraphAddMemcpyNode(&copied_in, graph, nullptr, 0, &copy));
  const cudaGraphNode_t from[] = {copied_in, added, scaled, copied_out},
                        to[] = {added, scaled, copied_out, counted};
  CHECK_CUDA(add_edges(graph, from, to, 4));
  size_t nodes = 0;
  CHECK_CUDA(cudaGraphGetNodes(graph, nullptr, &nodes));
  CHECK(nodes == 5);

  cudaGraphExec_t exec;
  CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < kCount; ++i) in[i] = i + round;
    CHECK_CUDA(cudaGraphLaunch(exec, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    for (int i = 0; i < kCount; ++i) CHECK(out[i] == (i + round + 1) * 10);
  }
  CHECK(counter == 20);

  // A copy goes on by itself; what is added to the original is in neither it nor what was instantiated.
  cudaGraph_t clone;
  CHECK_CUDA(cudaGraphClone(&clone, graph));
  cudaMemsetParams fill = {};
  fill.dst = device;
  fill.elementSize = sizeof(int);
  fill.width = kCount;
  fill.height = 1;
  cudaGraphNode_t filled;
  const cudaGraphNode_t after[] = {added};
  CHECK_CUDA(cudaGraphAddMemsetNode(&filled, graph, after, 1, &fill));
  const cudaGraphNode_t more_from[] = {filled}, more_to[] = {scaled};
  CHECK_CUDA(add_edges(graph, more_from, more_to, 1));
  cudaGraphExec_t of_clone, of_grown;
  CHECK_CUDA(cudaGraphInstantiate(&of_clone, clone, nullptr, nullptr, 0));
  CHECK_CUDA(cudaGraphInstantiate(&of_grown, graph, 0));
  CHECK_CUDA(cudaGraphDestroy(clone));
  CHECK_CUDA(cudaGraphLaunch(of_clone, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  CHECK(out[3] == (3 + 19 + 1) * 10);
  CHECK_CUDA(cudaGraphLaunch(of_grown, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  CHECK(out[3] == 0);
  CHECK_CUDA(cudaGraphLaunch(exec, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  CHECK(out[3] == (3 + 19 + 1) * 10);

  // Nodes that wait for each other, and one of another graph.
  const cudaGraphNode_t back_from[] = {counted}, back_to[] = {copied_in};
  CHECK_CUDA(add_edges(graph, back_from, back_to, 1));
  cudaGraphExec_t never = nullptr;
  CHECK(cudaGraphInstantiate(&never, graph, 0) == cudaErrorInvalidValue);
  cudaGraph_t other;
  CHECK_CUDA(cudaGraphCreate(&other, 0));
  cudaGraphNode_t empty;
  CHECK(cudaGraphAddEmptyNode(&empty, other, after, 1) == cudaErrorInvalidValue);
  (void)cudaGetLastError();
  CHECK_CUDA(cudaGraphAddEmptyNode(&empty, other, nullptr, 0));
  for (const cudaGraph_t one : {graph, other}) CHECK_CUDA(cudaGraphDestroy(one));
  for (const cudaGraphExec_t one : {exec, of_clone, of_grown}) CHECK_CUDA(cudaGraphExecDestroy(one));
  CHECK_CUDA(cudaStreamDestroy(stream));
  CHECK_CUDA(cudaFree(device));
  CHECK_CUDA(cudaFreeHost(in));
  CHECK_CUDA(cudaFreeHost(out));
  return failures() > 0;
}

# messages_test.sh SOURCE_ROOT BUILD FOLDER: what hostcuda says of programs that it cannot compile, or that fault.
set -euo pipefail
root=$1 build=$2 folder=$3
mkdir -p "$folder"
cd "$folder"
failures=0

# expect STATUS TEXT... : compiles program.cu from the standard input, runs it, and looks for each text in what was said.
expect() {
  local wanted=$1 status=0 text
  shift
  cat >program.cu
  { bash "$root/hostcuda/compile" "$build" program.cu -o program && ./program; } >said 2>&1 || status=$?
  if ((status != wanted)); then echo "status $status, wanted $wanted:"; cat program.cu; head -n 12 said; failures=1; fi
  for text in "$@"; do
    grep -qF -e "$text" said || { echo "not said: $text"; cat program.cu; head -n 12 said; failures=1; }
  done
}

# At compile time: what is not there, by name, with its line.
expect 1 'program.cu:3: `cudaTextureObject_t`: textures' 'through a pointer' <<'END'
#include <cuda_runtime.h>

__global__ void k(cudaTextureObject_t texture, float* x) { x[0] = tex2D<float>(texture, 0, 0); }
int main() {}
END
expect 1 'program.cu:2: `asm`: inline PTX' <<'END'
__global__ void k(int* x) {
  asm("mov.u32 %0, %%laneid;" : "=r"(*x));
}
int main() {}
END
expect 1 '`thrust/device_vector.h`: Thrust' <<'END'
#include <thrust/device_vector.h>
END
expect 1 'cuRAND is not there' <<'END'
#include <curand_kernel.h>
END
# An ordinary mistake keeps its place.
expect 1 'program.cu:2:' 'undeclared_name' <<'END'
__global__ void k(int* x) {
  x[0] = undeclared_name;
}
int main() { k<<<1, 1>>>(0); }
END
# As the program runs.
expect 0 'kernel k was called as a function' 'cudaErrorInvalidDeviceFunction' <<'END'
#include <cuda_runtime.h>
#include <cstdio>
__global__ void k(int* x) {}
int main() {
  k(nullptr);
  puts(cudaGetErrorName(cudaGetLastError()));
}
END
expect 0 'launches kernel child from device code' 'cudaErrorLaunchFailure' <<'END'
#include <cuda_runtime.h>
#include <cstdio>
__global__ void child() {}
__global__ void parent() { child<<<1, 1>>>(); }
int main() {
  parent<<<1, 1>>>();
  puts(cudaGetErrorName(cudaDeviceSynchronize()));
}
END
expect 0 'program.cu:5: below: block: [1,0,0], thread: [2,0,0] Assertion `i < 5` failed.' 'cudaErrorAssert' <<'END'
#include <cassert>
#include <cstdio>
__global__ void below() {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  assert(i < 5);
}
int main() {
  below<<<2, 3>>>();
  puts(cudaGetErrorName(cudaDeviceSynchronize()));
}
END
HOSTCUDA_DEVICES=2 expect 0 'devices 0 and 1 both write a __device__ or __constant__ variable' <<'END'
#include <cuda_runtime.h>
__constant__ int c;
int main() {
  for (int device = 0; device < 2; ++device) {
    cudaSetDevice(device);
    cudaMemcpyToSymbol(c, &device, sizeof device);
  }
}
END
exit $failures

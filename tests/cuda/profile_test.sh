# profile_test.sh SOURCE_ROOT BUILD FOLDER: an ordinary CUDA file, profiled: the line that is slow, and a race with both lines.
set -euo pipefail
root=$1 build=$2 folder=$3
mkdir -p "$folder"
cd "$folder"
cat >program.cu <<'END'
template <int kRows>
__global__ void transpose(const float* in, float* out, int n) {
  const int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  for (int i = 0; i < 32; i += kRows)
    out[x * n + y + i] = in[(y + i) * n + x];
}
__global__ void reverse(float* x) {
  extern __shared__ float tile[];
  tile[threadIdx.x] = x[threadIdx.x];
  x[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}
int main() {
  const int n = 64;
  float *in, *out;
  cudaMalloc(&in, n * n * sizeof(float));
  cudaMalloc(&out, n * n * sizeof(float));
  cudaMemset(in, 0, n * n * sizeof(float));
  transpose<8><<<dim3(n / 32, n / 32), dim3(32, 8)>>>(in, out, n);
  reverse<<<1, 64, 64 * sizeof(float)>>>(in);
  return cudaDeviceSynchronize();
}
END
bash "$root/hostcuda/compile" "$build" --profile program.cu -o program
HOSTCUDA_PROFILE=profile.json HOSTCUDA_PROFILE_TABLE=1 ./program >said 2>&1
status=0
for text in 'transpose<8>' 'program.cu:5 *store *[0-9]* *32.0' 'program.cu:5 *load *[0-9]* *4.0' \
  'dynamic shared memory + .*program.cu:9 writes' '__syncthreads() between lines 9 and 10'; do
  tr '\n' ' ' <said | tr -s ' ' | grep -q -e "$text" || { echo "not said: $text"; status=1; }
done
grep -q '"sectors_per_request"' profile.json || { echo "no JSON"; status=1; }
((status == 0)) || cat said
exit $status

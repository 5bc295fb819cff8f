#!/usr/bin/env bash
# ./lab on machines that are played to it: which build it takes, which test programs it builds for ctest's arguments,
# what it says of progress and programs. cmake, ninja, ctest and nvcc are scripts that write down how they were called.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
tree=$scratch/tree
mkdir -p "$tree"/{apps,tests/core,tests/parallel} "$scratch"/{bin,cuda/bin,cuda/include,cuda/lib64}
export CALLS=$scratch/calls BUILD=$tree/build
# The GPU and the system's folders are played, too.
sed -e "s|^gpus=.*|gpus=('$scratch/gpu')|" -e "s| /usr/local /usr)| '$scratch/usr')|" "$root/lab" >"$tree/lab"
cp "$root/CMakePresets.json" "$tree"
touch -d '2020-01-01' "$tree/CMakePresets.json"
chmod +x "$tree/lab"
printf '// Trains a network of my own.\nint main() {}\n' >"$tree/apps/train_mine.cc"
printf 'TEST(Tensor, Copies) {}\n' >"$tree/tests/core/tensor_test.cc"
printf 'TEST_P(Plan, IsChecked) {}\nTEST(Ring, Sums) {}  // {"bidirectional"}\n' >"$tree/tests/parallel/plan_test.cc"

script() { # script FILE LINE...: an executable that runs the lines
  printf '%s\n' '#!/bin/bash' "${@:2}" >"$1"
  chmod +x "$1"
}
# shellcheck disable=SC2016  # for the scripts
{
  script "$scratch/bin/apt-get" 'exit 1'
  script "$scratch/bin/dpkg-query" 'printf "installed %s\n" "${@:3}"'
  script "$scratch/bin/cmake" 'echo "cmake $*" >>"$CALLS"' 'while [[ $1 != --preset ]]; do shift; done' \
    'mkdir -p "$BUILD/$2/tests"; touch "$BUILD/$2/build.ninja" "$BUILD/$2/tests/test_"{core,parallel,peer,kernels}"[1]_include.cmake"'
  script "$scratch/bin/ninja" 'echo "ninja ${*:3}" >>"$CALLS"' 'echo "[1/120] Building CXX object a.o"'
  script "$scratch/bin/ctest" '[[ $* == *--show-only* ]] && { cat "$BUILD/listed"; exit; }' 'echo "ctest ${*:3}" >>"$CALLS"'
  script "$scratch/cuda/bin/nvcc" ''
}
lab() { # lab STATUS ARGUMENT...: leaves what it printed in $scratch/out, and how it called others in $scratch/calls
  local status=0
  : >"$CALLS"
  PATH=$scratch/bin:$PATH "$tree/lab" "${@:2}" >"$scratch/out" 2>&1 || status=$?
  sed -zi 's/ \n/ /g' "$scratch/out" # lines that lab folded
  ((status == $1)) || { echo "lab ${*:2}: status $status, wanted $1:"; cat "$scratch/out"; exit 1; }
}
fault() { echo "$*; it printed:"; cat "$scratch/out"; echo "and called:"; cat "$CALLS"; exit 1; }
says() { grep -qE -e "$1" "$scratch/out" || fault "wanted it to say '$1'"; }
silent_about() { ! grep -qE -e "$1" "$scratch/out" || fault "wanted nothing of '$1'"; }
called() { grep -qE -e "$1" "$CALLS" || fault "wanted the call '$1'"; }

# Help: every program with what it is for, in 80 columns.
lab 0 help
says '^  train_mine +Trains a network of my own\.$'
! grep -E '.{81}' "$scratch/out" || fault "these lines are longer than 80"

# Which build. With a GPU and nvcc, what is missing of the libraries decides.
export PATH=$scratch/cuda/bin:$PATH
lab 0 configure
called '--preset host'
silent_about 'taking the host build'
touch "$scratch/gpu"
lab 0 configure -D A=B
called '--preset host -D A=B'
says "not cuBLAS's header cublas_v2.h, cuDNN's header cudnn.h, cuDNN's library libcudnn.so: taking the host build"
touch "$scratch/cuda/include/cublas_v2.h" "$scratch/cuda/include/cudnn.h"
lab 0 build
says "not cuDNN's library libcudnn.so: taking the host build"
lab 0 --backend host build
silent_about 'taking the host build'
lab 1 --backend cuda build
says "^lab: --backend cuda needs cuDNN's library libcudnn.so: install"
[[ ! -s $CALLS ]] || fault "it went on"
lab 0 --backend cuda configure -D CUDNN_LIBRARY=/there
called '--preset cuda .*-D CUDNN_LIBRARY=/there'
echo 'CUDNN_LIBRARY:FILEPATH=/there' >"$BUILD/cuda/CMakeCache.txt"
lab 0 build
says 'building for cuda'
rm -r "$BUILD/cuda"
touch "$scratch/cuda/lib64/libcudnn.so.9"
lab 0 build
called '--preset cuda .*-DCMAKE_CUDA_ARCHITECTURES=native'
rm "$scratch/gpu"

# Progress, also where no person looks on.
lab 0 build
says 'building for host; the first time it takes some minutes'

# Tests: all, or what these arguments need.
listing() { # listing COMMAND...: what ctest would list
  local command
  for command; do printf '      "command" :\n      [\n        "%s",\n' "$command"; done >"$BUILD/listed"
  printf '"%s/host/tests/test_core[1]_tests.cmake"\n' "$BUILD" >>"$BUILD/listed"
}
builds() { # builds TARGETS: that and nothing else; - for nothing
  local got
  got=$(sed -n 's/^ninja //p' "$CALLS")
  [[ ${got:--} == "$1" ]] || fault "wanted the build of '$1', got '${got:--}'"
}
program=$BUILD/host/tests/test_
listing
lab 0 test
builds all
called '^ctest .*-j'
lab 0 test -R Plan # nothing is built yet: by the sources
builds test_parallel
lab 0 test -R '^Tensor\.Copies$'
builds test_core
lab 0 test -R bidirectional
builds test_parallel
lab 0 test -R NowhereInTheSources
builds all
lab 0 test -L grad
builds 'test_core test_kernels test_parallel test_peer'
touch "$program"{core,parallel,kernels,peer}
lab 0 test -R NowhereInTheSources # all are built, and ctest has none
builds -
listing "${program}core" "PROGRAM=${program}parallel" /usr/bin/env "$BUILD/host/tests/build" # the last one is a folder
lab 0 test -L whatever
builds 'test_core test_parallel'
called '^ctest .*-L whatever$'
listing "$tree/tests/build/check_layers_test.sh"
lab 0 test -R Layers
builds -
touch -d '2030-01-01' "$tree/tests/parallel/plan_test.cc" # a test was added since
lab 0 test -R Ring
builds test_parallel

# Under sanitizers.
listing
lab 0 test --sanitizer tsan
called '--preset tsan'
builds 'test_hostcuda test_core test_parallel test_checked'
called '^ctest .*-LE slow -E'
listing "$BUILD/asan/tests/test_nn" "$BUILD/asan/tests/test_labs"
lab 0 --sanitizer asan test -R Labs
builds test_nn
called '--preset asan'
listing "$BUILD/asan/tests/test_labs"
touch "$BUILD"/asan/tests/test_{core,parallel,kernels,peer}
lab 2 test --sanitizer asan -R Labs
says 'asan runs none of these tests'
lab 2 test --sanitizer msan
says "is 'msan': use asan or tsan"
lab 2 --backend cuda test --sanitizer asan
lab 2 train_mine --sanitizer asan

# Profiles: a build of its own, the program's arguments, and what cannot be profiled.
lab 2 profile
says 'profile needs the name of a program'
lab 2 profile train_nothing
says "there is no program 'train_nothing' to profile"
lab 2 profile --blocks few train_mine
says "--blocks is 'few': use a number"
lab 2 profile --epochs 1 train_mine
says "profile does not know '--epochs'"
mkdir -p "$BUILD/profile/apps"
# shellcheck disable=SC2016
script "$BUILD/profile/apps/train_mine" 'echo "ran $* with $HOSTCUDA_PROFILE_BLOCKS blocks of $HOSTCUDA_PROFILE_GPU"' \
  'if [[ $1 == --kernels ]]; then echo {} >"$HOSTCUDA_PROFILE"; fi'
lab 0 profile --json "$scratch/profile.json" --blocks 4 --gpu t4 train_mine --kernels --blocks 9
called '--preset profile'
builds train_mine
says '^ran --kernels --blocks 9 with 4 blocks of t4'
[[ -s $scratch/profile.json ]] || fault "there is no profile"
lab 0 profile train_mine --kernels
says 'with 32 blocks of h200'
lab 1 profile train_mine
says 'train_mine launched no kernel'

# Ordinary CUDA files: what goes to the compiler and what to the program.
lab 2 cuda
says 'cuda needs a file'
lab 1 cuda "$scratch/nowhere.cu"
says 'cannot read .*nowhere.cu'
mkdir "$tree/hostcuda"
touch "$scratch/mine.cu"
lab 2 cuda "$scratch/mine.cu" 1000
says '1000 is no CUDA or C\+\+ source: what the program is to get goes behind --'
lab 2 cuda "$scratch/mine.cu" -o
says '[-]o needs a value'
# shellcheck disable=SC2016  # the program that is made: says what it got, and launches a kernel if asked
compiler='echo "compile $*" >>"$CALLS"; program=${*: -1}; mkdir -p "$(dirname "$program")"
printf "#!/bin/bash\necho ran \$*\nif [[ \$1 == --kernels ]]; then echo {} >\$HOSTCUDA_PROFILE; fi\n" >"$program"; chmod +x "$program"'
script "$tree/hostcuda/compile" "$compiler"
lab 0 cuda "$scratch/mine.cu" -I include -D A=B -lm -- --size 5
builds 'hostcuda hostcuda_translate'
called "^compile $BUILD/host -I include -D A=B -lm $scratch/mine.cu -o $BUILD/host/cuda_files/mine$"
says '^ran --size 5$'
lab 0 cuda "$scratch/mine.cu" -o "$scratch/kept" -- --size 5
silent_about '^ran'
[[ -x $scratch/kept ]] || fault "-o left no program"
lab 0 cuda --profile --blocks 3 "$scratch/mine.cu" -- --kernels
called "^compile $BUILD/host --profile $scratch/mine.cu"
says '^ran --kernels$'
lab 1 cuda --profile "$scratch/mine.cu"
says 'mine launched no kernel'
script "$scratch/cuda/bin/nvcc" "${compiler/compile/nvcc}"
touch "$scratch/gpu"
lab 0 cuda "$scratch/mine.cu" -- 7
called "^nvcc -std=c\+\+17 .*$scratch/mine.cu -o"
says '^ran 7$'
lab 2 cuda --profile "$scratch/mine.cu"
says '[-]-profile is for the host build'
lab 0 --backend host cuda "$scratch/mine.cu"
called '^compile '
rm "$scratch/gpu"

# Forecasts: the same build, for any program or benchmark.
# shellcheck disable=SC2016
script "$BUILD/profile/apps/train_mine" 'echo "ran $* for $HOSTCUDA_FORECAST to <$HOSTCUDA_FORECAST_JSON> with $HOSTCUDA_PROFILE_BLOCKS blocks"'
lab 0 train_mine --forecast h200 --epochs 1 --data-dir there
builds train_mine
says '^ran --epochs 1 --data-dir there for h200 to <> with 8 blocks'
lab 0 train_mine --data-dir there --forecast=mine.json --forecast-json out.json
says '^ran --data-dir there for mine.json to <out.json>'
lab 2 train_mine --forecast
says '[-]-forecast needs a value'
lab 2 train_mine --forecast-json out.json
says '[-]-forecast-json needs --forecast'
lab 2 test --forecast h200
says '[-]-forecast is for programs and benchmarks'
echo "all of lab's cases are as they should be"

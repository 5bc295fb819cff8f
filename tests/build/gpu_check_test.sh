#!/usr/bin/env bash
# tools/gpu_check, tried without a GPU: it refuses where there is none, and where a machine is played to it, it
# counts what the test programs say and fails for a failed test, a crash and a program that ran nothing.
# shellcheck disable=SC2016  # the lines in single quotes are for the scripts that play programs
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export GPU_CHECK_PROGRAMS=$scratch/programs
mkdir -p "$scratch/bin" "$scratch/programs/tests" "$scratch/programs/apps"

script() { # script FILE LINE...: an executable that runs the lines
  printf '%s\n' '#!/bin/bash' "${@:2}" >"$1"
  chmod +x "$1"
}
check() { # check STATUS PATTERN
  local status=0
  PATH=$scratch/bin:$PATH "$root/tools/gpu_check" "$scratch/report.txt" >"$scratch/out" 2>&1 || status=$?
  [[ $status == "$1" ]] && grep -qE "$2" "$scratch/out" && return
  echo "wanted status $1 and /$2/, got status $status and:"
  cat "$scratch/out"
  exit 1
}

touch "$scratch/programs/tests/test_kernels[1]_include.cmake" # CMake leaves such files beside the programs
check 2 'no programs in'
script "$scratch/programs/tests/test_kernels" 'echo "[  PASSED  ] 7 tests."; echo "[  SKIPPED ] 2 tests, listed below:"'
script "$scratch/bin/nvidia-smi" 'echo "No devices were found"; exit 6'
check 2 'no GPU here'
script "$scratch/bin/nvidia-smi" 'echo "A Fine GPU, 580.00, 9.0, 80000 MiB"'
script "$scratch/bin/compute-sanitizer" 'exec "${@: -2:1}"'
check 0 '21 passed, 0 failed, 6 skipped'
cmp "$scratch/out" "$scratch/report.txt"
grep -q 'A Fine GPU' "$scratch/report.txt"

script "$scratch/bin/compute-sanitizer" '"${@: -2:1}"; [[ $* == *none ]] || exit 9' # it found something
check 1 '21 passed, 2 failed'
script "$scratch/bin/compute-sanitizer" 'echo "Device not supported"'
check 0 'absent.*memcheck.*not supported'
script "$scratch/programs/tests/test_core" 'echo "[  PASSED  ] 3 tests."; echo "[  FAILED  ] 1 test, listed below:"; exit 1'
check 1 '10 passed, 1 failed, 2 skipped'
script "$scratch/programs/tests/test_core" 'kill -SEGV $$'
check 1 '7 passed, 1 failed'
script "$scratch/programs/tests/test_core" 'echo "[  PASSED  ] 0 tests."'
check 1 '7 passed, 1 failed'

# A failure is tried again in a process for each suite, so that one sticky error fails its own suite alone.
sticky='case $* in
  *list_tests*) printf "A.\n  x\nB.\n  y\nC.  # TypeParam = float\n  z\n" ;;
  *=B.*) [[ $b_passes ]] || { echo "[  PASSED  ] 0 tests."; echo "[  FAILED  ] 1 test, listed below:"; exit 1; } ;&
  *=C.*) echo "[  PASSED  ] 1 test." ;;
  *) echo "[       OK ] A.x (0 ms)"; echo "[----------] 1 test from A (0 ms total)"; sticky_end ;;
esac'
script "$scratch/programs/tests/test_core" 'sticky_end() {' 'echo "[  FAILED  ] B.y (1 ms)"; echo "[  FAILED  ] C.z (0 ms)"' \
  'echo "[  PASSED  ] 1 test."; echo "[  FAILED  ] 2 tests, listed below:"; exit 1; }' "$sticky"
check 1 '9 passed, 1 failed, 2 skipped'
grep -q 'passed .*test_core: C ' "$scratch/out"
script "$scratch/programs/tests/test_core" 'sticky_end() { kill -SEGV $$; }' "$sticky"
check 1 '9 passed, 1 failed, 2 skipped'
script "$scratch/programs/tests/test_core" b_passes=1 'sticky_end() { kill -SEGV $$; }' "$sticky" # no suite fails alone
check 1 'FAILED .*only as a whole'
rm "$scratch/programs/tests/test_core"

# Libraries and driver must fit what the programs are built for.
script "$scratch/bin/ldd" 'echo " libcublas.so.13 => not found"'
check 2 'libcublas.so.13; Python packages that have them: nvidia-cublas nvidia-cudnn-cu13'
script "$scratch/bin/ldd" 'echo " libcublas.so.13 => /usr/lib/libcublas.so.13 (0x1)"'
script "$scratch/bin/nvidia-smi" 'echo "A Fine GPU, 535.104.05, 9.0, 80000 MiB"'
check 2 'driver 535.104.05 is too old.* CUDA 13, which needs driver 580 or later'
script "$scratch/bin/nvidia-smi" 'echo "A Fine GPU, 580.00, 9.0, 80000 MiB"'
check 0 'absent'
rm "$scratch/bin/ldd"

# Training: the file named after --json gets the same sum twice, then another one.
trainer='while [[ $1 != --json ]]; do shift; done; echo "{\"images_per_second\": 9.5, \"weights_sha256\": \"$sum\"}" >$2'
script "$scratch/programs/apps/train_lenet" 'sum=abc' "$trainer"
check 0 'passed .*train_lenet.*images_per_second: 9.5'
grep -q 'forecast: none was made' "$scratch/out"
mkdir "$scratch/programs/forecast"
printf '%s\n' '{' ' "gpu": {' '  "name": "H200"' ' },' ' "items": 256,' ' "seconds": 0.02' '}' >"$scratch/programs/forecast/train_lenet.json"
check 0 'forecast for H200: 20.000 ms a step; measured 26947.368 ms, 1347.37 times that'
script "$scratch/programs/apps/train_lenet" 'sum=$RANDOM$RANDOM$RANDOM' "$trainer"
check 1 'different weights'
echo "all machines played"

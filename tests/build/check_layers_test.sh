#!/usr/bin/env bash
# Our own tree keeps the layers, and each kind of violation, planted into a copy, is found at its line.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

"$root/tools/check_layers" || { echo "the layers are not kept (above)"; exit 1; }

planted=0
plant() { # plant FILE LINE EXPECTED
  rm -rf "${scratch:?}"/*
  mkdir -p "$scratch/$(dirname "$1")"
  printf '#pragma once\n%s\n' "$2" >"$scratch/$1"
  local found
  if found=$("$root/tools/check_layers" "$scratch"); then
    echo "not found: $2 in $1"; exit 1
  fi
  [[ $found == "$1:2: $3"* ]] || { echo "for $2 in $1: got '$found', wanted '$1:2: $3'"; exit 1; }
  planted=$((planted + 1))
}
plant core/a.h '#include "nn/module.h"' 'points up from core'
plant kernels/a.cuh '#include "core/tensor.h"' 'points up from kernels'
plant nn/data/a.cc '  #  include "parallel/trainer.h"' 'points up from nn'
plant hostcuda/src/a.cc '#include "kernels/check.h"' 'points up from hostcuda'
plant hostcuda/src/runtime/a.cc '#include "hostcuda/src/kernels/block.h"' 'points up from hostcuda/src/runtime'
plant hostcuda/src/libraries/a.cc '#include "hostcuda/src/kernels/block.h"' 'points aside from hostcuda/src/libraries'
plant hostcuda/src/runtime/a.cc '#include "share.h"' 'is not written from the root'
plant parallel/collective/a.cc '#include "nn/module.h"' 'points up from parallel/collective'
plant parallel/collective/a.cc '#include "parallel/trainer.h"' 'points up from parallel/collective'
plant apps/a.cc '#include "labs/article/d2l.h"' 'points up from apps'
plant labs/article/a.cc '#include "hostcuda/src/runtime/share.h"' 'knows hostcuda'
plant parallel/a.cc '#include "plan.h"' 'is not written from the root'
plant core/a.cu '#include <hostcuda/launch.h>' 'knows hostcuda'
plant kernels/a.cu '#ifdef __CUDACC__' 'asks for the backend'
plant apps/a.cc '#if defined(LOCKSTEP_BACKEND_HOST)' 'asks for the backend'
echo "$planted planted violations found"

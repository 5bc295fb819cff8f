#!/usr/bin/env bash
# Installs the build into a scratch folder, then configures, builds and (on the host backend) runs a program
# that knows the installed tree only.
set -euo pipefail
build=$1 backend=$2
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/outside" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

cmake --install "$build" --prefix "$scratch/installed" >"$scratch/log"
cmake -G Ninja -S "$source" -B "$scratch/outside" -DCMAKE_PREFIX_PATH="$scratch/installed" \
  -DCMAKE_BUILD_TYPE=Release
cmake --build "$scratch/outside"
[[ $backend == host ]] || exit 0
output=$(HOSTCUDA_DEVICES=2 "$scratch/outside/outside")
echo "$output"
[[ $output == *$'\n'3 ]] || { echo "wanted the last line to be the copied element, 3"; exit 1; }

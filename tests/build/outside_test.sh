#!/usr/bin/env bash
# Builds a project outside the repository against Lockstep and, on the host backend, runs it: what it prints last must
# begin with the number that is right.
#   outside_test.sh BUILD BACKEND readme          README's project, as it stands there, against the installed package
#   outside_test.sh BUILD BACKEND own_core        one with a core/ of its own, against the installed package
#   outside_test.sh BUILD BACKEND subdirectory    both in one project, with Lockstep as a subdirectory
set -euo pipefail
build=$1 backend=$2 project=$3
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
fail() { echo "$*"; exit 1; }

block() { # block LANGUAGE: README's
  awk -v begin="\`\`\`$1" '/^## /{here = /^## In a project of your own/} /^```$/{on = 0} on; here && $0 == begin{on = 1}' "$root/README.md"
}
right() { # right PROGRAM BEGINNING
  [[ $backend == host ]] || return 0
  local output
  output=$(HOSTCUDA_DEVICES=2 "$work/build/$1")
  echo "$output"
  [[ ${output##*$'\n'} == "$2"* ]] || fail "wanted the last line to begin with '$2'"
}

if [[ $project == subdirectory ]]; then
  work=$build/tests/build/subdirectory # kept: the library is built a second time there
else
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  cmake --install "$build" --prefix "$work/installed" >"$work.log" && rm "$work.log"
fi
mkdir -p "$work/project"
cp -r "$here/own_core/." "$work/project"
block cpp >"$work/project/mine.cc"
cmakelists=$work/project/CMakeLists.txt
options=(-DCMAKE_PREFIX_PATH="$work/installed")
case $project in
  readme) block cmake >"$cmakelists" ;;
  subdirectory)
    # What the library alone does not need may be missing. Optimised code is not the subject.
    options=(-DLOCKSTEP_BACKEND="$backend" -DCMAKE_CXX_FLAGS_RELEASE=-O0)
    for package in GTest CLI11 PNG benchmark; do options+=("-DCMAKE_DISABLE_FIND_PACKAGE_$package=ON"); done
    mkdir -p "$work/project/third_party"
    ln -sfn "$root" "$work/project/third_party/lockstep"
    sed -i 's|^find_package(lockstep REQUIRED)|add_subdirectory(third_party/lockstep)|' "$cmakelists"
    block cmake | grep -E '\(mine ' | grep -v '^project' >>"$cmakelists"
    ;;
esac
cmake -G Ninja -S "$work/project" -B "$work/build" "${options[@]}"
ninja -C "$work/build"

[[ $project == readme ]] || right own_core 42
[[ $project == own_core ]] || right mine '44426 parameters, loss 0.0'
if [[ $project == subdirectory ]]; then
  # Files of Lockstep's that were built beside the objects: the two libraries, and no program.
  built=$(ninja -C "$work/build" -t targets all | sed -nE 's/^(third_party\/.*): C(XX|UDA)_[A-Z_]*LINKER.*/\1/p' | sort | tr '\n' ' ')
  wanted='third_party/lockstep/hostcuda/libhostcuda.a third_party/lockstep/liblockstep.a '
  [[ $backend == host ]] || wanted='third_party/lockstep/liblockstep.a '
  [[ $built == "$wanted" ]] || fail "Lockstep brought $built, wanted $wanted"
  ! grep -E '^(CMAKE_CXX_STANDARD|BUILD_TESTING|CMAKE_CXX_COMPILER_LAUNCHER)' "$work/build/CMakeCache.txt" ||
    fail "these were set for the whole project"
fi

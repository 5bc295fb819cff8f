#!/usr/bin/env bash
# Configuring: compilers that cannot build Lockstep are refused by name and version; -DBUILD_TESTING=OFF wants no
# GoogleTest; warnings are errors where asked alone. The compilers are g++ that says it is another one.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() { echo "$*:"; cat "$scratch/log"; exit 1; }

compiler() { # compiler NAME FLAG...: g++ with these flags
  printf '#!/bin/bash\nexec g++ %s "$@"\n' "${*:2}" >"$scratch/$1"
  chmod +x "$scratch/$1"
}
configure() { # configure STATUS OPTION...
  local status=0
  rm -rf "$scratch/build"
  cmake -G Ninja -S "$root" -B "$scratch/build" "${@:2}" >"$scratch/log" 2>&1 || status=1
  ((status == $1)) || fail "cmake ${*:2}: status $status, wanted $1"
}
refused() { # refused NAME WORDS
  configure 1 -DCMAKE_CXX_COMPILER="$scratch/$1"
  tr -s ' \n' ' ' <"$scratch/log" | grep "The compiler is $2.*use g++ 12 or later" >/dev/null || fail "wanted it to say 'The compiler is $2'"
}
compiler old -U__GNUC__ -D__GNUC__=11
refused old 'GNU 11\.'
compiler clang -D__clang__=1 -D__clang_major__=19 -D__clang_minor__=1 -D__clang_patchlevel__=7
refused clang 'Clang 19\.1\.7'

configure 0 -DBUILD_TESTING=OFF -DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON
! grep -q 'Werror' "$scratch/build/build.ninja" || fail "warnings are errors, and nobody asked"
! grep -q 'test_core' "$scratch/build/build.ninja" || fail "there are tests, with BUILD_TESTING=OFF"
configure 0 -DBUILD_TESTING=OFF -DCMAKE_COMPILE_WARNING_AS_ERROR=ON
grep -q 'Werror' "$scratch/build/build.ninja" || fail "warnings are no errors, as was asked"
echo "2 compilers refused, 2 builds configured"

#!/usr/bin/env bash
# Follows docs/your_own_model.md to the letter in a copy of the repository: saves its two files, then types its
# commands, and some of those that were there before.
#   own_model_test.sh BUILD: the copy is kept in BUILD/tests/build/own_model, since Lockstep is built a second time there
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
copy=$1/tests/build/own_model
page=$root/docs/your_own_model.md
fail() { echo "$*"; exit 1; }

mkdir -p "$copy"
find "$copy" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
(cd "$root" && tar -c --exclude=./build --exclude=./.git --exclude=./data --exclude=./runs .) | tar -x -C "$copy"
cd "$copy"

# Each file is named in the last line before its block.
mapfile -t files < <(grep -B2 '^```cpp' "$page" | grep -oE '`apps/[a-z_/]+\.cc`' | tr -d '`')
[[ ${files[*]} == "apps/models/mine.cc apps/train_mine.cc" ]] || fail "the page names ${files[*]}"
for i in 0 1; do
  [[ ! -e ${files[i]} ]] || fail "${files[i]} is there already"
  awk -v wanted=$((i + 1)) '/^```$/{on = 0} on; /^```cpp$/{on = ++n == wanted}' "$page" >"${files[i]}"
  touch -r "$page" "${files[i]}"
done

# A few images: what is learned is another test's subject, and so is optimised code.
mkdir -p images
images() {
  printf '\0\0\x08\x03\0\0\0\x40\0\0\0\x1c\0\0\0\x1c'
  LC_ALL=C awk 'BEGIN { for (i = 0; i < 64 * 28 * 28; ++i) printf "%c", 33 + i * i % 90 }'
}
labels() { printf '\0\0\x08\x01\0\0\0\x40'; for i in {1..64}; do printf '%b' "\\x0$((i % 10))"; done; }
for part in train t10k; do
  images >"images/$part-images-idx3-ubyte"
  labels >"images/$part-labels-idx1-ubyte"
done
export LOCKSTEP_DATA=$copy/images HOSTCUDA_DEVICES=1
lab() { echo "./lab $*"; ./lab --backend host --no-install "$@"; }
lab configure -D CMAKE_CXX_FLAGS_RELEASE=-O0 -D LOCKSTEP_BENCH=OFF

# The commands as the page has them; the batch and the number of epochs are for 64 images.
mapfile -t commands < <(grep -E '^\./lab ' "$page")
((${#commands[@]} == 4)) || fail "the page has ${#commands[@]} commands, wanted 4"
for command in "${commands[@]}"; do
  read -ra words <<<"${command#./lab }"
  [[ ${words[0]} != train_mine ]] || words+=(--batch-size 32 --epochs 1)
  lab "${words[@]}" >out || { cat out; fail "failed: $command"; }
  grep -E '^(mine|.*: mine)' out || { cat out; fail "$command does not speak of mine"; }
done
lab train_mine --recipe article --batch-size 32 --epochs 1 --quiet

# What was there before goes on: another program, the list of tests, help.
lab train_lenet --help >out
lab help >out
grep '^  train_mine  *Trains a network of my own' out || fail "help does not know it"
ctest --test-dir build/host -N -R Plan >out || fail "the tests cannot be listed"

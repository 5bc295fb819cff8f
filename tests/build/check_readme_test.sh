#!/usr/bin/env bash
# Faults planted into a README are found at their line; what is right is not complained about.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cp -r "$root/lab" "$root/tools" "$scratch"
mkdir -p "$scratch/apps"
touch "$scratch/apps/train_lenet.cc"

check() { # check EXPECTED LINE: EXPECTED is empty where nothing is wrong
  printf '# Title\n%s\n' "$2" >"$scratch/README.md"
  local found status=0
  found=$("$root/tools/check_readme" "$scratch") || status=$?
  if [[ -z $1 ]]; then
    ((status == 0)) || { echo "'$2' is right, but: $found"; exit 1; }
  else
    [[ $status == 1 && $found == "README.md:2: $1"* ]] || { echo "for '$2': got '$found', wanted '$1'"; exit 1; }
  fi
}
check '' './lab train_lenet --devices 2  # trains'
check '' '[the command](lab), [a heading](#title), [a part](tools/format#usage), https://example.org'
# shellcheck disable=SC2016  # the backticks are Markdown's
check '' '`./lab --backend host test`, then `tools/format --check`'
check './lab has no verb train_alexnet' './lab train_alexnet'
check './lab has no verb tests' './lab --backend cuda tests'
check 'the link to docs/none.md leads nowhere' 'see [there](docs/none.md)'
check 'there is no tools/none' 'run tools/none'
echo "7 lines judged rightly"

#!/usr/bin/env bash
# What was built names no folder of the machine that built it: no_paths_test.sh SOURCE FILE...
set -euo pipefail
source=$1
shift
status=0
for file; do
  found=$(strings -a "$file" | grep -F "$source/" | sort -u) || true
  [[ -z $found ]] || { printf '%s contains\n%s\n' "$file" "$found" | head -n 5; status=1; }
done
(($#)) || { echo "no file was named"; status=1; }
exit "$status"

# run.sh SOURCE_ROOT BUILD FILE.cu PROGRAM: compiles an ordinary CUDA program against hostcuda and runs it.
set -euo pipefail
bash "$1/hostcuda/compile" "$2" "$3" -o "$4"
"$4"

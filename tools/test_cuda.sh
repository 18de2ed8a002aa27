#!/usr/bin/env bash
# Runs the GPU tests: conformance of the device, every operator, goldens, the bundled model, and verify.
#   tools/test_cuda.sh FOLDER [PROGRAM …]
#   tools/test_cuda.sh --look       runs no test; fails with a message if there is no GPU
# FOLDER is a build folder, or the folder bin/ of an archive of `make dist-tests`. It has tessera, libtessera_cuda.so,
# the test programs and gpu_tests.txt, which lists the test programs. If any PROGRAM is given, only these test programs
# run, and verify does not run. The last line is "N passed, N failed". DEVICE=cuda:1 chooses another GPU. DEVICE=cpu
# runs the same tests on the CPU.
set -uo pipefail
device=${DEVICE:-cuda}
# Also asks nvidia-smi, because under WSL a GPU has no device file.
has_gpu() { compgen -G '/dev/nvidia[0-9]*' >/dev/null || nvidia-smi -L 2>/dev/null | grep -q '^GPU '; }
if [[ "$device" == cuda* ]] && ! has_gpu; then
  echo "DEVICE is $device, and there is no NVIDIA GPU; DEVICE=cpu runs the same tests on the CPU" >&2
  exit 1
fi
[[ "${1:-}" == --look ]] && exit 0
if (($# < 1)) || [[ ! -r "$1/gpu_tests.txt" ]]; then
  echo "usage: $0 FOLDER [PROGRAM …], where FOLDER/gpu_tests.txt names the tests" >&2
  exit 2
fi
folder=$(cd "$1" && pwd)
shift
programs=("$@")
dtypes=()
if ((${#programs[@]} == 0)); then
  mapfile -t programs <"$folder/gpu_tests.txt"
  dtypes=(float32 bfloat16)
fi
root=$(cd "$(dirname "$0")/.." && pwd)
export TESSERA_TEST_DEVICE=$device TESSERA_SOURCE_DIR=$root

passed=0
failed=0

find_program() { find "$folder" -maxdepth 3 -type f -name "$1" -perm -u+x | head -1; }

run_test() {
  local name=$1 program output status
  program=$(find_program "$name")
  if [[ -z "$program" ]]; then
    echo "$name: not in $folder"
    failed=$((failed + 1))
    return
  fi
  output=$("$program" --gtest_brief=1 2>&1)
  status=$?
  local ran ok
  ran=$(sed -nE 's/^\[==========\] ([0-9]+) tests? from .*/\1/p' <<<"$output" | tail -1)
  ok=$(sed -nE 's/^\[  PASSED  \] ([0-9]+) tests?.*/\1/p' <<<"$output" | tail -1)
  if ((status != 0)); then
    echo "$output"
    local bad
    bad=$(sed -nE 's/^ *([0-9]+) FAILED TESTS?$/\1/p' <<<"$output" | tail -1)
    failed=$((failed + ${bad:-1}))
  fi
  passed=$((passed + ${ok:-0}))
  echo "$name: ${ok:-0} of ${ran:-0} passed"
}

run_command() {
  local output
  if output=$("$@" 2>&1); then
    passed=$((passed + 1))
    echo "passed: ${*:2}"
  else
    failed=$((failed + 1))
    echo "$output"
    echo "failed: ${*:2}"
  fi
}

for name in "${programs[@]}"; do run_test "$name"; done
tessera=$(find_program tessera)
for dtype in "${dtypes[@]}"; do
  run_command "$tessera" verify --model-path "$root/models/demo" --device "$device" --dtype "$dtype"
done
echo "$passed passed, $failed failed"
((failed == 0 && passed > 0))

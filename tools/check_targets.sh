#!/usr/bin/env bash
# Runs every target of the Makefile, or the given ones, in a copy of the working tree:
#   tools/check_targets.sh [TARGET …]
# If nvcc is installed, runs each target twice: with it, and with CUDA=OFF. Prints each target's time and, if the target
# fails, the end of its output. The last line is "N passed, N failed". All targets take hours, because asan and tsan
# build and run everything again.
#   DEPS=skip          installs nothing
#   CUDA=AUTO or OFF   runs each target once: with nvcc, or without it
#   FUZZ_SECONDS=60    for the target fuzz
# The target test-cuda needs nvcc and a GPU. If one of the two is missing, the target must fail and say which.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
mapfile -t targets < <(sed -n 's/^\.PHONY: //p' Makefile | tr ' ' '\n')
chosen=("${targets[@]}")
if (($# > 0)); then
  chosen=("$@")
  for target in "$@"; do
    if [[ " ${targets[*]} " != *" $target "* ]]; then
      echo "\"$target\" is no target; the Makefile has ${targets[*]}" >&2
      exit 2
    fi
  done
fi

has_nvcc() { PATH="$PATH:/usr/local/cuda/bin" command -v nvcc >/dev/null; }
has_gpu() { compgen -G '/dev/nvidia[0-9]*' >/dev/null || nvidia-smi -L 2>/dev/null | grep -q '^GPU '; }
modes=("${CUDA:-}")
if [[ -z "${CUDA:-}" ]]; then
  modes=(OFF)
  has_nvcc && modes=(AUTO OFF)
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
passed=0
failed=0

# arguments TARGET: prints the target's arguments.
arguments() {
  case "$1" in
    deps) echo DEV=1 ;;
    fuzz) echo "FUZZ_SECONDS=${FUZZ_SECONDS:-60}" ;;
    format) echo CHECK=1 ;;
    install) echo "PREFIX=$scratch/prefix" ;;
  esac
}

# expected_error TARGET MODE: prints the error that a target must print if it cannot work here; prints nothing if the
# target must work.
expected_error() {
  [[ "$1" == test-cuda ]] || return 0
  if ! has_gpu; then
    echo "there is no NVIDIA GPU"
  elif ! has_nvcc; then
    echo "there is no nvcc"
  fi
}

run_target() {
  local target=$1 mode=$2 log=$scratch/log status begin=$SECONDS error words
  mapfile -t words < <(arguments "$target")
  (cd "$scratch/copy" && make "$target" CUDA="$mode" DEPS="${DEPS:-}" "${words[@]}") </dev/null >"$log" 2>&1
  status=$?
  error=$(expected_error "$target" "$mode")
  if [[ -z "$error" && $status -eq 0 ]] || [[ -n "$error" && $status -ne 0 && -n "$(grep -F "$error" "$log")" ]]; then
    passed=$((passed + 1))
    echo "ok: make $target CUDA=$mode: $((SECONDS - begin)) s${error:+, refused because $error}"
  else
    failed=$((failed + 1))
    echo "FAILED: make $target CUDA=$mode: exit status $status after $((SECONDS - begin)) s${error:+, expected: \"$error\"}"
    tail -n 40 "$log" | sed 's/^/  /'
  fi
}

for mode in "${modes[@]}"; do
  rm -rf "$scratch/copy"
  mkdir "$scratch/copy"
  git ls-files --cached --others --exclude-standard -z | tar --null --files-from - --create | tar -C "$scratch/copy" --extract
  for target in "${chosen[@]}"; do
    # test-cuda always needs CUDA, so a second run would repeat the first.
    [[ "$target" == test-cuda && "$mode" == OFF ]] && has_nvcc && continue
    run_target "$target" "$mode"
  done
done
echo "$passed passed, $failed failed"
((failed == 0 && passed > 0))

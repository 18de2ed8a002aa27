#!/usr/bin/env bash
# Runs the fuzz targets that are built in a folder, one after the other:
#   tools/run_fuzz.sh BUILD SECONDS [TARGET…]
# SECONDS is the total time, which is divided equally among the targets. For a target that fails, prints the error and
# the paths of the failing input and of the log. The last line is "N passed, N failed".
set -euo pipefail
if (($# < 2)) || ! [[ "$2" =~ ^[1-9][0-9]*$ ]]; then
  echo "usage: $0 BUILD SECONDS [TARGET…]" >&2
  exit 2
fi
build=$(cd "$1" && pwd)
seconds=$2
shift 2
cd "$(dirname "$0")/.."
targets=("$@")
if ((${#targets[@]} == 0)); then
  for program in "$build"/fuzz/fuzz_*; do
    [[ -f "$program" && -x "$program" ]] && targets+=("${program##*/fuzz_}")
  done
fi
share=$((seconds / ${#targets[@]}))
((share > 0)) || share=1

mkdir -p "$build/findings" "$build/corpus"
passed=0
failed=0
for target in "${targets[@]}"; do
  mkdir -p "$build/corpus/$target"
  log=$build/findings/$target.log
  max_len=65536
  # This target has a mutator of its own, so libFuzzer does not begin with short inputs. The largest seed has 7 KiB.
  [[ "$target" != gguf ]] || max_len=8192
  # libFuzzer adds new inputs to the first folder, its corpus. The second folder has the seeds. The limits of time and
  # length apply to one input.
  if "$build/fuzz/fuzz_$target" -max_total_time="$share" -timeout=60 -rss_limit_mb=2048 -max_len="$max_len" \
    -artifact_prefix="$build/findings/$target-" "$build/corpus/$target" "fuzz/corpus/$target" >"$log" 2>&1; then
    passed=$((passed + 1))
    echo "$target: $(grep -a '^Done ' "$log" || echo done)"
  else
    failed=$((failed + 1))
    echo "$target: failed"
    grep -a -m 3 -E '^broken: |ERROR: |runtime error: ' "$log" || tail -5 "$log"
    echo "  input: $(sed -n 's/.*Test unit written to //p' "$log" | tail -1)"
    echo "  log: $log"
  fi
done
echo "$passed passed, $failed failed"
((failed == 0 && passed > 0))

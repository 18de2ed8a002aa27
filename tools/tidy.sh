#!/usr/bin/env bash
# Runs clang-tidy over our sources (not the tests) as configured in build-tidy:
#   tools/tidy.sh [FILE …]              checks these files; without FILE, all sources
#   tools/tidy.sh --changed REVISION    checks the files that differ from the merge base with REVISION
# The REVISION "auto" is origin/main, or the commit before HEAD if origin/main is missing or contains HEAD. --changed
# is for continuous integration: it ends after TIDY_SECONDS (600) and says how many files it checked. If clang-tidy or
# the history is missing, it says so and succeeds.
# The script needs clang-tidy 19, which Debian 12 also has, because Debian 12's default, clang-tidy 14, cannot parse the
# C++20 headers of g++ 12.
set -euo pipefail
cd "$(dirname "$0")/.."

# changed_since REVISION: prints the sources that differ, including tests. Fails if git does not find a base.
changed_since() {
  local base
  if [[ "$1" != auto ]]; then
    base=$(git merge-base "$1" HEAD 2>/dev/null) || return 1
  elif ! base=$(git merge-base origin/main HEAD 2>/dev/null) || [[ "$base" == "$(git rev-parse HEAD)" ]]; then
    base=$(git rev-parse --verify --quiet HEAD~1) || return 1
  fi
  git diff --name-only --diff-filter=d "$base" -- 'src/*.cpp'
}

skip() {
  echo "clang-tidy is skipped: $1"
  exit 0
}

changed=""
if [[ "${1:-}" == --changed ]]; then
  if (($# != 2)); then
    echo "usage: $0 [--changed REVISION | FILE …]" >&2
    exit 2
  fi
  changed=$2
  shift 2
fi
if ! command -v clang-tidy-19 >/dev/null; then
  [[ -z "$changed" ]] || skip "clang-tidy-19 is not installed"
  echo "clang-tidy-19 is missing: tools/install_deps.sh dev" >&2
  exit 1
fi
if [[ -n "$changed" ]]; then
  listing=$(changed_since "$changed") || skip "git has no history back to \"$changed\""
  mapfile -t files < <(grep -vE '_test\.cpp$|/testing/' <<<"$listing")
elif (($# > 0)); then
  files=("$@")
else
  mapfile -t files < <(find src -name '*.cpp' ! -name '*_test.cpp' ! -path '*/testing/*' | sort)
fi
# Leaves out kernels that use cpu_vector.h, because clang lacks g++'s __builtin_shuffle, and files that build-tidy does
# not compile, for example those of the CUDA backend if there is no nvcc.
kept=()
for file in "${files[@]}"; do
  if [[ -z "$file" ]] || grep -q 'ops/cpu/cpu_vector.h' "$file"; then
    continue
  elif grep -qF "\"$PWD/$file\"" build-tidy/compile_commands.json; then
    kept+=("$file")
  elif (($# > 0)); then
    echo "$file is not compiled in build-tidy" >&2
    exit 1
  fi
done
((${#kept[@]} > 0)) || skip "there is nothing to look at"

looked_at=$(mktemp)
trap 'rm -f "$looked_at"' EXIT
export looked_at
limit=()
[[ -z "$changed" ]] || limit=(timeout "${TIDY_SECONDS:-600}")
status=0
# Removes the line that counts warnings in system headers.
printf '%s\0' "${kept[@]}" |
  "${limit[@]}" xargs -0 -n 1 -P "$(nproc)" sh -c \
    'clang-tidy-19 -p build-tidy --quiet "$0" || exit; echo "$0" >>"$looked_at"' 2> >(grep -v ' generated\.$' >&2) ||
  status=$?
count=$(wc -l <"$looked_at")
if ((status == 124)); then
  echo "clang-tidy: $count of ${#kept[@]} files are clean; the time for the others was up"
elif ((status != 0)); then
  echo "clang-tidy: found faults; $count of ${#kept[@]} files are clean" >&2
  exit 1
else
  echo "clang-tidy: $count files are clean"
fi

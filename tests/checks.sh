# Helpers of scripts that run a built Tessera; to be sourced: . tests/checks.sh BUILD_FOLDER
# Sets build (the folder's absolute path), work (a scratch folder, removed at the end), passed and failed.
# shellcheck shell=bash disable=SC2034
build=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
failed=0

# check WHAT COMMAND …: runs and counts a check; shows the command's output if it fails.
check() {
  local what=$1
  shift
  if "$@" >"$work/output" 2>&1; then
    passed=$((passed + 1))
    echo "ok: $what"
  else
    failed=$((failed + 1))
    echo "FAILED: $what"
    cat "$work/output"
  fi
}

# is_text TEXT: shows the text; fails if it is too short for a model's answer.
is_text() {
  echo "$1"
  [[ ${#1} -gt 20 ]]
}

# report: prints the last line of the script, and sets its exit status.
report() {
  echo "$passed passed, $failed failed"
  [[ $failed -eq 0 ]]
}

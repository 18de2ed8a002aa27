#!/usr/bin/env bash
# Installs a built Tessera, builds examples/generate against it and runs it: tests/install_test.sh BUILD_FOLDER
# Catches: a header that is not installed or includes one that is not, a symbol missing from the library, a package
# that names paths of the build, and an installation that does not work after it was moved.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
. tests/checks.sh "$1"

compile_headers() {
  local header
  find "$1/include/tessera" -name '*.h' | sort >"$work/headers"
  [[ -s "$work/headers" ]] || return 1
  while read -r header; do
    echo "#include \"${header#"$1/include/"}\""
  done <"$work/headers" >"$work/all_headers.cpp"
  c++ -std=gnu++20 -fsyntax-only -Wall -Wextra -Werror -I "$1/include" "$work/all_headers.cpp"
}

generates_text() {
  local text
  text=$("$1" models/demo "Once upon a time") || return 1
  is_text "$text"
}

texts_are_the_programs() {
  cmp "$1/share/man/man1/tessera.1" <("$1/bin/tessera" man) &&
    cmp "$1/share/bash-completion/completions/tessera" <("$1/bin/tessera" completion bash) &&
    cmp "$1/share/zsh/site-functions/_tessera" <("$1/bin/tessera" completion zsh) &&
    cmp "$1/share/fish/vendor_completions.d/tessera.fish" <("$1/bin/tessera" completion fish)
}

names_no_path_of_the_build() {
  ! grep -rnF -e "$build" -e "$PWD" "$1/lib/cmake" "$1/include"
}

check "install" cmake --install "$build" --prefix "$work/first"
# Moved before its first use, so that nothing can depend on where it was.
check "move" mv "$work/first" "$work/moved"
lib=$(dirname "$(find "$work/moved" -name 'libtessera.so' | head -n 1)")
check "package names no path of the build" names_no_path_of_the_build "$work/moved"
check "every header compiles in one file" compile_headers "$work/moved"
check "library resolves its symbols" bash -c "! ldd -r '$lib/libtessera.so' 2>&1 | grep -E 'not found|undefined'"
check "program runs" "$work/moved/bin/tessera" --help
check "manual page and completions" texts_are_the_programs "$work/moved"
check "example configures" cmake -S examples/generate -B "$work/example" -DCMAKE_PREFIX_PATH="$work/moved"
check "example builds" cmake --build "$work/example"
check "example writes text" generates_text "$work/example/generate"

report

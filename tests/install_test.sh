#!/usr/bin/env bash
# Installs a built Tessera, builds the examples in C++, C and Rust against it and runs them:
#   tests/install_test.sh BUILD_FOLDER
# Also builds the plugins of examples/ against the installed header, and loads them.
# Catches: a header that is not installed or includes a missing header, a symbol missing from the library, a package
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

# The C interface must compile as C99 and as C++.
compile_c_header() {
  echo '#include <tessera.h>' >"$work/header.c"
  cc -std=c99 -pedantic -fsyntax-only -Wall -Wextra -Wstrict-prototypes -Werror -I "$1/include" "$work/header.c" &&
    c++ -std=c++11 -pedantic -fsyntax-only -Wall -Wextra -Werror -I "$1/include" -x c++ "$work/header.c"
}

builds_by_pkg_config() {
  local flags
  flags=$(PKG_CONFIG_PATH="$lib/pkgconfig" pkg-config --cflags --libs tessera) || return 1
  # shellcheck disable=SC2086
  cc -std=c99 -Wall -Wextra -Werror -o "$work/by_pkg_config" examples/c_client/main.c $flags
}

builds_in_rust() {
  rustc -O --edition 2021 -o "$work/rust_client" -L "$lib" -l tessera examples/rust_client/main.rs
}

streams_and_answers() {
  local text
  text=$("$1" models/demo "Once upon a \"time\"") || return 1
  [[ "$text" == "40 chunks"* && "$text" == *'"meta_info"'* ]] || { echo "$text" && return 1; }
}

streams_lines() {
  local lines
  lines=$(LD_LIBRARY_PATH=$lib "$1" models/demo "Once upon a time" | tee "$work/lines" | wc -l)
  cat "$work/lines"
  [[ $lines -ge 20 ]] && tail -n 1 "$work/lines" | grep -q '"finish_reason":"length"'
}

# JSON and Rust escape these characters differently.
takes_any_prompt() { LD_LIBRARY_PATH=$lib "$1" models/demo $'Once "upon"\ta \\\x7f time'; }

says_what_is_wrong() {
  local said
  said=$(LD_LIBRARY_PATH=$lib "$1" /nowhere "x" 2>&1) && return 1
  echo "$said"
  [[ "$said" == *"/nowhere"* ]]
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
# Moves the installation before its first use, so that nothing can depend on its old place.
check "move" mv "$work/first" "$work/moved"
lib=$(dirname "$(find "$work/moved" -name 'libtessera.so' | head -n 1)")
check "package names no path of the build" names_no_path_of_the_build "$work/moved"
check "every header compiles in one file" compile_headers "$work/moved"
check "C header compiles" compile_c_header "$work/moved"
for library in libtessera libtessera_cpp; do
  check "$library resolves its symbols" bash -c "! ldd -r '$lib/$library.so' 2>&1 | grep -E 'not found|undefined'"
done
check "program runs" "$work/moved/bin/tessera" --help
check "manual page and completions" texts_are_the_programs "$work/moved"
configure() { cmake -S "examples/$1" -B "$work/$1" -DCMAKE_PREFIX_PATH="$work/moved" "${@:2}"; }
check "generate configures" configure generate
check "c_client configures without fmt" configure c_client -DCMAKE_DISABLE_FIND_PACKAGE_fmt=ON
for example in generate c_client; do check "$example builds" cmake --build "$work/$example"; done
check "example in C++ writes text" generates_text "$work/generate/generate"
check "example in C streams and answers" streams_and_answers "$work/c_client/c_client"
check "example in C says what is wrong" says_what_is_wrong "$work/c_client/c_client"
check "example in C builds by pkg-config" builds_by_pkg_config
if command -v rustc >/dev/null; then
  check "example in Rust builds" builds_in_rust
  check "example in Rust streams" streams_lines "$work/rust_client"
  check "example in Rust takes any prompt" takes_any_prompt "$work/rust_client"
  check "example in Rust says what is wrong" says_what_is_wrong "$work/rust_client"
else
  echo "skipped: rustc is missing"
fi

# Plugins are built with nothing but the header.
builds_plugin() {
  cmake -S "examples/$1" -B "$work/$1" -DCMAKE_PREFIX_PATH="$work/moved" -DCMAKE_C_FLAGS="-Wall -Wextra -Werror" &&
    cmake --build "$work/$1"
}

tells_the_same_with() {
  local plain told
  plain=$("$work/moved/bin/tessera" generate --model-path models/demo --prompt "Once upon a time" --dtype float32) || return 1
  told=$("$work/moved/bin/tessera" generate --model-path models/demo --prompt "Once upon a time" --dtype float32 "$@") || return 1
  is_text "$plain" && [[ "$told" == *"$plain" ]]
}

has_examples() {
  diff -r examples "$work/moved/share/doc/tessera/examples" && [[ -e "$work/moved/share/tessera/models/demo/config.json" ]]
}

check "examples and model are installed" has_examples
for example in operator split_op compiler model chat_format; do
  check "plugin $example builds" builds_plugin "$example"
done
check "operator runs" tells_the_same_with --plugin "$work/operator/add_norm.so"
check "split op runs" tells_the_same_with --plugin "$work/split_op/watch.so"
check "compiler runs" tells_the_same_with --plugin "$work/compiler/gate.so" --piecewise-cuda-graph-compiler gate
check "family loads" tells_the_same_with --plugin "$work/model/storyteller.so"
check "family of its own graph loads" tells_the_same_with --plugin "$work/model/plain_llama.so"
check "chat format loads" tells_the_same_with --plugin "$work/chat_format/bracket.so"
if [[ -e "$build/plugins/libtessera_opencl.so" ]]; then
  check "OpenCL's plugin is installed and loads" tells_the_same_with --plugin "$lib/tessera/plugins/libtessera_opencl.so"
fi

report

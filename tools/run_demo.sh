#!/usr/bin/env bash
# Demonstrates Tessera with the bundled model: tools/run_demo.sh [PROMPT]
# Runs a chat, a story with a table of the graphs that computed it, a chat with the model as a GGUF file, and a comparison
# of runs with and without graphs.
set -euo pipefail
cd "$(dirname "$0")/.."
model=models/demo
question="Tell me about foxes."
prompt=${1:-"Once upon a time, in the forest, there lived a brave fox named Ruby."}
if [[ ! -x build/tessera ]]; then
  echo "build/tessera is missing: run make build" >&2
  exit 1
fi

bold="" dim="" plain=""
if [[ -t 1 ]]; then
  bold=$'\e[1m' dim=$'\e[2m' plain=$'\e[0m'
fi
heading() { printf '\n%s%s%s\n\n' "$bold" "$1" "$plain"; }

# Sends progress bars and tables to standard output too, so that everything stays in order.
exec 2>&1

heading "A chat with $model"
printf '%s> %s%s\n' "$dim" "$question" "$plain"
build/tessera generate --model-path "$model" --chat --prompt "$question" --max-new-tokens 120

heading "A story, every token through captured graphs"
printf '%s%s%s' "$dim" "$prompt" "$plain"
build/tessera generate --model-path "$model" --prompt "$prompt" --max-new-tokens 220 --stats

heading "The same model as a GGUF file of half the size"
build/tessera quantize "$model" build/demo-Q8_0.gguf --type Q8_0 --overwrite
printf '\n%s> %s%s\n' "$dim" "$question" "$plain"
echo "$question" | build/tessera chat --model-path build/demo-Q8_0.gguf

heading "Eager against graphs"
build/tessera bench prefill --model-path "$model" --num-tokens 16,128,1024 --repeat 7
echo
build/tessera bench decode --model-path "$model" --batch-size 1,8 --repeat 30

printf '\nNext: build/tessera explain --model-path %s, build/tessera verify --model-path %s, build/tessera --help\n' \
  "$model" "$model"

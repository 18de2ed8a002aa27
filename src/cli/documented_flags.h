// Lists all flags of `serve` that SGLang or vLLM has, with their treatment. For tests.
#pragma once

#include <string>
#include <vector>

namespace tessera::cli {

enum class Treatment {
  kTaken,    // does what SGLang's flag does, as far as the test below the table checks
  kNothing,  // accepted, because what it asks for always happens
  kWarned,   // accepted with a warning: it has no effect or another name
};

struct Documented {
  std::vector<std::string> words;
  Treatment treatment;
  std::vector<std::string> refused;  // words for the same flag that are not accepted
};

// Returns the documented flags in order; ours come after SGLang's.
inline const std::vector<Documented>& documented() {
  using enum Treatment;
  static const std::vector<Documented> flags = {
      {{"--model-path", "m"}, kTaken, {"--model-path", ""}},
      {{"--model", "m"}, kTaken, {"--model", ""}},
      {{"--revision", "v1"}, kTaken, {"--revision", ""}},
      {{"--host", "0.0.0.0"}, kTaken, {"--host", ""}},
      {{"--port", "30001"}, kTaken, {"--port", "65536"}},
      {{"--served-model-name", "n"}, kTaken, {"--served-model-name", ""}},
      {{"--device", "cuda:1"}, kTaken, {"--device", "npu"}},
      {{"--dtype", "half"}, kTaken, {"--dtype", "int8"}},
      {{"--load-format", "dummy"}, kTaken, {"--load-format", "npcache"}},
      {{"--load-format", "gguf"}, kTaken, {"--load-format", "ggml"}},
      {{"--gguf-file", "m.gguf"}, kTaken, {"--gguf-file", ""}},
      {{"--is-embedding"}, kTaken, {"--is-embedding=x"}},
      {{"--tp-size", "2"}, kTaken, {"--tp-size", "0"}},
      {{"--tp", "4"}, kTaken, {"--tp", "65"}},
      {{"--tensor-parallel-size", "2"}, kTaken, {"--tensor-parallel-size", "x"}},
      {{"--ep-size", "2"}, kTaken, {"--ep-size", "0"}},
      {{"--ep", "2"}, kTaken, {"--ep", "65"}},
      {{"--expert-parallel-size", "2"}, kTaken, {"--ep-size", "x"}},
      {{"--enable-expert-parallel"}, kWarned, {"--enable-expert-parallel=x"}},
      {{"--enable-ep-moe"}, kWarned, {"--enable-ep-moe=x"}},
      {{"--enable-deepep-moe"}, kWarned, {"--enable-deepep-moe=x"}},
      {{"--moe-a2a-backend", "none"}, kNothing, {"--moe-a2a-backend", "ascend_fuseep"}},
      {{"--moe-a2a-backend", "deepep"}, kWarned, {"--moe-a2a-backend", "nccl"}},
      {{"--moe-a2a-backend", "mooncake"}, kWarned, {"--moe-a2a-backend", ""}},
      {{"--enable-dp-attention"}, kWarned, {"--enable-dp-attention=x"}},
      {{"--enable-two-batch-overlap"}, kWarned, {"--enable-two-batch-overlap=x"}},
      {{"--nnodes", "2"}, kTaken, {"--nnodes", "0"}},
      {{"--node-rank", "1"}, kTaken, {"--node-rank", "-1"}},
      {{"--dist-init-addr", "10.0.0.1:29500"}, kTaken, {"--dist-init-addr", "10.0.0.1"}},
      {{"--nccl-init-addr", "[::1]:29500"}, kTaken, {"--dist-init-addr", "::1:29500"}},
      {{"--dist-timeout", "60"}, kTaken, {"--dist-timeout", "0"}},
      {{"--pp-size", "2"}, kTaken, {"--pp-size", "65"}},
      {{"--pp", "2"}, kTaken, {"--pp", "0"}},
      {{"--dp-size", "2"}, kTaken, {"--dp-size", "65"}},
      {{"--pipeline-parallel-size", "2"}, kTaken, {"--pp-size", "0"}},
      {{"--data-parallel-size", "2"}, kTaken, {"--dp-size", "0"}},
      {{"--mem-fraction-static", "0.5"}, kTaken, {"--mem-fraction-static", "0.96"}},
      {{"--chunked-prefill-size", "64"}, kTaken, {"--chunked-prefill-size", "-2"}},
      {{"--chunked-prefill-size", "-1"}, kTaken, {"--chunked-prefill-size", "0"}},
      {{"--max-running-requests", "3"}, kTaken, {"--max-running-requests", "0"}},
      {{"--page-size", "8"}, kTaken, {"--page-size", "1025"}},
      {{"--context-length", "100"}, kTaken, {"--context-length", "0"}},
      {{"--random-seed", "7"}, kTaken, {"--random-seed", "-7"}},
      {{"--kv-cache-dtype", "fp8_e4m3"}, kTaken, {"--kv-cache-dtype", "fp8_e5m2"}},
      {{"--speculative-algorithm", "NGRAM"}, kTaken, {"--speculative-algorithm", "EAGLE"}},
      {{"--speculative-num-draft-tokens", "4"}, kWarned, {"--speculative-num-draft-tokens", "0"}},
      {{"--speculative-num-steps", "2"}, kWarned, {"--speculative-num-steps", "0"}},
      {{"--speculative-draft-model-path", "d"}, kTaken, {"--speculative-draft-model-path", ""}},
      {{"--speculative-config", R"({"method": "ngram", "num_speculative_tokens": 4})"},
       kTaken,
       {"--speculative-config", R"({"method": "medusa"})"}},
      {{"--api-key", "k"}, kTaken, {"--api-key", ""}},
      {{"--admin-api-key", "k"}, kTaken, {"--admin-api-key", ""}},
      {{"--chat-template", "t"}, kTaken, {"--chat-template", ""}},
      {{"--tool-call-parser", "hermes"}, kTaken, {"--tool-call-parser", ""}},
      {{"--reasoning-parser", "qwen3"}, kTaken, {"--reasoning-parser", ""}},
      {{"--log-requests"}, kTaken, {"--log-requests=maybe"}},
      {{"--allow-unknown-fields"}, kTaken, {"--allow-unknown-fields=maybe"}},
      {{"--trust-remote-code"}, kNothing, {"--trust-remote-code=maybe"}},
      {{"--disable-cuda-graph"}, kTaken, {"--disable-cuda-graph=0"}},
      {{"--cuda-graph-max-bs", "16"}, kTaken, {"--cuda-graph-max-bs", "1048577"}},
      {{"--cuda-graph-bs", "1", "2"}, kTaken, {"--cuda-graph-bs", "0"}},
      {{"--disable-cuda-graph-padding"}, kTaken, {"--disable-cuda-graph-padding=x"}},
      {{"--disable-piecewise-cuda-graph"}, kTaken, {"--disable-piecewise-cuda-graph=x"}},
      {{"--enforce-piecewise-cuda-graph"}, kTaken, {"--enforce-piecewise-cuda-graph=x"}},
      {{"--enable-piecewise-cuda-graph"}, kWarned, {"--enable-piecewise-cuda-graph=x"}},
      {{"--piecewise-cuda-graph-compiler", "inductor"}, kTaken, {"--piecewise-cuda-graph-compiler", "triton"}},
      {{"--piecewise-cuda-graph-max-tokens", "64"}, kTaken, {"--piecewise-cuda-graph-max-tokens", "0"}},
      {{"--piecewise-cuda-graph-tokens", "[8,16]"}, kTaken, {"--piecewise-cuda-graph-tokens", "[8,-16]"}},
      {{"--enable-torch-compile"}, kTaken, {"--enable-torch-compile=x"}},
      {{"--torch-compile-max-bs", "32"}, kWarned, {"--torch-compile-max-bs", "0"}},
      {{"--enable-torch-compile-debug-mode"}, kTaken, {"--enable-torch-compile-debug-mode=x"}},
      {{"--enable-cudagraph-gc"}, kWarned, {"--enable-cudagraph-gc=x"}},
      {{"--constrained-json-whitespace-pattern", "[\\n\\t ]*"},
       kTaken,
       {"--constrained-json-whitespace-pattern", "x*"}},
      {{"--constrained-json-disable-any-whitespace"}, kNothing, {"--constrained-json-disable-any-whitespace=x"}},
      {{"--enable-metrics"}, kNothing, {"--enable-metrics=x"}},
      {{"--log-level", "info"}, kTaken, {"--log-level"}},
      {{"--cuda-graph-mode", "full"}, kTaken, {"--cuda-graph-mode", "fast"}},
      {{"--cuda-graph-capture", "lazy"}, kTaken, {"--cuda-graph-capture", "later"}},
      {{"--cuda-graph-schedule", "auto"}, kTaken, {"--cuda-graph-schedule", "none"}},
      {{"--cuda-graph-split-ops", "attention"}, kTaken, {"--cuda-graph-split-ops", ""}},
      {{"--cuda-graph-memory-budget", "64M"}, kTaken, {"--cuda-graph-memory-budget", "-1"}},
      {{"--cuda-graph-disable-passes", "remove_copies"}, kTaken, {"--cuda-graph-disable-passes", "a,,b"}},
      {{"--disable-cost-measurement"}, kTaken, {"--disable-cost-measurement=x"}},
      {{"--image-cache-bytes", "64M"}, kTaken, {"--image-cache-bytes", "0"}},
      {{"--enable-vit-cuda-graph"}, kTaken, {"--enable-vit-cuda-graph=x"}},
      {{"--schedule-policy", "fcfs"}, kNothing, {"--schedule-policy", "best"}},
      {{"--schedule-policy", "lpm"}, kWarned, {"--schedule-policy", ""}},
      {{"--grammar-backend", "xgrammar"}, kNothing, {"--grammar-backend", "yacc"}},
      {{"--grammar-backend", "outlines"}, kWarned, {"--grammar-backend", ""}},
      {{"--attention-backend", "fa3"}, kWarned, {"--attention-backend", ""}},
      {{"--schedule-conservativeness", "0.3"}, kWarned, {"--schedule-conservativeness", "0"}},
      {{"--watchdog-timeout", "300"}, kWarned, {"--watchdog-timeout", "-1"}},
      {{"--gpu-memory-utilization", "0.9"}, kWarned, {"--gpu-memory-utilization", "1.1"}},
      {{"--disable-overlap-schedule"}, kTaken, {"--disable-overlap-schedule=x"}},
      {{"--enable-prefix-caching"}, kNothing, {"--enable-prefix-caching=x"}},
      {{"--dp", "2"}, kTaken, {"--dp-size", "65"}},
      {{"--seed", "7"}, kTaken, {"--random-seed", "-7"}},
      {{"--block-size", "8"}, kTaken, {"--page-size", "0"}},
      {{"--served-model-name", "a", "b"}, kTaken, {"--served-model-name", "a", ""}},
      {{"--stream-interval", "8"}, kTaken, {"--stream-interval", "0"}},
      {{"--enable-log-requests"}, kTaken, {"--log-requests=x"}},
      {{"--disable-log-requests"}, kNothing, {"--disable-log-requests", "--log-requests"}},
      {{"--enable-auto-tool-choice"}, kNothing, {"--enable-auto-tool-choice=false"}},
      {{"--enable-chunked-prefill"}, kNothing, {"--enable-chunked-prefill=x"}},
      {{"--no-enable-chunked-prefill"}, kTaken, {"--no-enable-chunked-prefill=x"}},
      {{"--task", "embed"}, kTaken, {"--task", "transcription"}},
      {{"--task", "generate"}, kNothing, {"--task", "generate", "--is-embedding"}},
      {{"--task", "classify"}, kWarned, {"--task", ""}},
      {{"--quantization", "none"}, kNothing, {"--quantization", "fp9"}},
      {{"--quantization", "fp8"}, kTaken, {"--quantization", "fp9"}},
      {{"--quantization", "int4"}, kTaken, {"--quantization", "int3"}},
      {{"--swap-space", "16"}, kWarned, {"--swap-space"}},
      {{"--swap-space", "0"}, kNothing, {"--swap-space"}},
      {{"--root-path", "/llm"}, kWarned, {"--root-path"}},
  };
  return flags;
}

}  // namespace tessera::cli

#include "tessera/options/known_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <vector>

#include "tessera/base/nearest.h"

namespace tessera {
namespace {

struct Missing {
  std::string_view flags;        // separated by spaces; "--tbo-*" stands for every flag that begins with "--tbo-"
  std::string_view feature;      // the feature that the flags ask for
  std::string_view instead;      // what is available instead
  std::string_view but_of = {};  // the one command that accepts these flags; empty: no command accepts them
};

constexpr std::string_view kDivided =
    "experts are divided evenly among the ranks of a process, in slices (--tp-size) or whole (--ep-size)";
constexpr std::array kMissing = {
    Missing{"--quantization-* --torchao-config -q", "settings of weights that are quantised at the start",
            "--quantization with fp8, int8, int4 or nvfp4 is supported"},
    Missing{"--enable-dp-attention", "data-parallel attention",
            "serve has it, and one process of serve is one endpoint", "serve"},
    Missing{"--enable-dp-lm-head --dp-attention-*", "settings of data-parallel attention",
            "with --enable-dp-attention, which serve supports, every rank has a whole head"},
    Missing{"--moe-runner-backend --moe-dense-tp-size --deepep-* --mooncake-ib-device",
            "settings of experts' kernels or of their all-to-all (A2A) exchange", kDivided},
    Missing{"--enable-eplb --eplb-* --ep-num-redundant-experts --ep-dispatch-algorithm --init-expert-location",
            "balancing of experts (EPLB)", kDivided},
    Missing{"--expert-distribution-recorder-* --enable-expert-distribution-metrics",
            "recording of how tokens are distributed over experts", kDivided},
    Missing{"--tbo-*", "settings of two-batch overlap",
            "with --enable-two-batch-overlap prefills of 1024 tokens or more run in two halves"},
    Missing{"--enable-single-batch-overlap", "overlap of shared and routed experts",
            "--enable-two-batch-overlap is supported"},
    Missing{
        "--lora-backend --lora-dtype --lora-eviction-policy --lora-extra-vocab-size --lora-drain-wait-threshold "
        "--max-lora-chunk-size --max-loaded-loras --max-cpu-loras --fully-sharded-loras --long-lora-scaling-factors",
        "settings of adapters (LoRA)",
        "--enable-lora, --lora-paths, --max-loras-per-batch and --max-lora-rank are supported"},
    Missing{"--disaggregation-* --num-reserved-decode-tokens",
            "prefill and decode on different servers (PD disaggregation)", "one server does both"},
    Missing{
        "--speculative-eagle-* --speculative-draft-model-revision --speculative-draft-load-format "
        "--speculative-draft-attention-* --speculative-accept-* "
        "--speculative-token-map --speculative-attention-* --speculative-ngram-* --speculative-moe-* "
        "--speculative-model* --speculative-max-model-len --speculative-disable-* --num-speculative-tokens "
        "--ngram-prompt-lookup-*",
        "these settings of speculative decoding",
        "--speculative-algorithm SUFFIX, which drafts from a request's own text, MTP, by the checkpoint's next-token "
        "layer, EAGLE3 and STANDALONE, by the model of --speculative-draft-model-path, are supported"},
    Missing{"--dllm-*", "diffusion language models", "autoregressive ones are supported"},
    Missing{"--json-model-override-args --hf-overrides --rope-scaling --rope-theta --config-format",
            "another config.json than the model's",
            "a folder with an edited config.json is supported, and --override-kv for the metadata of a GGUF file"},
    Missing{"--enable-hierarchical-cache --hicache-* --kv-transfer-config --offload-* "
            "--kv-offloading-*",
            "weights or KV cache outside of the device", "both on the device are supported"},
    Missing{"--kv-events-config", "events of a prefix cache", "serve publishes them", "serve"},
    Missing{"--load-publish-endpoint", "a published load", "serve publishes it", "serve"},
    Missing{"--calculate-kv-scales", "an FP8 KV cache", "one in float32, bfloat16 and float16 is supported"},
    Missing{"--skip-tokenizer-init", "a server that leaves the tokenizer out",
            "a folder without tokenizer.json is supported, and requests with input_ids"},
    Missing{"--tokenizer-worker-num --api-server-count", "several processes of a server",
            "one process with several threads is supported"},
    Missing{"--enable-memory-saver --enable-sleep-mode", "memory that is given back while nobody asks",
            "one process keeps its memory; stopping and starting it is supported"},
    Missing{"--allow-auto-truncate", "prompts cut to the context for all requests",
            "truncate_prompt_tokens of a request is supported"},
    Missing{"--enable-custom-logit-processor --logits-processor* --middleware --tool-parser-plugin "
            "--reasoning-parser-plugin --custom-weight-loader",
            "Python code of yours", "libraries are supported (--plugin)"},
    Missing{"--n-gpu-layers --gpu-layers -ngl --n-cpu-moe --cpu-moe --override-tensor -ot",
            "layers of a model on another device than the rest", "all of them on one --device are supported"},
    Missing{"--mlock --no-mmap --mmap", "another way to read a file",
            "mapped files are supported: weights are copied out of the map at the start, so no page is read again"},
    Missing{"--base-gpu-id --gpu-id-step", "the GPU to begin with", "--device cuda:N is supported"},
    Missing{"--preferred-sampling-params --generation-config --override-generation-config",
            "other defaults of sampling", "generation_config.json of the model and fields of requests are supported"},
    Missing{"--compilation-config --cuda-graph-sizes --cudagraph-* -O*", "vLLM's settings of compiling and graphs",
            "--cuda-graph-mode, --cuda-graph-bs, --piecewise-cuda-graph-tokens and --piecewise-cuda-graph-compiler are "
            "supported"},
    Missing{"--ssl-ciphers --ssl-cert-reqs", "other settings of TLS",
            "TLS 1.2 and later with OpenSSL's ciphers are supported, and --ssl-ca-certs asks clients for certificates"},
    Missing{"--allowed-origins --allowed-methods --allowed-headers --allow-credentials", "vLLM's settings of CORS",
            "--cors-allow-origins is supported"},
    Missing{"--download-dir", "another folder for models of the hub", "HF_HOME of the environment is supported"},
    Missing{"--runner --convert --override-pooler-config --pooler-config", "another use of the model",
            "--is-embedding is supported, also as --task embed"},
    Missing{"--return-tokens-as-token-ids", "tokens as ids in all answers",
            "return_tokens_as_token_ids of a request is supported"},
    Missing{
        "--headless --data-parallel-rank --data-parallel-start-rank --data-parallel-size-local --data-parallel-address "
        "--data-parallel-rpc-port",
        "engines of one server on several machines",
        "--nnodes and --node-rank are supported, for the ranks of one engine"},
    Missing{"--mm-* --limit-mm-*", "settings of images, sound and video",
            "images are read where the model supports them, up to --max-images-per-prompt; sound and video are not"},
};

bool matches(std::string_view pattern, std::string_view flag) {
  if (pattern.ends_with('*')) return flag.starts_with(pattern.substr(0, pattern.size() - 1));
  return flag == pattern;
}

const Missing* find_missing(std::string_view command, std::string_view flag) {
  for (const Missing& missing : kMissing) {
    if (missing.but_of == command) continue;
    std::string_view rest = missing.flags;
    while (!rest.empty()) {
      const std::string_view pattern = rest.substr(0, rest.find(' '));
      if (matches(pattern, flag)) return &missing;
      rest.remove_prefix(std::min(rest.size(), pattern.size() + 1));
    }
  }
  return nullptr;
}

}  // namespace

Status unknown_argument(std::string_view command, std::string_view argument, std::span<const std::string> flags,
                        std::string_view listed_in) {
  if (!argument.starts_with('-')) {
    return invalid_argument(
        fmt::format("unexpected argument \"{}\"; tessera {} --help lists what is accepted", argument, command));
  }
  const std::string_view name = argument.substr(0, argument.find('='));
  if (const Missing* missing = find_missing(command, name); missing != nullptr) {
    return unimplemented(
        fmt::format("{} is not supported yet: it asks for {}; {}", name, missing->feature, missing->instead));
  }
  std::vector<std::string_view> candidates(flags.begin(), flags.end());
  // --help is one of the command's flags, but a configuration file must not contain it, so an error about such a file
  // must not suggest it.
  std::erase(candidates, name);
  const std::vector<std::string> near = nearest_names(name, candidates);
  if (near.empty()) {
    return invalid_argument(
        fmt::format("unknown flag {} of {}; {} lists what is accepted", name, command,
                    listed_in.empty() ? fmt::format("tessera {} --help", command) : std::string(listed_in)));
  }
  return invalid_argument(
      fmt::format("unknown flag {} of {}; did you mean {}?", name, command, fmt::join(near, " or ")));
}

}  // namespace tessera

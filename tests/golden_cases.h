// Lists the golden checkpoints by common features of their families, for tests that run over all of them.
#pragma once

#include <string>

#include <gtest/gtest.h>

namespace tessera::testing {

inline constexpr const char* kDenseGoldens[] = {
    "llama",       "llama-bias", "llama-d64", "llama-d128", "llama-linear",  "llama-yarn", "llama3-rope-tied",
    "mistral-swa", "ministral3", "olmo2",     "phi3",       "phi3-longrope", "qwen2",      "qwen2-swa",
    "qwen3",       "qwen3-d128", "gemma2",    "gemma3",     "gemma3-d256",   "gemma4",     "gemma4-e"};
// Mixtures of experts with attention over keys and values.
inline constexpr const char* kMixtureGoldens[] = {"qwen3-moe",  "mixtral", "glm4-moe",
                                                  "gemma4-moe", "gpt-oss", "gpt-oss-mxfp4"};
// Mixtures of experts with attention over latents.
inline constexpr const char* kLatentGoldens[] = {"deepseek-v2", "deepseek-v3", "glm4-moe-lite"};
// Gated delta nets beside attention: the first list has models without experts, the second has mixtures of experts.
inline constexpr const char* kRecurrentGoldens[] = {"qwen3.5-text", "qwen3.5"};
inline constexpr const char* kRecurrentMixtureGoldens[] = {"qwen3.5-moe", "qwen3-next"};

// Quantised weights: FP8 in blocks, FP8 by rows (once with a quantised head), INT8, int4, NVFP4 and MXFP4.
inline constexpr const char* kQuantisedGoldens[] = {
    "quantised/qwen3-fp8-block",  "quantised/llama-ct-w8a8",      "quantised/qwen3-ct-w4a16",
    "quantised/qwen3-gptq",       "quantised/llama-awq",          "quantised/llama-ct-nvfp4",
    "quantised/llama-fbgemm-fp8", "quantised/llama-ct-fp8-head",  "quantised/llama-quark-mxfp4",
    "quantised/qwen3-awq",        "quantised/qwen3-moe-ct-mxfp4", "quantised/gemma4-nvfp4-modelopt"};
// Quantised weights of gated delta nets, and experts that are quantised one by one in families that otherwise store all
// experts in one tensor.
inline constexpr const char* kRecurrentQuantisedGoldens[] = {"quantised/qwen3.5-moe-fp8-block",
                                                             "quantised/qwen3.5-moe-nvfp4-modelopt"};
// Small checkpoints with quantised weights whose activations are not rounded.
inline constexpr const char* kPlainInputGoldens[] = {
    "quantised/qwen3-ct-w4a16",        "quantised/qwen3-gptq",         "quantised/llama-awq",
    "quantised/llama-ct-nvfp4",        "quantised/llama-quark-mxfp4",  "quantised/qwen3-awq",
    "quantised/gemma4-nvfp4-modelopt", "quantised/qwen3-moe-ct-mxfp4", "quantised/qwen3.5-moe-nvfp4-modelopt"};
// Quantised weights that were made for rounded activations: golden.safetensors has logits_act_i.
inline constexpr const char* kRoundedInputGoldens[] = {"quantised/qwen3-fp8-block", "quantised/llama-ct-w8a8",
                                                       "quantised/llama-fbgemm-fp8", "quantised/llama-ct-fp8-head"};

// Lists larger checkpoints of the same families, beside the repository. A test of a missing one is skipped.
inline constexpr const char* kLargerDenseGoldens[] = {"shared/gemma3", "shared/gemma3-d256", "shared/gemma4",
                                                      "shared/gemma4-e"};
inline constexpr const char* kLargerMixtureGoldens[] = {
    "shared/mixtral",     "shared/glm4-moe",    "shared/gemma4-moe",  "shared/gpt-oss",
    "shared/deepseek-v2", "shared/deepseek-v3", "shared/qwen3.5-moe", "shared/qwen3-next"};
inline constexpr const char* kLargerRecurrentGoldens[] = {"shared/qwen3.5"};
inline constexpr const char* kLargerQuantisedGoldens[] = {
    "shared/llama-ct-fp8-static",  "shared/llama-fp8-modelopt",   "shared/qwen3-ct-fp8-dynamic",
    "shared/llama-gptq-desc",      "shared/llama-nvfp4-modelopt", "shared/qwen3.5-fp8-block",
    "shared/qwen3-moe-fp8-block",  "shared/qwen3-moe-ct-nvfp4",   "shared/qwen3-moe-nvfp4-modelopt",
    "shared/deepseek-v3-fp8-block"};
// The larger quantised checkpoints whose golden.safetensors has logits_act_i.
inline constexpr const char* kLargerRoundedInputGoldens[] = {"shared/llama-ct-fp8-static", "shared/llama-fp8-modelopt",
                                                             "shared/qwen3-ct-fp8-dynamic", "shared/qwen3.5-fp8-block"};

// GGUF files: plain types and blocks of every common size; a model in one file, and one in three files; rows and
// columns in another order than in Hugging Face's checkpoints; experts in MXFP4; a next-token layer.
inline constexpr const char* kGgufGoldens[] = {"gguf/llama3-q8_0", "gguf/qwen3-q4_0",  "gguf/qwen3-q4_k_m",
                                               "gguf/llama-split", "gguf/gemma3-q5_k", "gguf/gpt-oss-mxfp4",
                                               "gguf/qwen35-mtp"};
// GGUF files without a tokenizer, in Q8_0 and once with experts in NVFP4. Their golden.safetensors have logits_act_i:
// the inputs of products with Q8_0 weights are rounded to eight bits.
inline constexpr const char* kGgufFamilyGoldens[] = {
    "gguf/qwen2-q8_0",        "gguf/gemma2-q8_0",  "gguf/phi3-q8_0",     "gguf/deepseek2-q8_0",
    "gguf/deepseek2-v2-q8_0", "gguf/glm4moe-q8_0", "gguf/qwen3moe-nvfp4"};
inline constexpr const char* kLargerGgufGoldens[] = {
    "shared/gguf-llama-f16",       "shared/gguf-llama-q2_k",    "shared/gguf-llama-q5_k",
    "shared/gguf-llama-iq4_xs",    "shared/gguf-llama-iq2",     "shared/gguf-qwen3-ud",
    "shared/gguf-qwen3moe-q4_k_m", "shared/gguf-qwen35-q4_k_m", "shared/gguf-qwen35moe-ud"};

// Returns the case's name in a form that test names allow.
inline std::string case_name(const ::testing::TestParamInfo<const char*>& info) {
  std::string text = info.param;
  for (char& c : text) c = c == '-' || c == '.' || c == '/' ? '_' : c;
  return text;
}

}  // namespace tessera::testing

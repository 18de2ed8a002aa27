// Defines the families of Llama 2 and 3, and those with the same graph: Mistral, Ministral 3, Qwen 2 and 2.5, Qwen 3
// (dense).
#pragma once

#include "tessera/model/family.h"

namespace tessera {

ModelFamily llama_family();    // LlamaForCausalLM; many other models use this architecture too
ModelFamily mistral_family();  // MistralForCausalLM: a sliding window on all layers
// Ministral3ForCausalLM: queries grow with the position if config.json says so ("llama_4_scaling_beta")
ModelFamily ministral3_family();
ModelFamily qwen2_family();  // Qwen2ForCausalLM: biases on q, k, v
ModelFamily qwen3_family();  // Qwen3ForCausalLM: an RMS norm on each head of q and k
// Qwen3ForSequenceClassification: the same body, but the head gives scores for labels instead of tokens.
ModelFamily qwen3_classifier_family();

}  // namespace tessera

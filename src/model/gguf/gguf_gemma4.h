// Converts the metadata and tensor names of Gemma 4's GGUF files.
#pragma once

#include "tessera/base/status.h"
#include "tessera/model/gguf/config_writer.h"
#include "tessera/model/gguf/tensor_names.h"

namespace tessera {

// Norms are stored as in Hugging Face's layout, without the 1 that the files of earlier Gemmas add. The converter gives
// the router's two vectors the names of scales.
inline constexpr TensorNameRule kGemma4Names[] = {
    {"post_attention_norm.weight", "post_attention_layernorm.weight"},
    {"ffn_norm.weight", "pre_feedforward_layernorm.weight"},
    {"post_ffw_norm.weight", "post_feedforward_layernorm.weight"},
    {"pre_ffw_norm_2.weight", "pre_feedforward_layernorm_2.weight"},
    {"post_ffw_norm_1.weight", "post_feedforward_layernorm_1.weight"},
    {"post_ffw_norm_2.weight", "post_feedforward_layernorm_2.weight"},
    {"layer_output_scale.weight", "layer_scalar"},
    {"ffn_gate_inp.weight", "router.proj.weight"},
    {"ffn_gate_inp.scale", "router.scale"},
    {"ffn_down_exps.scale", "router.per_expert_scale"},
    {"ffn_gate_up_exps.weight", "experts.gate_up_proj"},
    {"ffn_down_exps.weight", "experts.down_proj"},
    {"inp_gate.weight", "per_layer_input_gate.weight"},
    {"proj.weight", "per_layer_projection.weight"},
    {"post_norm.weight", "post_per_layer_input_norm.weight"},
    {"per_layer_token_embd.weight", "/model.embed_tokens_per_layer.weight"},
    {"per_layer_model_proj.weight", "/model.per_layer_model_projection.weight"},
    {"per_layer_proj_norm.weight", "/model.per_layer_projection_norm.weight"},
};

// Writes the config of Gemma 4's language model. The number of KV heads and the size of the MLPs may be lists with one
// element for each layer.
Status write_gemma4(ConfigWriter& writer);

}  // namespace tessera

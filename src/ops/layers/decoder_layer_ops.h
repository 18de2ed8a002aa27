// The operators of a decoder layer after its first norm. A joined kernel with the single operator kDecoderLayers stands
// for the first norm and all layers after it, whatever their number (compile/joins.h).
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace tessera {

inline constexpr std::string_view kDecoderLayers = "decoder_layers";
inline constexpr std::string_view kFirstLayerNorm = "rms_norm";
inline constexpr std::array<std::string_view, 9> kDecoderLayerOps{
    "linear", "qkv_rope_store", "attention", "linear", "add_rms_norm", "linear", "silu_mul", "linear", "add_rms_norm"};

}  // namespace tessera

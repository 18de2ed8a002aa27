// The operators of a decoder layer, behind the norm ahead of it. A joined kernel whose only operator is kDecoderLayers
// stands for that norm and all layers after it, as many as there are (compile/joins.h).
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

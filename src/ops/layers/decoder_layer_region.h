// Describes the decoder layers of a dense model as a region, a sequence of operator calls that one kernel can run as a
// whole (contract/region.h). The first call is the norm of the first layer. The calls after it repeat once for each
// layer. They are the attention and the MLP of the layer, and then the norm of the next layer.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "tessera/ops/contract/region.h"

namespace tessera {

// The calls of one layer, in order.
enum DecoderLayerCall : int { kQkv, kStore, kAttend, kO, kMlpNorm, kGateUp, kGate, kDown, kNextNorm, kCallsOfLayer };

inline constexpr std::array<std::string_view, kCallsOfLayer> kDecoderLayerOps{
    "linear", "qkv_rope_store", "attention", "linear", "add_rms_norm", "linear", "silu_mul", "linear", "add_rms_norm"};

namespace decoder_layer {
enum Carried : int { kStream, kNormed };
constexpr RegionValue carried(int index) { return {RegionValue::Kind::kCarried, 0, index}; }
constexpr RegionValue result(int call, int index) { return {RegionValue::Kind::kResult, call, index}; }
constexpr RegionValue operand(int call, int index) { return {RegionValue::Kind::kOperand, call, index}; }

inline constexpr std::array kLinks{
    RegionLink{kQkv, 0, carried(kNormed)},        RegionLink{kStore, 0, result(kQkv, 0)},
    RegionLink{kAttend, 0, result(kStore, 0)},    RegionLink{kStore, 3, operand(kAttend, 1)},
    RegionLink{kStore, 4, operand(kAttend, 2)},   RegionLink{kO, 0, operand(kAttend, 3)},
    RegionLink{kMlpNorm, 0, result(kO, 0)},       RegionLink{kMlpNorm, 1, carried(kStream)},
    RegionLink{kGateUp, 0, result(kMlpNorm, 0)},  RegionLink{kGate, 0, result(kGateUp, 0)},
    RegionLink{kDown, 0, result(kGate, 0)},       RegionLink{kNextNorm, 0, result(kDown, 0)},
    RegionLink{kNextNorm, 1, result(kMlpNorm, 1)}};
}  // namespace decoder_layer

inline constexpr RegionPattern kDecoderLayers{
    .first = "rms_norm",
    .repeated = kDecoderLayerOps,
    .links = decoder_layer::kLinks,
    .begin = {decoder_layer::operand(0, 0), decoder_layer::result(0, 0)},
    .next = {decoder_layer::result(kNextNorm, 1), decoder_layer::result(kNextNorm, 0)}};

}  // namespace tessera

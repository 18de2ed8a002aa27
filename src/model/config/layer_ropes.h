// Reads a model's rotary embeddings from config.json. Absent fields keep the architecture's defaults. Layers with a
// sliding window may have frequencies of their own.
//
// Files describe two rotations in one of two spellings. In the new spelling, `rope_parameters` has the members
// "full_attention" and "sliding_attention". In the old spelling, `rope_theta` and `rope_scaling` apply to layers with
// full attention, and `rope_local_base_freq` is the θ of the other layers.
#pragma once

#include <string>

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/model/config/rope.h"

namespace tessera {

// From the members of config.json, reads the rotation that all layers share. Without `rope_parameters` and
// `rope_scaling`, `rope` keeps the architecture's variant. Without `rope_theta`, `rope` keeps the architecture's θ.
// Errors are those of read_rope_config().
Status read_rope(const Json& config, const std::string& file, const RopeContext& context, RopeConfig& rope);

// The rotation of all layers with full attention, or of all layers with a window.
struct LayerRope {
  RopeContext context;
  RopeConfig& rope;
};
// Reads the rotation of layers with full attention, and the rotation of layers with a window.
Status read_layer_ropes(const Json& config, const std::string& file, const LayerRope& full, const LayerRope& sliding);

}  // namespace tessera

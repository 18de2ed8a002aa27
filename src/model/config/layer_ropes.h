// Reads a model's rotary embeddings from config.json; absent fields keep the architecture's defaults. The layers with a
// window may have frequencies of their own.
//
// Two rotations have two spellings. In the new one, `rope_parameters` has the members "full_attention" and
// "sliding_attention". In the old one, `rope_theta` and `rope_scaling` belong to the layers with full attention, and
// `rope_local_base_freq` is the θ of the others.
#pragma once

#include <string>

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/model/config/rope.h"

namespace tessera {

// Reads the rotation of all layers from the members of config.json. If config.json says nothing, `rope` stays as it is;
// if it has no θ, only the θ stays. Errors are those of read_rope_config.
Status read_rope(const Json& config, const std::string& file, const RopeContext& context, RopeConfig& rope);

// The rotation of one kind of layers.
struct LayerRope {
  RopeContext context;
  RopeConfig& rope;
};
// Reads the rotations of both kinds of layers.
Status read_layer_ropes(const Json& config, const std::string& file, const LayerRope& full, const LayerRope& sliding);

}  // namespace tessera

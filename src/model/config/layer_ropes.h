// The rotary embeddings of a model as its architecture's defaults and config.json say; and those of models whose layers
// with a window rotate by frequencies of their own.
//
// Of two rotations. New spelling: `rope_parameters` has a member "full_attention" and one "sliding_attention". Old
// spelling: `rope_theta` and `rope_scaling` are those of the layers with full attention, and `rope_local_base_freq` is
// the θ of the others.
#pragma once

#include <string>

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/model/config/rope.h"

namespace tessera {

// Reads the rotation of all layers from the members of config.json. Where it says nothing `rope` stays as it is;
// without a θ, its θ. Errors are those of read_rope_config.
Status read_rope(const Json& config, const std::string& file, const RopeContext& context, RopeConfig& rope);

// One kind of layers.
struct LayerRope {
  RopeContext context;
  RopeConfig& rope;
};
// The same of both kinds.
Status read_layer_ropes(const Json& config, const std::string& file, const LayerRope& full, const LayerRope& sliding);

}  // namespace tessera

// The rotary embeddings of models whose layers with a window rotate by frequencies of their own.
//
// New spelling: `rope_parameters` has a member "full_attention" and one "sliding_attention". Old spelling: `rope_theta`
// and `rope_scaling` are those of the layers with full attention, and `rope_local_base_freq` is the θ of the others.
#pragma once

#include <string>

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/model/rope.h"

namespace tessera {

// Reads both from the members of config.json; where it says nothing, θ stays as it is in `full` and `sliding`. Errors
// are those of read_rope_config.
Status read_layer_ropes(const Json& config, const std::string& file, const RopeContext& context, RopeConfig& full,
                        RopeConfig& sliding);

}  // namespace tessera

// The rotary embedding of a model in GGUF files.
#pragma once

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/model/gguf/config_writer.h"

namespace tessera {

// Returns the object "rope_parameters" of config.json for heads of `head_dim` values. Scaling comes from the metadata,
// or from tensors of factors, one for each frequency: "rope_freqs.weight", which is how files express Llama 3's
// scaling, or "rope_factors_long.weight" and "rope_factors_short.weight". unimplemented for a kind of scaling that this
// engine lacks.
Result<Json> gguf_rope_parameters(const ConfigWriter& writer, std::int64_t head_dim);

}  // namespace tessera

// Reads the rotary embedding of a model in GGUF files.
#pragma once

#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/model/gguf/config_writer.h"

namespace tessera {

// Returns "rope_parameters" of config.json, for heads of `head_dim` values. Either the metadata describe the scaling,
// or tensors hold one factor for each frequency. These tensors are "rope_freqs.weight" for Llama 3's scaling, and
// "rope_factors_long.weight" and "rope_factors_short.weight" for LongRoPE. Returns unimplemented for any other scaling.
Result<Json> gguf_rope_parameters(const ConfigWriter& writer, std::int64_t head_dim);

// Returns the numbers of "rope_freqs.weight". Returns invalid_argument if the tensor is missing or is not F32.
Result<std::vector<double>> gguf_rope_factors(const GgufModel& model);

}  // namespace tessera

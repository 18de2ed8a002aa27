// Converts the sizes in a model's config to GGUF metadata, as llama.cpp's converter does.
#pragma once

#include <string_view>

#include "tessera/base/status.h"
#include "tessera/model/config/config.h"
#include "tessera/model/gguf/gguf_metadata.h"

namespace tessera {

// Returns the general.architecture of GGUF files for this model. Returns unimplemented, with a list of the known
// families, if the model belongs to another family.
Result<std::string_view> architecture_of_folder(const ModelConfig& config, const std::string& file);

// Writes the sizes. Precondition: architecture_of_folder() succeeds for the config. Returns unimplemented for settings
// that GGUF files cannot express. The message names the config's field. `file` names the config in messages.
Status write_sizes(const ModelConfig& config, const std::string& file, GgufMetadata& metadata);

// Returns the factors by which GGUF files express Llama 3.1's scaling (rope_freqs.weight): one for each rotated pair.
// Precondition: config.rope has the type llama3.
std::vector<float> llama3_factors(const ModelConfig& config);

}  // namespace tessera

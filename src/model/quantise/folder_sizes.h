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

// Returns the factors in a file's rope_freqs.weight, one for each rotated pair. They express Llama 3.1's scaling, and
// Gemma 4's partial rotation (gemma4_sizes.h). Returns an empty list if the file has no such tensor. Precondition:
// write_sizes() succeeds for the config.
std::vector<float> rope_factors(const ModelConfig& config);

}  // namespace tessera

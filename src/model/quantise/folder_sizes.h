// The metadata of sizes that a model's config amounts to, as llama.cpp's converter writes them.
#pragma once

#include <string_view>

#include "tessera/base/status.h"
#include "tessera/model/config/config.h"
#include "tessera/model/gguf/gguf_metadata.h"

namespace tessera {

// Returns the general.architecture of files of this model. unimplemented, with the known families, for another.
Result<std::string_view> architecture_of_folder(const ModelConfig& config, const std::string& file);

// Writes the sizes. Precondition: architecture_of_folder() knows the config. unimplemented, by the config's field, for
// what files of the architecture cannot say. `file` names the config in messages.
Status write_sizes(const ModelConfig& config, const std::string& file, GgufMetadata& metadata);

// Returns the factors by which files express Llama 3.1's scaling (rope_freqs.weight), one for each pair of a head.
// Precondition: config.rope is of that type.
std::vector<float> llama3_factors(const ModelConfig& config);

}  // namespace tessera

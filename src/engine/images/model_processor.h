// Reads the image settings of a model from its preprocessor_config.json, or takes those of its family.
#pragma once

#include <filesystem>

#include "tessera/base/status.h"
#include "tessera/image/processor_config.h"

namespace tessera {

// `model` is a model's folder or config.json. Returns the settings of the family's published models if the folder has
// no preprocessor_config.json.
Result<ImageProcessorConfig> read_model_processor(const std::filesystem::path& model);

}  // namespace tessera

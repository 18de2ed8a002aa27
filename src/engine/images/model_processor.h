// Reads the image settings of a model from its preprocessor_config.json or its projector file. If there is neither,
// takes the settings of the model's family.
#pragma once

#include <filesystem>
#include <string>

#include "tessera/base/status.h"
#include "tessera/image/processor_config.h"

namespace tessera {

// `model` is a model's folder or config.json. Returns the settings of the family's published models if the folder has
// no preprocessor_config.json. If `projector` is not "", it is the projector file of a model in GGUF files, and the
// projector's metadata state the settings. The family's published models supply the settings that the metadata leave
// out, usually the limits of the number of pixels.
Result<ImageProcessorConfig> read_model_processor(const std::filesystem::path& model, const std::string& projector);

}  // namespace tessera

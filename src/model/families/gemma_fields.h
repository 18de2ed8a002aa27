// Fields of Gemma's models in config.json beyond the fields of all families.
#pragma once

#include "tessera/model/config/config.h"
#include "tessera/model/config/fields.h"

namespace tessera {

ModelConfig gemma2_defaults();
ModelConfig gemma3_defaults();
ModelConfig gemma4_defaults();

// Read a model's fields, for ModelFamily::read_config.
Status read_gemma2_config(const Fields& fields, ModelConfig& config);
Status read_gemma3_config(const Fields& fields, ModelConfig& config);
Status read_gemma4_config(const Fields& fields, ModelConfig& config);
// Like read_gemma4_config(), and reads the ids of images, videos and sound.
Status read_gemma4_nested_config(const Fields& fields, ModelConfig& config);

}  // namespace tessera

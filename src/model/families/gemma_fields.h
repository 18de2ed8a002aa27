// What config.json says of Gemma's models beyond the fields of all families.
#pragma once

#include "tessera/model/config/config.h"
#include "tessera/model/config/fields.h"

namespace tessera {

ModelConfig gemma2_defaults();
ModelConfig gemma3_defaults();
ModelConfig gemma4_defaults();

// As ModelFamily::read_config.
Status read_gemma2_config(const Fields& fields, ModelConfig& config);
Status read_gemma3_config(const Fields& fields, ModelConfig& config);
Status read_gemma4_config(const Fields& fields, ModelConfig& config);
// The same, and the ids of images, videos and sound.
Status read_gemma4_nested_config(const Fields& fields, ModelConfig& config);

}  // namespace tessera

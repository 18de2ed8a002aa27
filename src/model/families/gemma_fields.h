// Reads the fields of config.json that only Gemma's models have.
#pragma once

#include "tessera/base/json_fields.h"
#include "tessera/model/config/config.h"

namespace tessera {

ModelConfig gemma2_defaults();
ModelConfig gemma3_defaults();
ModelConfig gemma4_defaults();

// Each function reads the fields of one family. They serve as ModelFamily::read_config.
Status read_gemma2_config(const Fields& fields, ModelConfig& config);
Status read_gemma3_config(const Fields& fields, ModelConfig& config);
Status read_gemma4_config(const Fields& fields, ModelConfig& config);
// Like read_gemma4_config(), but also reads the ids that stand for images, videos and sound.
Status read_gemma4_nested_config(const Fields& fields, ModelConfig& config);

}  // namespace tessera

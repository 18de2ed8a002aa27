// The config.json that a GGUF file's metadata amount to.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/base/strong_id.h"
#include "tessera/model/gguf/gguf_model.h"

namespace tessera {

// Returns the members that ModelConfig::from_json() reads, as Hugging Face's config.json of the same model has them.
// Sizes that the metadata leave out follow from the shapes of tensors. unimplemented for an architecture that this
// engine does not read; invalid_argument for metadata that are missing or wrong.
Result<Json> gguf_config(const GgufModel& model);

// Returns the tokens that end an answer: those that the metadata name (eos, eot, eom), and control tokens of the
// vocabulary that end a turn in published chat formats. Files often name one of several.
Result<std::vector<TokenId>> gguf_end_tokens(const GgufModel& model);

}  // namespace tessera

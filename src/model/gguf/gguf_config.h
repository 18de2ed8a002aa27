// Converts a GGUF file's metadata to a config.json.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/base/strong_id.h"
#include "tessera/model/gguf/gguf_model.h"

namespace tessera {

inline constexpr std::string_view kGgufEmbeddings = "token_embd.weight";

// Returns the members that ModelConfig::from_json() reads, with the values that they have in Hugging Face's config.json
// for the model. If the model has a projector, the members of its vision tower are included. Sizes that the metadata do
// not state are taken from the shapes of tensors. Returns unimplemented for an unsupported architecture, and
// invalid_argument for metadata that are missing or wrong.
Result<Json> gguf_config(const GgufModel& model);

// Returns the error with the name of the metadata's key in place of the name of the config's field, if the message
// names a field that gguf_config() makes from one key. Returns other errors unchanged.
Status in_gguf_words(Status status, const GgufModel& model);

// Returns the tokens that end an answer: the tokens that are listed in the metadata (eos, eot, eom), and the
// vocabulary's control tokens that end a turn in published chat formats. These control tokens are needed because the
// metadata of many files contain only one of several end tokens.
Result<std::vector<TokenId>> gguf_end_tokens(const GgufModel& model);

}  // namespace tessera

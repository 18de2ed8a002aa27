// Writes the tokenizer of a model folder to the metadata of a GGUF file: lists of tokens, special tokens and chat
// templates. Also writes the folder's sampling defaults to the metadata.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/model/config/config.h"
#include "tessera/model/gguf/gguf_metadata.h"

namespace tessera {

// Writes the folder's tokenizer, and the sampling defaults of generation_config.json. Checks that the written lists
// split sample texts into the same tokens as the folder's tokenizer. If the folder has no tokenizer, the metadata say
// so, and a note is added. Returns unimplemented for a kind of tokenizer that GGUF files cannot describe. The message
// names the kind.
Status write_tokenizer(const std::string& folder, const ModelConfig& config, GgufMetadata& metadata,
                       std::vector<std::string>& notes);

}  // namespace tessera

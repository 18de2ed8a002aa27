// The metadata of a tokenizer: its lists of tokens, special tokens and chat templates.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/model/config/config.h"
#include "tessera/model/gguf/gguf_metadata.h"

namespace tessera {

// Writes the tokenizer of the folder, and checks that the lists cut sample texts as the folder's files do. A folder
// without a tokenizer gives a file that says so, and a note. unimplemented, by name, for a tokenizer that GGUF files
// have no name for.
Status write_tokenizer(const std::string& folder, const ModelConfig& config, GgufMetadata& metadata,
                       std::vector<std::string>& notes);

}  // namespace tessera

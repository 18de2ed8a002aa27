// Loads a tokenizer from a SentencePiece file and the files beside it, as Hugging Face's library sets up a Llama
// tokenizer without tokenizer.json.
#pragma once

#include <string>

#include "tessera/base/status.h"
#include "tessera/text/tokenizer_parts.h"

namespace tessera {

// Loads the parts of a tokenizer. `path` is the .model file. These files beside it are read if they exist:
// tokenizer_config.json (added_tokens_decoder, add_bos_token, add_eos_token, bos_token, eos_token, legacy) and
// added_tokens.json.
Result<TokenizerParts> load_sentencepiece(const std::string& path);

}  // namespace tessera

// A tokenizer from a SentencePiece file and the files beside it, set up as Hugging Face's library
// sets up a Llama tokenizer that comes without tokenizer.json.
#pragma once

#include <string>

#include "tessera/base/status.h"
#include "tessera/text/tokenizer_parts.h"

namespace tessera {

// `path`: the .model file. Beside it, where present: tokenizer_config.json (added_tokens_decoder,
// add_bos_token, add_eos_token, bos_token, eos_token, legacy) and added_tokens.json.
Result<TokenizerParts> load_sentencepiece(const std::string& path);

}  // namespace tessera

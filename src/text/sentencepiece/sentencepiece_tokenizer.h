// Loads a tokenizer from a SentencePiece file and the files beside it, as Hugging Face's library sets up a Llama
// tokenizer without tokenizer.json.
#pragma once

#include <string>
#include <string_view>

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/text/sentencepiece/sentencepiece_model.h"
#include "tessera/text/tokenizer_parts.h"

namespace tessera {

// Loads the parts of a tokenizer. `path` is the .model file. These files beside it are read if they exist:
// tokenizer_config.json (added_tokens_decoder, add_bos_token, add_eos_token, bos_token, eos_token, legacy) and
// added_tokens.json.
Result<TokenizerParts> load_sentencepiece(const std::string& path);

// Makes the parts from the bytes of a SentencePiece file. `added` are further added tokens in the form of
// tokenizer.json. The model's control tokens become added tokens too. There is no post-processor.
Result<TokenizerParts> make_sentencepiece(std::string_view bytes, const std::string& name,
                                          SentencePieceModel::Prefix prefix, const Json& added);

}  // namespace tessera

// Makes the parts of a tokenizer from lists of tokens.
#pragma once

#include "tessera/base/status.h"
#include "tessera/text/lists/token_lists.h"
#include "tessera/text/tokenizer_parts.h"

namespace tessera {

// Returns a tokenizer that gives the ids of the library for which the model was made: Hugging Face's for byte-pair
// encoding, SentencePiece's for "llama". invalid_argument for lists that contradict each other, and tokens that are not
// UTF-8; unimplemented for a model or a `pre` that is not known.
Result<TokenizerParts> make_list_tokenizer(const TokenLists& lists);

}  // namespace tessera

// Makes the parts of a tokenizer from lists of tokens.
#pragma once

#include "tessera/base/status.h"
#include "tessera/text/lists/token_lists.h"
#include "tessera/text/tokenizer_parts.h"

namespace tessera {

// Returns a tokenizer that computes the same ids as the library for which the model was made. If TokenLists::model is
// "llama", this library is SentencePiece. For its other values, which use byte-pair encoding, it is Hugging Face's
// tokenizers. Returns invalid_argument for lists that contradict each other and for tokens that are not UTF-8. Returns
// unimplemented for an unknown value of TokenLists::model or TokenLists::pre.
Result<TokenizerParts> make_list_tokenizer(const TokenLists& lists);

}  // namespace tessera

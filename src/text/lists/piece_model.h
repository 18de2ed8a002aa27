// Makes a SentencePiece model from lists of pieces, scores and kinds.
#pragma once

#include "tessera/base/status.h"
#include "tessera/text/lists/token_lists.h"
#include "tessera/text/tokenizer_parts.h"

namespace tessera {

// Writes the lists as a SentencePiece file and loads that file, so that libsentencepiece computes the ids. The file
// asks for byte-pair encoding, for byte tokens where a text has no piece, and for no normalisation. The returned parts
// have no post-processor. Returns invalid_argument if scores are missing, or the library refuses the lists.
// Precondition: the lists are checked (list_tokenizer.cpp).
Result<TokenizerParts> make_piece_tokenizer(const TokenLists& lists);

}  // namespace tessera

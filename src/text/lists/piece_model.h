// A SentencePiece model from lists of pieces, scores and kinds.
#pragma once

#include "tessera/base/status.h"
#include "tessera/text/lists/token_lists.h"
#include "tessera/text/tokenizer_parts.h"

namespace tessera {

// Writes the lists as a SentencePiece file (byte-pair encoding with byte tokens for what has no piece; texts are not
// normalised) and reads that, so that libsentencepiece gives the ids. The parts have no post-processor.
// invalid_argument if scores are missing, or the library refuses the lists. Precondition: the lists are checked
// (list_tokenizer.cpp).
Result<TokenizerParts> make_piece_tokenizer(const TokenLists& lists);

}  // namespace tessera

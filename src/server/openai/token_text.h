// The text of single tokens in answers with log-probabilities.
#pragma once

#include <string>

#include "tessera/base/strong_id.h"
#include "tessera/server/fields/json_writer.h"
#include "tessera/text/tokenizer.h"

namespace tessera {

// Decodes the token alone. Bytes that form no character become U+FFFD. A space that decoding would remove at the
// beginning of a text is kept. Returns "" without a tokenizer.
std::string token_text(const Tokenizer* tokenizer, TokenId id);
// Returns token_text(), or "token_id:5" if `as_id`, which distinguishes tokens with the same text.
std::string shown_token(const Tokenizer* tokenizer, TokenId id, bool as_id);
// Returns the token's bytes; a token may hold only part of a character.
std::string token_bytes(const Tokenizer* tokenizer, TokenId id);

}  // namespace tessera

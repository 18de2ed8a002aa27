// Returns the text of single tokens, for answers with log-probabilities.
#pragma once

#include <string>

#include "tessera/base/strong_id.h"
#include "tessera/server/fields/json_writer.h"
#include "tessera/text/tokenizer.h"

namespace tessera {

// Decodes the token alone. Bytes that do not form a character become U+FFFD. Keeps a space that decoding would remove
// at the beginning of a text. Returns "" without a tokenizer.
std::string token_text(const Tokenizer* tokenizer, TokenId id);
// Returns token_text(). If `as_id`, returns "token_id:5" instead, because tokens may have the same text.
std::string shown_token(const Tokenizer* tokenizer, TokenId id, bool as_id);
// Returns the token's bytes. They may be only a part of a character.
std::string token_bytes(const Tokenizer* tokenizer, TokenId id);

}  // namespace tessera

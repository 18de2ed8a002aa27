// Single tokens as answers with log-probabilities show them.
#pragma once

#include <string>

#include "tessera/base/strong_id.h"
#include "tessera/server/fields/json_writer.h"
#include "tessera/text/tokenizer.h"

namespace tessera {

// The token decoded alone; bytes that form no character become U+FFFD. A space that decoding removes at the beginning
// of a text is kept. "" without a tokenizer.
std::string token_text(const Tokenizer* tokenizer, TokenId id);
// The same, or "token_id:5", which tells tokens of one text apart.
std::string shown_token(const Tokenizer* tokenizer, TokenId id, bool as_id);
// The token's text as bytes, where a token may hold a part of a character.
std::string token_bytes(const Tokenizer* tokenizer, TokenId id);

}  // namespace tessera

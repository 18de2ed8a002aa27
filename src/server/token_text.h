// Single tokens as answers with log-probabilities show them.
#pragma once

#include <string>

#include "tessera/base/strong_id.h"
#include "tessera/server/json_writer.h"
#include "tessera/text/tokenizer.h"

namespace tessera {

// What the token alone says; bytes that form no character become U+FFFD. A space that a text's first token would lose
// is kept. "" without a tokenizer.
std::string token_text(const Tokenizer* tokenizer, TokenId id);
// The same, with a part of a character as the bytes it is.
std::string token_bytes(const Tokenizer* tokenizer, TokenId id);

}  // namespace tessera

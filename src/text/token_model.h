// Defines the step that turns pieces of text into ids ("model" in tokenizer.json). A Bpe, a Unigram, or the model of a
// SentencePiece file does this step.
#pragma once

#include <memory>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/base/strong_id.h"
#include "tessera/text/pre_tokenizer.h"
#include "tessera/text/tokenizer_json.h"
#include "tessera/text/vocabulary.h"

namespace tessera {

// Const functions are thread-safe.
class TokenModel {
 public:
  virtual ~TokenModel() = default;
  // Appends the ids of the pieces, which are well-formed UTF-8 without added tokens. If a character has no token and
  // the model has no unknown token, a Unigram returns invalid_argument, and a Bpe leaves the character out.
  virtual Status encode(const Pieces& pieces, std::vector<TokenId>& out) const = 0;
  virtual const Vocabulary& vocabulary() const = 0;
};

// Makes the model of a tokenizer.json. Errors are those of Bpe::create and Unigram::create.
Result<std::unique_ptr<TokenModel>> make_token_model(const TokenizerJson& file);

}  // namespace tessera

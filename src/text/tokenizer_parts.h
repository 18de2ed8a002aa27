// What a Tokenizer is made of; private to tokenizer.cpp and stream_decoder.cpp.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "tessera/text/added_tokens.h"
#include "tessera/text/bpe.h"
#include "tessera/text/decoder.h"
#include "tessera/text/normalizer.h"
#include "tessera/text/post_processor.h"
#include "tessera/text/pre_tokenizer.h"

namespace tessera {

struct TokenizerParts {
  std::unique_ptr<Normalizer> normalizer;       // null: none
  std::unique_ptr<PreTokenizer> pre_tokenizer;  // null: none
  Bpe bpe;
  AddedTokens added;
  PostProcessor post_processor;
  Decoder decoder;

  std::optional<std::string_view> token(TokenId id) const {
    if (const AddedToken* token = added.find(id.value())) return token->written;
    return bpe.vocabulary().token(id.value());
  }
  bool is_special(TokenId id) const {
    const AddedToken* token = added.find(id.value());
    return token != nullptr && token->special;
  }
};

}  // namespace tessera

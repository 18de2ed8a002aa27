// Defines the parts of a Tokenizer. Only this folder uses them.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "tessera/text/added_tokens.h"
#include "tessera/text/decoder.h"
#include "tessera/text/normalizer.h"
#include "tessera/text/post_processor.h"
#include "tessera/text/pre_tokenizer.h"
#include "tessera/text/token_model.h"
#include "tessera/text/tokenizer_json.h"

namespace tessera {

struct TokenizerParts {
  std::unique_ptr<Normalizer> normalizer;       // null: none
  std::unique_ptr<PreTokenizer> pre_tokenizer;  // null: none
  std::unique_ptr<TokenModel> model;
  AddedTokens added;
  PostProcessor post_processor;
  Decoder decoder;

  std::optional<std::string_view> token(TokenId id) const {
    if (const AddedToken* token = added.find(id.value())) return token->written;
    return model->vocabulary().token(id.value());
  }
  std::optional<TokenId> find(std::string_view token) const {
    if (const AddedToken* entry = added.find(token)) return TokenId(entry->id);
    const std::int32_t id = model->vocabulary().find(token);
    if (id < 0) return std::nullopt;
    return TokenId(id);
  }
  bool is_special(TokenId id) const {
    const AddedToken* token = added.find(id.value());
    return token != nullptr && token->special;
  }
};

// Makes the parts that the file describes. `file` may be destroyed afterwards.
Result<TokenizerParts> make_parts(const TokenizerJson& file);

}  // namespace tessera

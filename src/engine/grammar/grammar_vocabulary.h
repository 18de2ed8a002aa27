// A tokenizer's vocabulary as the bytes that each token adds to a text.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/base/strong_id.h"

namespace tessera {

class Tokenizer;

struct GrammarVocabulary {
  std::vector<std::string> bytes;      // [id], up to the tokenizer's last id; "": a special token, or no token
  std::vector<TokenId> end_ids;        // each in [0, vocab_size)
  std::vector<std::uint32_t> allowed;  // [mask_words]: the bits of all tokens with bytes and of the end ids are 1

  // Recognises vocabularies of bytes (GPT-2's alphabet) and of SentencePiece ("▁", "<0x0A>") by their tokens. Leaves
  // out ids that are not below `vocab_size`. Returns invalid_argument if an end id is not below `vocab_size`.
  static Result<GrammarVocabulary> create(const Tokenizer& tokenizer, std::int64_t vocab_size,
                                          std::span<const TokenId> end_ids);

  bool allows(TokenId id) const {
    return id.value() >= 0 && id.index() / 32 < allowed.size() &&
           (allowed[id.index() / 32] >> (id.index() % 32) & 1) != 0;
  }
};

}  // namespace tessera

// How one request's penalties, bias, bad words and end tokens change its logits, kept up to date as its text grows.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "tessera/base/strong_id.h"
#include "tessera/engine/request.h"
#include "tessera/runner/logit_edits.h"

namespace tessera {

class TokenEdits {
 public:
  // `end_ids` may not be chosen while the text is shorter than the request's min_new_tokens.
  TokenEdits(const Request& request, std::span<const TokenId> end_ids);

  // Whether a row that chooses the request's token number `generated` (from 0) has edits.
  bool any(std::int64_t generated) const;
  // Whether they depend on the previous tokens, which must then be on the host.
  bool follow_text() const { return penalises_ || !words_.empty(); }
  // Whether the request's token number `generated` may not be `token`. Precondition: as append().
  bool forbids(TokenId token, std::int64_t generated) const;
  // Appends `token` to the output.
  void count(TokenId token);
  // Adds the row's edits behind those of the rows before it. Precondition: count() has seen `generated` tokens, where
  // follow_text().
  void append(std::int64_t generated, LogitEdits& edits) const;

 private:
  struct Edit {
    TokenId token;
    float penalty = 1;  // of its logit
    float bias = 0;     // the request's own
    std::int64_t count = 0;
    bool ends_text = false;
    bool is_bad = false;         // a bad word of one token
    bool completes_bad = false;  // the output ends with the tokens before it in a bad word
    bool forbidden(std::int64_t generated, std::int64_t min_new_tokens) const {
      return is_bad || completes_bad || (ends_text && generated < min_new_tokens);
    }
  };
  // A bad word of several tokens.
  struct Word {
    std::vector<TokenId> before;  // the last one
    std::size_t last;             // in edits_
  };
  Edit& edit(TokenId token);
  void add_bad_word(std::span<const TokenId> word);
  void follow_words(TokenId token);

  double repetition_penalty_;
  double frequency_penalty_;
  double presence_penalty_;
  bool penalises_;
  std::int64_t min_new_tokens_;
  std::vector<Edit> edits_;
  std::vector<Word> words_;
  std::size_t longest_ = 0;                         // of their `before`
  std::vector<TokenId> ending_;                     // the last tokens of the output, at most longest_
  std::unordered_map<TokenId, std::size_t> place_;  // in edits_
};

}  // namespace tessera

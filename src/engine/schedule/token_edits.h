// Edits one request's logits by penalties, biases, bad words and end tokens. The edits change as the request's text
// grows.
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
  // `end_ids` may not be chosen while the output is shorter than the request's min_new_tokens.
  TokenEdits(const Request& request, std::span<const TokenId> end_ids);

  // Returns whether the row that chooses output token `generated` (from 0) has edits.
  bool any(std::int64_t generated) const;
  // Returns whether the edits depend on the previous tokens. If they do, these tokens must be on the host.
  bool follow_text() const { return penalises_ || !words_.empty(); }
  // Returns whether `token` is forbidden as output token `generated`. Precondition: as for append().
  bool forbids(TokenId token, std::int64_t generated) const;
  // Records `token` as the next token of the output.
  void count(TokenId token);
  // Appends to `edits` the edits of the row that chooses output token `generated`. `edits` may already hold the edits
  // of earlier rows. Precondition: if follow_text(), count() was called for all `generated` tokens before it.
  void append(std::int64_t generated, LogitEdits& edits) const;

 private:
  struct Edit {
    TokenId token;
    float penalty = 1;  // repetition penalty of the token; 1: none
    float bias = 0;     // the request's logit bias
    std::int64_t count = 0;
    bool ends_text = false;
    bool is_bad = false;         // the token alone is a bad word
    bool completes_bad = false;  // the output ends with the tokens that precede it in a bad word
    bool forbidden(std::int64_t generated, std::int64_t min_new_tokens) const {
      return is_bad || completes_bad || (ends_text && generated < min_new_tokens);
    }
  };
  // A bad word of several tokens.
  struct Word {
    std::vector<TokenId> before;  // the tokens before the last one
    std::size_t last;             // index of the last token in edits_
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
  std::size_t longest_ = 0;                         // length of the longest Word::before
  std::vector<TokenId> ending_;                     // the last tokens of the output, at most longest_ of them
  std::unordered_map<TokenId, std::size_t> place_;  // maps a token to its index in edits_
};

}  // namespace tessera

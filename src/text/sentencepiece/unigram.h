// Implements the unigram language model of SentencePiece (T5, XLM-R, …). It splits a piece into the tokens with the
// greatest sum of scores, which are logarithms of probabilities (Viterbi algorithm).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/text/token_model.h"

namespace tessera {

// Encodes text to the same ids as Hugging Face's library: a run of unknown characters becomes one unknown token.
class Unigram : public TokenModel {
 public:
  // Returns an error for a duplicate token, an empty token, an unk_id outside the vocabulary, or fields of the wrong
  // type.
  static Result<Unigram> create(const TokenizerJson& file);

  // Encodes each piece. Cost: O(n m log v) for a piece of n bytes, v tokens, and a longest token of m bytes.
  Status encode(const Pieces& pieces, std::vector<TokenId>& out) const override;
  const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  // The best split of the beginning of a piece. Node n is for the first n bytes of the piece.
  struct Node {
    double score = 0;
    std::int32_t begin = -1;  // offset of the last token in the split; -1: there is no split yet
    std::int32_t id = 0;
  };
  struct Match {
    std::int32_t length;
    std::int32_t id;
  };

  Unigram() = default;
  Status encode_piece(std::string_view piece, std::vector<Node>& nodes, std::vector<TokenId>& out) const;
  // Finds all tokens that are prefixes of `text`, shortest first.
  void find_prefixes(std::string_view text, std::vector<Match>& out) const;
  Status find_best(std::string_view piece, std::vector<Node>& nodes) const;
  void append_unknown(std::string_view text, std::vector<TokenId>& out) const;
  std::string_view token(std::int32_t id) const { return *vocabulary_.token(id); }

  Vocabulary vocabulary_;
  std::vector<double> scores_;        // [id]: the score of each token
  std::vector<std::int32_t> sorted_;  // ids, sorted by their tokens' bytes
  std::array<std::int32_t, 256> byte_tokens_{};
  std::int32_t unknown_ = -1;
  double unknown_score_ = 0;
  bool byte_fallback_ = false;
};

}  // namespace tessera

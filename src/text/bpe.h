// Implements byte-pair encoding. Each step joins two neighbouring symbols of a piece, namely the pair whose merge has
// the best rank. The steps are repeated until no merge applies.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/text/token_model.h"

namespace tessera {

class Bpe : public TokenModel {
 public:
  // Returns an error for a merge whose parts or result are not tokens, a duplicate token or id, an unknown unk_token,
  // dropout other than 0, or fields of the wrong type.
  static Result<Bpe> create(const TokenizerJson& file);

  // Encodes each piece. A character without a token becomes the tokens of its bytes (byte_fallback) or the unknown
  // token. If the model has neither byte tokens nor an unknown token, the character is left out, as in Hugging Face's
  // library. Cost: O(n log n) in the length of a piece. A piece that is itself a token usually takes one hash look-up
  // from its second encoding on.
  Status encode(const Pieces& pieces, std::vector<TokenId>& out) const override;

  const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  // The symbols of one piece while they are joined: a doubly linked list in arrays. A joined symbol keeps the index of
  // its left part. The pieces of one encode() call share a workspace, which saves allocations.
  struct Workspace {
    std::vector<std::int32_t> ids;
    std::vector<std::int32_t> previous;
    std::vector<std::int32_t> next;  // index of the next symbol; -1: there is none
  };
  struct Merge {
    std::uint64_t pair = kNoPair;  // left id << 32 | right id
    std::int32_t rank = 0;
    std::int32_t result = 0;
  };
  // Says whether the merges turn the text of a token into that token. If so, a piece with this text needs no merging.
  // whole_ caches the answer for each token.
  enum class Whole : std::uint8_t { kUnknown, kYes, kNo };
  static constexpr std::uint64_t kNoPair = ~std::uint64_t{0};

  Bpe() = default;
  Status read_options(const TokenizerJson& file);
  Status read_merges(const TokenizerJson& file);
  const Merge* find_merge(std::int32_t left, std::int32_t right) const;
  void encode_piece(std::string_view piece, Workspace& symbols, std::vector<TokenId>& out) const;
  void merge_piece(std::string_view piece, Workspace& symbols) const;
  void split_characters(std::string_view piece, Workspace& symbols) const;
  void merge_few(Workspace& symbols) const;
  void merge_many(Workspace& symbols) const;

  Vocabulary vocabulary_;
  std::vector<Merge> merges_;  // hash table with open addressing; its size is a power of two, and at most half is used
  std::array<std::int32_t, 256> byte_tokens_{};  // tokens "<0x00>"… by byte; -1: none
  std::int32_t unknown_ = -1;
  bool fuse_unknown_ = false;
  bool byte_fallback_ = false;
  bool ignore_merges_ = false;
  std::string prefix_;                           // continuing_subword_prefix
  std::string suffix_;                           // end_of_word_suffix
  std::unique_ptr<std::atomic<Whole>[]> whole_;  // [id]: the answer for each token
};

}  // namespace tessera

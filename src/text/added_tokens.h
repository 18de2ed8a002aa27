// Finds the added tokens of a text before the text is split and merged. Added tokens are special tokens such as
// "<|im_end|>", and other additions to a vocabulary ("added_tokens" in tokenizer.json).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/text/field.h"
#include "tessera/text/normalizer.h"
#include "tessera/text/vocabulary.h"

namespace tessera {

struct AddedToken {
  std::string content;
  // The text that encoding searches for and that decoding returns. It is the content or, if `normalized`, what the
  // normalizer makes of the content.
  std::string written;
  std::int32_t id = 0;
  bool special = false;
  bool normalized = false;   // encoding looks for the token in the normalised text; if false, in the text as given
  bool lstrip = false;       // a match includes the white space on its left
  bool rstrip = false;       // a match includes the white space on its right
  bool single_word = false;  // a match counts only if no word character is next to it
};

// A range of text that is one added token or, if id < 0, the text between two added tokens.
struct AddedSpan {
  std::size_t begin;
  std::size_t end;
  std::int32_t id;
};

// Const functions are thread-safe.
class AddedTokens {
 public:
  // Reads the array "added_tokens". If `field` is absent, there are no added tokens. `normalizer` may be null. Returns
  // an error if an id or a content appears twice, or if the model's vocabulary has the content with another id or the
  // id with another content.
  static Result<AddedTokens> create(const Field& field, const Vocabulary& model, const Normalizer* normalizer);

  // Cuts `text` at the added tokens whose AddedToken::normalized equals `normalized`. Matches do not overlap: the
  // leftmost match counts and, if several tokens match at one offset, the longest. Special tokens are found only if
  // `parse_special`.
  std::vector<AddedSpan> split(std::string_view text, bool normalized, bool parse_special) const;

  const AddedToken* find(std::string_view content) const;  // null if there is none
  const AddedToken* find(std::int32_t id) const;
  std::int32_t size() const { return size_; }  // greatest id + 1

 private:
  // A trie over bytes; children of a node are sorted by byte.
  struct Node {
    std::vector<std::pair<unsigned char, std::int32_t>> children;
    std::int32_t token = -1;  // index into tokens_
  };
  class Trie {
   public:
    void add(std::string_view text, std::int32_t token);
    bool empty() const { return nodes_.size() <= 1; }
    struct Match {
      std::size_t begin;
      std::size_t end;
      std::int32_t token;
    };
    // Returns the next match at or after `from`; token < 0 if there is none.
    Match find(std::string_view text, std::size_t from) const;

   private:
    std::int32_t child(std::int32_t node, unsigned char byte) const;
    std::vector<Node> nodes_{1};
    std::vector<bool> first_bytes_ = std::vector<bool>(256);
  };

  std::vector<AddedToken> tokens_;
  std::unordered_map<std::string_view, std::size_t> by_content_;  // views into tokens_
  std::unordered_map<std::int32_t, std::size_t> by_id_;
  Trie raw_;
  Trie normalized_;
  std::int32_t size_ = 0;
};

}  // namespace tessera

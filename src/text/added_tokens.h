// Tokens that are found in the text itself before any merging: special tokens such as "<|im_end|>"
// and other additions to a vocabulary ("added_tokens" in tokenizer.json).
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
  std::string written;  // what it decodes to: the content, through the normalizer where `normalized`
  std::int32_t id = 0;
  bool special = false;
  bool normalized = false;   // found in the normalised text, else in the text as given
  bool lstrip = false;       // takes the white space on its left with it
  bool rstrip = false;       // takes the white space on its right with it
  bool single_word = false;  // only where no word character is beside it
};

// A stretch of text that is one added token, or (id < 0) text between them.
struct AddedSpan {
  std::size_t begin;
  std::size_t end;
  std::int32_t id;
};

// Const functions are thread-safe.
class AddedTokens {
 public:
  // `normalizer` may be null. Errors: an id or content twice, or another than in the model's vocabulary.
  static Result<AddedTokens> create(const Field& field, const Vocabulary& model, const Normalizer* normalizer);

  // Cuts `text` at the tokens of one kind (normalized or not). Leftmost match first, the longest there.
  std::vector<AddedSpan> split(std::string_view text, bool normalized, bool parse_special) const;

  const AddedToken* find(std::string_view content) const;  // null where there is none
  const AddedToken* find(std::int32_t id) const;
  std::int32_t size() const { return size_; }  // one more than the greatest id

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
    // The next match at or behind `from`; token < 0 where there is none.
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

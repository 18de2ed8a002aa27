// SentencePiece's table of replacements ("precompiled_charsmap"): which runs of characters are
// written as which others, in a double-array trie followed by the texts that replace. Every look-up
// is checked, because the bytes come with a model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"

namespace tessera {

// Const functions are thread-safe.
class Charsmap {
 public:
  // `blob`: 4 bytes of length (little-endian), the trie's 4-byte units, texts each ended by a zero byte.
  // invalid_argument where it is not that; `what` names it in the error.
  static Result<Charsmap> parse(std::string_view blob, const std::string& what);

  // A beginning of a text, and what replaces it; the replacement lives as long as the Charsmap.
  struct Match {
    std::size_t length;
    std::string_view replacement;
  };
  // The shortest or the longest entry that `text` begins with.
  std::optional<Match> shortest(std::string_view text) const;
  std::optional<Match> longest(std::string_view text) const;

  // SentencePiece's rule: from the left, the longest entry.
  std::string replace_longest(std::string_view text) const;
  // Hugging Face's rule ("Precompiled" in tokenizer.json): grapheme clusters shorter than six bytes at
  // once, the others character by character. The shortest entry that each begins with replaces all of it.
  std::string replace_graphemes(std::string_view text) const;

 private:
  template <class Visit>
  void walk(std::string_view text, Visit visit) const;
  std::optional<Match> match_at(std::size_t length, std::uint32_t offset) const;

  std::vector<std::uint32_t> units_;
  std::string texts_;  // ends with a zero byte
};

}  // namespace tessera

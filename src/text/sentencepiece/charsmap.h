// SentencePiece's table of replacements ("precompiled_charsmap"), which maps sequences of characters to other
// sequences. It is a double-array trie followed by the replacement texts. Every look-up is checked, because the bytes
// come with a model.
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
  // Parses a table. `blob` begins with the trie's size in bytes (a 32-bit little-endian number). The trie's units of 4
  // bytes follow, then the replacement texts, each of which ends with a zero byte. Returns invalid_argument for any
  // other content; `what` names the table in the error.
  static Result<Charsmap> parse(std::string_view blob, const std::string& what);

  // A prefix of a text and its replacement, which is valid as long as the Charsmap.
  struct Match {
    std::size_t length;
    std::string_view replacement;
  };
  // These functions return the shortest and the longest entry that is a prefix of `text`.
  std::optional<Match> shortest(std::string_view text) const;
  std::optional<Match> longest(std::string_view text) const;

  // Follows SentencePiece's rule: replaces from the left, always the longest entry.
  std::string replace_longest(std::string_view text) const;
  // Follows Hugging Face's rule ("Precompiled" in tokenizer.json). The rule looks up grapheme clusters shorter than six
  // bytes as a whole. Longer clusters, and clusters without an entry, are looked up character by character. If several
  // entries are prefixes of the looked-up text, the shortest entry's replacement stands for the whole looked-up text.
  std::string replace_graphemes(std::string_view text) const;

 private:
  template <class Visit>
  void walk(std::string_view text, Visit visit) const;
  std::optional<Match> match_at(std::size_t length, std::uint32_t offset) const;

  std::vector<std::uint32_t> units_;
  std::string texts_;  // ends with a zero byte
};

}  // namespace tessera

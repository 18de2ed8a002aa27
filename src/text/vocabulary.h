// Looks up tokens by id and ids by token. All tokens are stored in one block of memory. A hash table with open
// addressing finds a token's id.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"

namespace tessera {

// Const functions are thread-safe.
class Vocabulary {
 public:
  // Reserves room for `count` tokens of `bytes` bytes in total. More may be added, but more slowly.
  void reserve(std::size_t count, std::size_t bytes);

  // Adds a token. Returns invalid_argument if the token already has another id, or if the id already has another token.
  // Adding the same pair again is not an error. Precondition: 0 <= id < kMaxVocabularySize.
  Status add(std::string_view token, std::int32_t id);

  // Returns the id, or -1.
  std::int32_t find(std::string_view token) const;
  // Returns the token of an id, valid until the next add().
  std::optional<std::string_view> token(std::int32_t id) const;
  // Returns the greatest id + 1.
  std::int32_t size() const { return static_cast<std::int32_t>(tokens_.size()); }

 private:
  struct Span {
    std::size_t begin = 0;
    std::uint32_t length = 0;
    bool present = false;
  };
  std::string_view view(const Span& span) const { return std::string_view(bytes_).substr(span.begin, span.length); }
  std::size_t slot_of(std::string_view token) const;  // the token's slot, or the free slot where it belongs
  void grow(std::size_t slots);

  std::string bytes_;
  std::vector<Span> tokens_;         // [id]: the place of each token in bytes_
  std::vector<std::int32_t> slots_;  // id in each slot, -1: free; the size is a power of two, at most half is used
  std::size_t count_ = 0;
};

// Returns the ids of "<0x00>" to "<0xFF>", the tokens of single bytes; -1 if there is none.
std::array<std::int32_t, 256> find_byte_tokens(const Vocabulary& vocabulary);

}  // namespace tessera

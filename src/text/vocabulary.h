// Tokens by id and ids by token: one open hash table over strings that lie in one block.
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
  // Room for `count` tokens of `bytes` bytes together; more may be added, slower.
  void reserve(std::size_t count, std::size_t bytes);

  // invalid_argument where the token or the id is there already with another partner; adding the same
  // pair again is no error. Precondition: 0 <= id < kMaxVocabularySize.
  Status add(std::string_view token, std::int32_t id);

  // The id, or -1.
  std::int32_t find(std::string_view token) const;
  // Valid until the next add().
  std::optional<std::string_view> token(std::int32_t id) const;
  // One more than the greatest id.
  std::int32_t size() const { return static_cast<std::int32_t>(tokens_.size()); }

 private:
  struct Span {
    std::size_t begin = 0;
    std::uint32_t length = 0;
    bool present = false;
  };
  std::string_view view(const Span& span) const { return std::string_view(bytes_).substr(span.begin, span.length); }
  std::size_t slot_of(std::string_view token) const;  // where it is, or the free slot where it would be
  void grow(std::size_t slots);

  std::string bytes_;
  std::vector<Span> tokens_;         // by id
  std::vector<std::int32_t> slots_;  // ids; -1: free; a power of two, at most half full
  std::size_t count_ = 0;
};

// The ids of "<0x00>" to "<0xFF>", the tokens of single bytes; -1 where there is none.
std::array<std::int32_t, 256> find_byte_tokens(const Vocabulary& vocabulary);

}  // namespace tessera

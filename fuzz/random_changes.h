// Random choices, and random changes of bytes and texts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <random>
#include <string>
#include <string_view>

#include "tessera/text/unicode.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace tessera::fuzz {

using Random = std::minstd_rand;

// Returns a number from 0 to count - 1. Precondition: count > 0.
inline std::size_t below(std::size_t count, Random& random) { return random() % count; }

// Precondition: the list is not empty.
template <class List>
auto& one_of(List& list, Random& random) {
  return list[below(std::size(list), random)];
}

// Changes bytes by libFuzzer's own mutations.
inline void mutate_bytes(std::string& bytes, std::size_t max_size) {
  const std::size_t size = bytes.size();
  bytes.resize(max_size);
  bytes.resize(LLVMFuzzerMutate(reinterpret_cast<std::uint8_t*>(bytes.data()), size, max_size));
}

// Changes a text, which stays UTF-8. Texts of more than 4096 bytes stay as they are.
inline void mutate_text(std::string& text) {
  constexpr std::size_t kMostText = 4096;
  if (text.size() > kMostText) return;
  mutate_bytes(text, text.size() + 32);
  if (find_invalid_utf8(text) == std::string_view::npos) return;
  for (char& c : text) c = static_cast<char>(c & 0x7f);
}

}  // namespace tessera::fuzz

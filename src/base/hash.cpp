#include "tessera/base/hash.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

namespace tessera {
namespace {

// Mixes the bits with the finaliser of MurmurHash3 (public domain, Austin Appleby). Every input bit affects every
// output bit.
std::uint64_t mix(std::uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdull;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ull;
  x ^= x >> 33;
  return x;
}

}  // namespace

std::string Hash128::hex() const { return fmt::format("{:016x}{:016x}", high, low); }

void Hasher::add_word(std::uint64_t word) {
  a_ = mix(a_ ^ word) + std::rotl(b_, 29);
  b_ = mix(b_ + word * 0x9fb21c651e98df25ull) ^ std::rotl(a_, 17);
}

void Hasher::add(std::string_view bytes) {
  add_word(bytes.size());
  while (bytes.size() >= 8) {
    std::uint64_t word;
    std::memcpy(&word, bytes.data(), 8);
    if constexpr (std::endian::native == std::endian::big) word = __builtin_bswap64(word);
    add_word(word);
    bytes.remove_prefix(8);
  }
  std::uint64_t tail = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) tail |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  if (!bytes.empty()) add_word(tail);
}

void Hasher::add(double value) { add_word(std::bit_cast<std::uint64_t>(value)); }

Hash128 Hasher::finish() const { return {mix(a_ ^ std::rotl(b_, 32)), mix(b_ + a_)}; }

}  // namespace tessera

// Writes the codes of a block of 32 numbers, as Q4_0, Q4_1, Q5_0 and Q5_1 store them.
#pragma once

#include <cstdint>
#include <cstring>

#include "tessera/base/float16.h"

namespace tessera {

// Writes the lower four bits of 32 codes: those of the first 16 codes into the lower halves of bytes, and the others
// into the upper halves.
TESSERA_INLINE void put_nibbles(const std::uint32_t* codes, std::uint8_t* to) {
  for (int i = 0; i < 16; ++i) to[i] = static_cast<std::uint8_t>((codes[i] & 15u) | codes[i + 16] << 4u);
}

// Writes the fifth bits of 32 codes.
TESSERA_INLINE void put_fifth_bits(const std::uint32_t* codes, std::uint8_t* to) {
  std::uint32_t bits = 0;
  for (int i = 0; i < 32; ++i) bits |= (codes[i] >> 4u) << i;
  std::memcpy(to, &bits, sizeof(bits));
}

}  // namespace tessera

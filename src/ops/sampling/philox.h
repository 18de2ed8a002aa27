// Philox4x32-10, a random number generator without state. Its numbers are a function of a key and a counter. See Salmon
// et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <array>
#include <cstdint>

namespace tessera {

constexpr std::array<std::uint32_t, 4> philox4x32_10(std::array<std::uint32_t, 4> counter,
                                                     std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return counter;
}

// Returns the random number of one drawn token, uniform over 64 bits. The key has the low and the high half of the seed
// as its two words. The counter is (choice, position, 0, 0). The first word of the output is the high half of the
// result, and the second word is the low half.
constexpr std::uint64_t sampling_bits(std::int64_t seed, std::int32_t choice, std::int32_t position) {
  const std::uint64_t s = static_cast<std::uint64_t>(seed);
  const std::array<std::uint32_t, 4> words =
      philox4x32_10({static_cast<std::uint32_t>(choice), static_cast<std::uint32_t>(position), 0, 0},
                    {static_cast<std::uint32_t>(s), static_cast<std::uint32_t>(s >> 32)});
  return std::uint64_t{words[0]} << 32 | words[1];
}

}  // namespace tessera

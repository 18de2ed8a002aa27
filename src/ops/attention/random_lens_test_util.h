// Helpers for tests of attention's schedules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace tessera::testing {

// Returns `count` random lengths from 1 to `greatest`.
inline std::vector<std::int32_t> random_lens(std::size_t count, std::int32_t greatest, std::uint32_t seed) {
  std::mt19937 generator(seed);
  std::uniform_int_distribution<std::int32_t> uniform(1, greatest);
  std::vector<std::int32_t> lens(count);
  for (std::int32_t& len : lens) len = uniform(generator);
  return lens;
}

}  // namespace tessera::testing

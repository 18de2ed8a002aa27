// The code books of GGUF's IQ1, IQ2 and IQ3 types. An entry stands for 8 neighbouring magnitudes of a row (IQ3: for 4).
// It holds an index of 2 bits for each magnitude (IQ3: of 4 bits), the first in the lowest bits.
#pragma once

#include <cstdint>

namespace tessera {

extern const std::uint16_t kIq2XxsGrid[256];
extern const std::uint16_t kIq2XsGrid[512];
extern const std::uint16_t kIq2SGrid[1024];
extern const std::uint16_t kIq3XxsGrid[256];
extern const std::uint16_t kIq3SGrid[512];
extern const std::uint16_t kIq1Grid[2048];

// The numbers that the indices stand for.
inline constexpr float kIq1Numbers[4] = {-1, 0, 1, 0};
inline constexpr float kIq2Numbers[4] = {8, 25, 43, 0};
inline constexpr float kIq3XxsNumbers[8] = {4, 12, 20, 28, 36, 44, 52, 62};
inline constexpr float kIq3SNumbers[8] = {1, 3, 5, 7, 9, 11, 13, 15};

}  // namespace tessera

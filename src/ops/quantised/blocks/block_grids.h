// The code books of GGUF's IQ1, IQ2 and IQ3 types. An entry of 16 bits stands for neighbouring magnitudes
// of a row: 8 codes of 2 bits in IQ1 and IQ2, and 4 codes of 4 bits in IQ3. The first code is in the lowest bits. A
// code is an index into the type's list of magnitudes.
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

// Converts blocks whose values are looked up in code books, for dequantise(). Each function writes the 256 numbers of
// one block of a GGUF type.
#pragma once

#include <cstdint>

namespace tessera {

void dequantise_iq1_s(const std::uint8_t* block, float* y);
void dequantise_iq1_m(const std::uint8_t* block, float* y);
void dequantise_iq2_xxs(const std::uint8_t* block, float* y);
void dequantise_iq2_xs(const std::uint8_t* block, float* y);
void dequantise_iq2_s(const std::uint8_t* block, float* y);
void dequantise_iq3_xxs(const std::uint8_t* block, float* y);
void dequantise_iq3_s(const std::uint8_t* block, float* y);

}  // namespace tessera

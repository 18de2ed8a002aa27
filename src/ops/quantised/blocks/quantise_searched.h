// Rounds numbers to the types of GGUF whose scales are searched, for quantise(). Each function writes `count` blocks of
// one type.
#pragma once

#include <cstdint>

namespace tessera {

void quantise_q2_k(const float* x, std::int64_t count, std::uint8_t* blocks);
void quantise_q3_k(const float* x, std::int64_t count, std::uint8_t* blocks);
void quantise_q4_k(const float* x, std::int64_t count, std::uint8_t* blocks);
void quantise_q5_k(const float* x, std::int64_t count, std::uint8_t* blocks);
void quantise_q6_k(const float* x, std::int64_t count, std::uint8_t* blocks);
void quantise_iq4_nl(const float* x, std::int64_t count, std::uint8_t* blocks);
void quantise_iq4_xs(const float* x, std::int64_t count, std::uint8_t* blocks);

}  // namespace tessera

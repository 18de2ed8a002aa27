// Rounds numbers to the types of GGUF whose scales are searched, for quantise(). Each function writes `count` blocks of
// one type. `importance` may be null, except in the functions whose names end in "important".
#pragma once

#include <cstdint>

namespace tessera {

void quantise_q2_k(const float* x, const float* importance, std::int64_t count, std::uint8_t* blocks);
void quantise_q3_k(const float* x, const float* importance, std::int64_t count, std::uint8_t* blocks);
void quantise_q4_k(const float* x, const float* importance, std::int64_t count, std::uint8_t* blocks);
void quantise_q5_k(const float* x, const float* importance, std::int64_t count, std::uint8_t* blocks);
void quantise_q6_k(const float* x, const float* importance, std::int64_t count, std::uint8_t* blocks);
void quantise_iq4_nl(const float* x, const float* importance, std::int64_t count, std::uint8_t* blocks);
void quantise_iq4_xs(const float* x, const float* importance, std::int64_t count, std::uint8_t* blocks);

// Without importances the scales of these types follow from the extremes of a block (quantise.cpp).
void quantise_q4_0_important(const float* x, const float* importance, std::int64_t count, std::uint8_t* blocks);
void quantise_q4_1_important(const float* x, const float* importance, std::int64_t count, std::uint8_t* blocks);
void quantise_q5_0_important(const float* x, const float* importance, std::int64_t count, std::uint8_t* blocks);
void quantise_q5_1_important(const float* x, const float* importance, std::int64_t count, std::uint8_t* blocks);

}  // namespace tessera

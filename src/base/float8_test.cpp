// Catches: a bit pattern of the 8-bit format E4M3 that stands for the wrong number or does not survive a round trip;
// ties that are not rounded to even; magnitudes that wrap instead of saturating; NaN that becomes a number.
#include "tessera/base/float8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

namespace tessera {
namespace {

float number(int bits) { return to_float(Float8E4M3{static_cast<std::uint8_t>(bits)}); }
int bits_of(float x) { return from_float<Float8E4M3>(x).bits; }

TEST(Float8, HasTheNumbersOfE4M3) {
  for (int bits = 0; bits < 0x7f; ++bits) {
    const int exponent = bits >> 3;
    const int mantissa = bits & 7;
    const double expected = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
    EXPECT_EQ(number(bits), expected) << bits;
    EXPECT_EQ(number(bits | 0x80), -expected) << bits;
  }
  EXPECT_TRUE(std::isnan(number(0x7f)));
  EXPECT_TRUE(std::isnan(number(0xff)));
}

TEST(Float8, EveryNumberSurvivesARoundTrip) {
  for (int bits = 0; bits < 0x100; ++bits) {
    if ((bits & 0x7f) == 0x7f) continue;
    EXPECT_EQ(bits_of(number(bits)), bits);
  }
}

TEST(Float8, RoundsToNearestAndTiesToEven) {
  for (int bits = 0; bits < 0x7e; ++bits) {
    const float low = number(bits);
    const float high = number(bits + 1);
    const float middle = (low + high) / 2;
    for (const int sign : {0, 0x80}) {
      const auto signed_bits = [&](float x) { return bits_of(sign == 0 ? x : -x); };
      EXPECT_EQ(signed_bits(middle), sign | (bits % 2 == 0 ? bits : bits + 1)) << bits;
      EXPECT_EQ(signed_bits(std::nextafter(middle, low)), sign | bits) << bits;
      EXPECT_EQ(signed_bits(std::nextafter(middle, high)), sign | (bits + 1)) << bits;
    }
  }
}

TEST(Float8, SaturatesAndKeepsNan) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float x : {448.0F, 449.0F, 464.0F, 480.0F, 1e9F, std::numeric_limits<float>::max(), kInfinity}) {
    EXPECT_EQ(bits_of(x), 0x7e) << x;
    EXPECT_EQ(bits_of(-x), 0xfe) << x;
  }
  EXPECT_EQ(bits_of(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(bits_of(-0.0F), 0x80);
  for (const float x : {std::nanf(""), -std::nanf("1")}) EXPECT_TRUE(std::isnan(number(bits_of(x))));
}

}  // namespace
}  // namespace tessera

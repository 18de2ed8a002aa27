#include "tessera/engine/schema/decimal.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>

namespace tessera::schema {
namespace {

__extension__ using Wide = __int128;

constexpr int kMaxDigits = 18;
// The maximum number of digits of a step, both in total and after the point. With this limit, the products below have
// at most 33 digits. Wide holds 38 digits.
constexpr int kStepDigits = 15;
constexpr long double kMostUnits = 1e18L;

}  // namespace

std::int64_t power_of_ten(int exponent) {
  std::int64_t out = 1;
  while (exponent-- > 0) out *= 10;
  return out;
}

std::optional<Decimal> decimal_of(long double value) {
  if (std::abs(value) >= kMostUnits) return std::nullopt;
  if (std::trunc(value) == value) return Decimal{static_cast<std::int64_t>(value), 0};
  std::array<char, 40> buffer{};
  const auto [end, error] = std::to_chars(buffer.begin(), buffer.end(), static_cast<double>(value),
                                          std::chars_format::scientific);  // writes, for example, "-1.25e-02"
  if (error != std::errc()) return std::nullopt;
  const std::string_view text(buffer.data(), static_cast<std::size_t>(end - buffer.data()));
  const std::size_t exponent_at = text.find('e');
  int exponent = 0;
  std::from_chars(text.data() + exponent_at + 2, end, exponent);
  if (text[exponent_at + 1] == '-') exponent = -exponent;
  Decimal out;
  int places = -exponent;
  bool fraction = false;
  for (const char c : text.substr(0, exponent_at)) {
    if (c == '.') fraction = true;
    if (c < '0' || c > '9') continue;
    out.units = out.units * 10 + (c - '0');
    places += fraction ? 1 : 0;
  }
  // The number is not an integer here, so it has digits after the point.
  if (places > kMaxDigits) return std::nullopt;
  out.places = places;
  if (text.starts_with('-')) out.units = -out.units;
  return out;
}

bool is_step(const Decimal& step) {
  return step.units > 0 && step.units < power_of_ten(kStepDigits) && step.places <= kStepDigits;
}

bool is_multiple(long double value, const Decimal& step) {
  if (std::trunc(value) == value) {
    // The remainder of the division by step.units is a small integer, however large the value is.
    const auto rest = static_cast<std::int64_t>(std::fmod(value, static_cast<long double>(step.units)));
    return static_cast<Wide>(rest) * power_of_ten(step.places) % step.units == 0;
  }
  const std::optional<Decimal> number = decimal_of(value);
  if (!number || number->places > step.places) return false;
  return static_cast<Wide>(number->units) * power_of_ten(step.places - number->places) % step.units == 0;
}

std::optional<std::int64_t> first_multiple(long double bound, bool exclusive, const Decimal& step, int sign) {
  const std::optional<Decimal> number = decimal_of(bound);
  if (!number) return std::nullopt;
  const int places = std::max(number->places, step.places);
  const Wide units = static_cast<Wide>(number->units) * power_of_ten(places - number->places);
  const Wide step_units = static_cast<Wide>(step.units) * power_of_ten(places - step.places);
  Wide count = units / step_units;  // rounded towards 0
  const Wide rest = units - count * step_units;
  if (rest * sign > 0) count += sign;
  if (rest == 0 && exclusive) count += sign;
  if (count > static_cast<Wide>(kMostUnits) || count < -static_cast<Wide>(kMostUnits)) return std::nullopt;
  return static_cast<std::int64_t>(count);
}

}  // namespace tessera::schema

// Decimal fractions, for JSON numbers and for steps. A step is the value of the schema keyword "multipleOf".
#pragma once

#include <compare>
#include <cstdint>
#include <optional>

namespace tessera::schema {

// The number units / 10^places, with the fewest places.
struct Decimal {
  std::int64_t units = 0;  // up to 18 digits
  int places = 0;          // 0 to 18

  auto operator<=>(const Decimal&) const = default;
};

// Returns 10^exponent. Precondition: the exponent is 0 to 18.
std::int64_t power_of_ten(int exponent);
// Converts a number to a decimal: an integer exactly, any other number as the shortest decimal that reads back as the
// same double. Returns nothing if the integer part has more than 18 digits, or if more than 18 decimal places are
// needed.
std::optional<Decimal> decimal_of(long double value);
// Returns whether is_multiple() and first_multiple() are exact for multiples of `step`.
bool is_step(const Decimal& step);
// Returns whether a number is a multiple of `step`. Precondition: is_step().
bool is_multiple(long double value, const Decimal& step);
// Returns n for the first multiple n · step at or after `bound`, in the direction of `sign`. If `exclusive`, `bound`
// itself does not count. Returns nothing if the bound, or n, has too many digits. Precondition: is_step().
std::optional<std::int64_t> first_multiple(long double bound, bool exclusive, const Decimal& step, int sign);

}  // namespace tessera::schema

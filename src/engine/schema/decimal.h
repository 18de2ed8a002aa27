// Decimal fractions, in which JSON writes numbers and the steps of "multipleOf".
#pragma once

#include <cstdint>
#include <optional>

namespace tessera::schema {

// units / 10^places, with the fewest places.
struct Decimal {
  std::int64_t units = 0;  // up to 18 digits
  int places = 0;          // 0 to 18

  bool operator==(const Decimal&) const = default;
};

// 10^exponent. Precondition: 0 to 18.
std::int64_t power_of_ten(int exponent);
// An integer as it is, and a double as its shortest text; nothing where these take more than 18 digits or places.
std::optional<Decimal> decimal_of(long double value);
// Whether is_multiple() and first_multiple() tell multiples of `step` exactly.
bool is_step(const Decimal& step);
// Whether a number is a multiple of `step`. Precondition: is_step().
bool is_multiple(long double value, const Decimal& step);
// The first multiple of `step` from `bound` on, in the direction of `sign`, in steps; without `bound` itself where that
// is `exclusive`. Nothing where the bound, or the count, has too many digits. Precondition: is_step().
std::optional<std::int64_t> first_multiple(long double bound, bool exclusive, const Decimal& step, int sign);

}  // namespace tessera::schema

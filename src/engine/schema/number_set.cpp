#include "tessera/engine/schema/number_set.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tessera::schema {
namespace {

using Bound = NumberSet::Bound;

// Returns the tighter bound. `sign` is 1 for lower bounds and -1 for upper ones.
std::optional<Bound> tighter(const std::optional<Bound>& a, const std::optional<Bound>& b, int sign) {
  if (!a || !b) return a ? a : b;
  if (a->value == b->value) return Bound{a->value, a->exclusive || b->exclusive};
  return (a->value > b->value) == (sign > 0) ? a : b;
}

// Returns the first integer within a bound, in the direction of `sign`.
long double first_integer(const Bound& bound, int sign) {
  const long double whole = sign > 0 ? std::ceil(bound.value) : std::floor(bound.value);
  return bound.exclusive && whole == bound.value ? whole + sign : whole;
}

bool within(const NumberSet& set, long double value) {
  if (set.low && (value < set.low->value || (set.low->exclusive && value == set.low->value))) return false;
  return !set.high || (value <= set.high->value && !(set.high->exclusive && value == set.high->value));
}

}  // namespace

long double value_of(const Json& number) {
  return number.is_int() ? static_cast<long double>(number.as_int()) : static_cast<long double>(number.as_double());
}

NumberSet both(const NumberSet& a, const NumberSet& b) {
  NumberSet out{.integer = a.integer || b.integer,
                .low = tighter(a.low, b.low, 1),
                .high = tighter(a.high, b.high, -1),
                .multiples = a.multiples};
  for (const Decimal& one : b.multiples) {
    if (std::ranges::find(out.multiples, one) == out.multiples.end()) out.multiples.push_back(one);
  }
  return out;
}

bool provably_empty(const NumberSet& set) {
  if (!set.low || !set.high) return false;
  std::vector<Decimal> steps = set.multiples;
  if (set.integer) steps.push_back({1, 0});
  for (const Decimal& step : steps) {
    const auto first = first_multiple(set.low->value, set.low->exclusive, step, 1);
    const auto last = first_multiple(set.high->value, set.high->exclusive, step, -1);
    if (first && last && *first > *last) return true;
  }
  return set.low->value > set.high->value ||
         (set.low->value == set.high->value && (set.low->exclusive || set.high->exclusive));
}

bool contains(const NumberSet& set, const Json& number) {
  const long double value = value_of(number);
  if (set.integer && std::trunc(value) != value) return false;
  return within(set, value) &&
         std::ranges::all_of(set.multiples, [&](const Decimal& step) { return is_multiple(value, step); });
}

std::optional<std::vector<NumberSet>> without(const NumberSet& set, const NumberSet& other) {
  if (!other.multiples.empty() || (other.integer && !set.integer)) return std::nullopt;
  std::vector<NumberSet> out;
  if (other.low) {
    out.push_back(both(set, {.high = Bound{other.low->value, !other.low->exclusive}}));
    if (provably_empty(out.back())) out.pop_back();
  }
  if (other.high) {
    out.push_back(both(set, {.low = Bound{other.high->value, !other.high->exclusive}}));
    if (provably_empty(out.back())) out.pop_back();
  }
  return out;
}

std::optional<std::vector<std::int64_t>> finite_integers(const NumberSet& set, std::int64_t most) {
  const bool whole =
      set.integer || std::ranges::any_of(set.multiples, [](const Decimal& step) { return step.places == 0; });
  if (!whole || !set.low || !set.high) return std::nullopt;
  const long double first = first_integer(*set.low, 1);
  const long double last = first_integer(*set.high, -1);
  if (last - first >= static_cast<long double>(most) || std::abs(first) > 1e17L || std::abs(last) > 1e17L)
    return std::nullopt;
  std::vector<std::int64_t> out;
  for (auto value = static_cast<std::int64_t>(first); value <= static_cast<std::int64_t>(last); ++value) {
    if (contains(set, Json(value))) out.push_back(value);
  }
  return out;
}

}  // namespace tessera::schema

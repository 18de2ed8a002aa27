// The numbers that a schema allows, and their texts.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/engine/schema/automaton.h"
#include "tessera/engine/schema/decimal.h"
#include "tessera/engine/schema/ebnf.h"

namespace tessera::schema {

// A set of numbers, of which only some are generated as text. Generated integers have up to 18 digits and no exponent,
// so they fit 64 bits. If the set has bounds, its other generated numbers have no exponent and up to 15 digits, up to 9
// of them after the point. A double keeps 15 digits, so two different numbers of this form are two different doubles,
// and a bound also holds for the double that a JSON parser makes of the text.
//
// Numbers are decimals, as in the JSON Schema standard: 0.07 is a multiple of 0.01. A validator that divides doubles
// may refuse 0.07.
struct NumberSet {
  struct Bound {
    long double value = 0;  // holds every double and every 64-bit integer exactly
    bool exclusive = false;

    auto operator<=>(const Bound&) const = default;
  };
  bool integer = false;
  std::optional<Bound> low{};
  std::optional<Bound> high{};
  std::vector<Decimal> multiples{};  // steps of which a number must be a multiple; is_step() holds for each

  bool free() const { return !integer && !low && !high && multiples.empty(); }
  auto operator<=>(const NumberSet&) const = default;
};

// Returns the exact value of a JSON number. Precondition: `number` holds a number.
long double value_of(const Json& number);

NumberSet both(const NumberSet& a, const NumberSet& b);
// Returns true only if the set is empty. Returns false for some empty sets too.
bool provably_empty(const NumberSet& set);
bool contains(const NumberSet& set, const Json& number);
// Subtracts `other` from `set`: returns the parts below and above `other`. Returns nothing if these parts are possibly
// not the whole difference.
std::optional<std::vector<NumberSet>> without(const NumberSet& set, const NumberSet& other);
// Returns all numbers of a set of integers if the set's bounds enclose at most `most` integers. Otherwise returns
// nothing.
std::optional<std::vector<std::int64_t>> finite_integers(const NumberSet& set, std::int64_t most);
// Returns whether any number of the set has a text. This costs little if the set has no steps ("multipleOf"). Returns
// the same errors as number_ebnf().
Result<bool> has_texts(const NumberSet& set, WorkLimit& work);
// Returns an expression for the numbers' texts, or nothing if no number has a text. Returns unimplemented if a bound
// has more digits than generated numbers can have.
Result<std::optional<std::string>> number_ebnf(const NumberSet& set, EbnfRules& rules, WorkLimit& work);

}  // namespace tessera::schema

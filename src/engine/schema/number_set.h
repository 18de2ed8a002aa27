// The numbers that a schema allows, and their texts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/engine/schema/automaton.h"
#include "tessera/engine/schema/ebnf.h"

namespace tessera::schema {

// Texts are a part of the numbers: integers have up to 18 digits and no exponent (they fit 64 bits); numbers within
// bounds have up to 15 digits, of which up to 9 after the point, and no exponent, so that two different texts are two
// different doubles and a bound holds for the number that a reader makes of the text.
struct NumberSet {
  struct Bound {
    long double value = 0;  // holds every double and every 64-bit integer
    bool exclusive = false;
  };
  bool integer = false;
  std::optional<Bound> low{};
  std::optional<Bound> high{};
  std::vector<long double> multiples{};  // of each of them; each a sum of powers of two, so that division is exact

  bool free() const { return !integer && !low && !high && multiples.empty(); }
};

NumberSet both(const NumberSet& a, const NumberSet& b);
// Whether certainly no number is in the set.
bool provably_empty(const NumberSet& set);
bool contains(const NumberSet& set, const Json& number);
// The parts of `set` below and above `other`, where these are all of its numbers that `other` lacks; nothing where
// that cannot be said.
std::optional<std::vector<NumberSet>> without(const NumberSet& set, const NumberSet& other);
// All integers of the set, where they are `most` at most.
std::optional<std::vector<std::int64_t>> finite_integers(const NumberSet& set, std::int64_t most);
// An expression for the texts; nothing where there is none. unimplemented where a bound has more digits than texts.
Result<std::optional<std::string>> number_ebnf(const NumberSet& set, EbnfRules& rules, WorkLimit& work);

}  // namespace tessera::schema

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "tessera/engine/schema/number_set.h"
#include "tessera/engine/schema/regex.h"

namespace tessera::schema {
namespace {

constexpr int kIntegerDigits = 18;
constexpr int kDigits = 15;          // maximum number of digits of a number within bounds
constexpr int kFractionDigits = 9;   // maximum number of digits after the point
constexpr int kUnboundedDigits = 9;  // if a bound is missing, numbers may have this many digits before the point

Regex digit(char first, char last) {
  return make_class(CharSet({{static_cast<char32_t>(first), static_cast<char32_t>(last)}}));
}
Regex digits(int min, int max) { return make_repeat(digit('0', '9'), min, max); }
Regex nothing() { return make_sequence({}); }

// A step of a walk over the digits of the numbers between the bounds `low` and `high`, which have equally many digits.
// `at` is the index of the next digit.
struct DigitWalk {
  const std::string& low;
  const std::string& high;
  std::size_t at = 0;
  bool on_low = true;  // the digits so far equal those of `low`
  bool on_high = true;

  int left() const { return static_cast<int>(low.size() - at); }
  DigitWalk next(bool stays_on_low, bool stays_on_high) const {
    return {low, high, at + 1, stays_on_low, stays_on_high};
  }
};

// Adds to `choices` the regexes for the possible next digits. Each regex is a digit or a range of digits, followed by
// the regex that `rest` returns for the walk after this digit.
template <class Rest>
void add_digits(const DigitWalk& walk, const Rest& rest, std::vector<Regex>& choices) {
  const char first = walk.on_low ? walk.low[walk.at] : '0';
  const char last = walk.on_high ? walk.high[walk.at] : '9';
  const auto add = [&](char from, char to, bool on_low, bool on_high) {
    if (from <= to) choices.push_back(make_sequence({digit(from, to), rest(walk.next(on_low, on_high))}));
  };
  if (first >= last) return add(first, last, walk.on_low, walk.on_high);
  if (walk.on_low) add(first, first, true, false);
  add(static_cast<char>(first + (walk.on_low ? 1 : 0)), static_cast<char>(last - (walk.on_high ? 1 : 0)), false, false);
  if (walk.on_high) add(last, last, false, true);
}

// Returns a regex of the digits after the point for numbers from 0.`low` to 0.`high`, where `low` and `high` are
// strings of digits. Trailing zeros may be left out.
Regex fraction_digits(const DigitWalk& walk) {
  if (walk.left() == 0) return nothing();
  if (!walk.on_low && !walk.on_high) return digits(0, walk.left());
  std::vector<Regex> choices;
  if (walk.at > 0 && (!walk.on_low || walk.low.find_first_not_of('0', walk.at) == std::string::npos))
    choices.push_back(nothing());
  add_digits(walk, fraction_digits, choices);
  return make_choice(std::move(choices));
}

Regex fraction(std::int64_t low, std::int64_t high, int length) {
  if (length == 0) return nothing();
  const std::string low_text = fmt::format("{:0{}}", low, length);
  const std::string high_text = fmt::format("{:0{}}", high, length);
  Regex some = make_sequence({make_text("."), fraction_digits({.low = low_text, .high = high_text})});
  return low == 0 ? make_repeat(std::move(some), 0, 1) : some;
}

Regex same_length(const DigitWalk& walk) {
  if (walk.left() == 0) return nothing();
  if (!walk.on_low && !walk.on_high) return digits(walk.left(), walk.left());
  std::vector<Regex> choices;
  add_digits(walk, same_length, choices);
  return make_choice(std::move(choices));
}

// Returns a regex of the integers from `low` to `high`. Precondition: 0 <= low <= high.
Regex whole_numbers(std::int64_t low, std::int64_t high) {
  std::vector<Regex> choices;
  const auto length = [](std::int64_t value) { return static_cast<int>(std::to_string(value).size()); };
  for (int n = length(low); n <= length(high); ++n) {
    const std::string from = std::to_string(std::max(low, n == 1 ? 0 : power_of_ten(n - 1)));
    const std::string to = std::to_string(std::min(high, power_of_ten(n) - 1));
    choices.push_back(same_length({.low = from, .high = to}));
  }
  return make_choice(std::move(choices));
}

// Returns a regex of the decimals from `low` to `high`, both in units of 10^-places. Precondition: 0 <= low <= high.
Regex decimals(std::int64_t low, std::int64_t high, int places) {
  const std::int64_t unit = power_of_ten(places);
  const std::int64_t low_whole = low / unit;
  const std::int64_t high_whole = high / unit;
  const auto numbers = [&](std::int64_t from, std::int64_t to, std::int64_t from_rest, std::int64_t to_rest) {
    return make_sequence({whole_numbers(from, to), fraction(from_rest, to_rest, places)});
  };
  if (low_whole == high_whole) return numbers(low_whole, low_whole, low % unit, high % unit);
  std::vector<Regex> choices = {numbers(low_whole, low_whole, low % unit, unit - 1),
                                numbers(high_whole, high_whole, 0, high % unit)};
  if (low_whole + 1 < high_whole) choices.push_back(numbers(low_whole + 1, high_whole - 1, 0, unit - 1));
  return make_choice(std::move(choices));
}

// Does the same as decimals(), but also for negative bounds. Precondition: low <= high.
Regex signed_decimals(std::int64_t low, std::int64_t high, int places) {
  std::vector<Regex> choices;
  if (high >= 0) choices.push_back(decimals(std::max<std::int64_t>(low, 0), high, places));
  const std::int64_t least = std::max<std::int64_t>(-high, 1);  // at least 1, so that "-0" is excluded
  if (-low >= least) choices.push_back(make_sequence({make_text("-"), decimals(least, -low, places)}));
  return make_choice(std::move(choices));
}

// Returns the number of digits after the point in the double's shortest text without an exponent. If there are more
// than kIntegerDigits of them, returns kIntegerDigits + 1.
int places_of(long double value) {
  if (std::trunc(value) == value) return 0;
  const std::optional<Decimal> number = decimal_of(value);
  return number ? number->places : kIntegerDigits + 1;
}

// Returns the number of digits before the point. Precondition: there are at most kDigits.
int whole_digits(long double value) {
  int out = 1;
  for (std::int64_t rest = std::abs(static_cast<std::int64_t>(value)); rest >= 10; rest /= 10) ++out;
  return out;
}

struct Units {
  std::int64_t low = 0;
  std::int64_t high = 0;
  int places = 0;
};

// Returns the bound in units of 10^-places. Rounding gives the decimal that the schema's text has, although the double
// is not exactly that decimal.
std::int64_t units_of(long double value, int places) {
  return static_cast<std::int64_t>(std::round(value * static_cast<long double>(power_of_ten(places))));
}

Status too_many_digits() {
  return unimplemented(fmt::format("numbers of more than {} digits are not generated between bounds", kDigits));
}

// Returns the bounds of a set of multiples. Multiples have no more decimal places than their steps. A bound with more
// places therefore moves inwards to the next number with few enough places.
Result<Units> units_of_multiples(const NumberSet& set) {
  Units out;
  for (const Decimal& step : set.multiples) out.places = std::max(out.places, step.places);
  const std::int64_t most = power_of_ten(kDigits) - 1;
  const auto units = [&](const std::optional<NumberSet::Bound>& bound, int sign) -> Result<std::int64_t> {
    // A bound that no text reaches has no effect.
    if (!bound || bound->value * sign <= -static_cast<long double>(most)) return -sign * most;
    const auto first = first_multiple(bound->value, bound->exclusive, {1, out.places}, sign);
    if (!first || *first * sign > most) return too_many_digits();
    return std::clamp(*first, -most, most);
  };
  out.low = TRY(units(set.low, 1));
  out.high = TRY(units(set.high, -1));
  return out;
}

Result<Units> units_between(const NumberSet& set) {
  Units out;
  long double low = set.low ? set.low->value : 0;
  long double high = set.high ? set.high->value : 0;
  const bool whole = set.integer;
  if (whole) {
    const auto most = static_cast<long double>(power_of_ten(kIntegerDigits) - 1);
    low = set.low ? std::ceil(low) + (set.low->exclusive && std::ceil(low) == low ? 1 : 0) : -most;
    high = set.high ? std::floor(high) - (set.high->exclusive && std::floor(high) == high ? 1 : 0) : most;
    if (low > most || high < -most) {
      return unimplemented(fmt::format("integers of more than {} digits are not generated", kIntegerDigits));
    }
    return Units{static_cast<std::int64_t>(std::max(low, -most)), static_cast<std::int64_t>(std::min(high, most)), 0};
  }
  if (!set.multiples.empty()) return units_of_multiples(set);
  const auto reach = static_cast<long double>(power_of_ten(kDigits));
  if (low >= reach || high <= -reach) return too_many_digits();
  // A bound beyond all texts has no effect.
  const bool has_low = set.low && low > -reach;
  const bool has_high = set.high && high < reach;
  if (!has_low) low = 0;
  if (!has_high) high = 0;
  int before = std::max(whole_digits(low), whole_digits(high));
  if (!has_low || !has_high) before = std::max(before + 1, kUnboundedDigits);
  const int needed = std::max(places_of(low), places_of(high));
  out.places = std::clamp(kDigits - before, needed, std::max(needed, kFractionDigits));
  if (before + out.places > kDigits) return too_many_digits();
  const std::int64_t most = power_of_ten(before + out.places) - 1;
  out.low = has_low ? units_of(low, out.places) + (set.low->exclusive ? 1 : 0) : -most;
  out.high = has_high ? units_of(high, out.places) - (set.high->exclusive ? 1 : 0) : most;
  return out;
}

// Makes an automaton that accepts the texts of decimals that, in units of 10^-places, are multiples of `step`. In state
// place * step + rest, `place` digits after the point were read, and the units so far leave the remainder `rest`.
Automaton multiples_automaton(std::int64_t step, int places) {
  Automaton out{.starts = {0, '-', '.', '/'}};
  for (char32_t c = '0'; c <= ':'; ++c) out.starts.push_back(c);
  const auto count = static_cast<std::int32_t>(step);
  for (int place = 0; place <= places; ++place) {
    for (std::int64_t rest = 0; rest < step; ++rest) {
      const std::int64_t scale = power_of_ten(places - place) % step;
      out.accepts.push_back(rest * scale % step == 0 ? 1 : 0);
      const auto here = static_cast<std::int32_t>(place * count + rest);
      // A digit after the point moves to the next place. The point itself leads to states that the loop at the end
      // adds.
      const bool digits_follow = place < places || places == 0;
      out.next.insert(
          out.next.end(),
          {kNoState, place == 0 ? here : kNoState,
           place == 0 && places > 0 ? static_cast<std::int32_t>((places + 1) * count + rest) : kNoState, kNoState});
      for (std::int64_t d = 0; d < 10; ++d) {
        const auto to = static_cast<std::int32_t>((rest * 10 + d) % step);
        const bool whole = place == 0;
        out.next.push_back(whole ? to : digits_follow ? (place + 1) * count + to : kNoState);
      }
      out.next.push_back(kNoState);
    }
  }
  // Adds the states directly after the point. They accept nothing, because a digit must follow.
  for (std::int64_t rest = 0; places > 0 && rest < step; ++rest) {
    out.accepts.push_back(0);
    out.next.insert(out.next.end(), 4, kNoState);
    for (std::int64_t d = 0; d < 10; ++d) out.next.push_back(static_cast<std::int32_t>(count + (rest * 10 + d) % step));
    out.next.push_back(kNoState);
  }
  return out;
}

// Returns `step` in units of 10^-places. Returns unimplemented if an automaton of the step's multiples would have too
// many states.
Result<std::int64_t> step_in_units(const Decimal& step, const NumberSet& set, int places) {
  // For integers, the step becomes an integer: an integer is a multiple of 1.5 if and only if it is a multiple of 3.
  const std::int64_t whole = step.units / std::gcd(step.units, power_of_ten(step.places));
  const auto most = static_cast<std::int64_t>(kMaxStates) / (places + 2);
  const std::int64_t scale = set.integer ? 1 : power_of_ten(places - step.places);
  const std::int64_t units = set.integer ? whole : step.units;
  if (units <= most / scale) return units * scale;
  return unimplemented(fmt::format("multiples of {} take more than {} states of an automaton",
                                   static_cast<double>(step.units) / static_cast<double>(power_of_ten(step.places)),
                                   kMaxStates));
}

bool bounded(const NumberSet& set) { return !set.multiples.empty() || set.low || set.high; }

// The texts of a bounded set: decimals that lie between two bounds and are multiples of each step.
struct BoundedTexts {
  Units units;
  std::vector<std::int64_t>
      steps;  // in units; steps of one unit are left out, because every text is a multiple of one unit

  bool empty() const { return units.low > units.high; }
  Regex between() const { return signed_decimals(units.low, units.high, units.places); }
};

Result<BoundedTexts> texts_of(NumberSet set) {
  for (const Decimal& step : set.multiples) set.integer |= step.places == 0;  // multiples of an integer are integers
  BoundedTexts out;
  out.units = TRY(units_between(set));
  if (out.empty()) return out;
  for (const Decimal& step : set.multiples) {
    const std::int64_t one = TRY(step_in_units(step, set, out.units.places));
    if (one > 1) out.steps.push_back(one);
  }
  return out;
}

// Precondition: the texts are not empty.
Result<Automaton> automaton_of(const BoundedTexts& texts, WorkLimit& work) {
  Automaton out = TRY(make_automaton(make_whole(texts.between()), Reading::kNarrow, work));
  for (const std::int64_t step : texts.steps) {
    const Automaton multiples = TRY(minimised(multiples_automaton(step, texts.units.places), work));
    out = TRY(minimised(TRY(intersection(out, multiples, work)), work));
  }
  return out;
}

}  // namespace

Result<bool> has_texts(const NumberSet& set, WorkLimit& work) {
  if (!bounded(set)) return true;
  const BoundedTexts texts = TRY(texts_of(set));
  if (texts.empty() || texts.steps.empty()) return !texts.empty();
  TRY(work.spend(2000));
  return !TRY(automaton_of(texts, work)).empty();
}

Result<std::optional<std::string>> number_ebnf(const NumberSet& set, EbnfRules& rules, WorkLimit& work) {
  if (!bounded(set)) {
    const std::string whole = fmt::format("(\"0\" | [1-9] [0-9]{{0,{}}})", kIntegerDigits - 1);
    if (set.integer) return std::optional(fmt::format("\"0\" | \"-\"? [1-9] [0-9]{{0,{}}}", kIntegerDigits - 1));
    return std::optional(
        fmt::format("\"-\"? {} (\".\" [0-9]{{1,17}})? ([eE] [+-]? [0-9]{{1,2}})?", rules.shared(whole)));
  }
  TRY(work.spend(2000));
  const BoundedTexts texts = TRY(texts_of(set));
  if (texts.empty()) return std::optional<std::string>();
  if (texts.steps.empty()) return std::optional(ebnf_regex(texts.between(), rules, ""));
  const Automaton automaton = TRY(automaton_of(texts, work));
  if (automaton.empty()) return std::optional<std::string>();
  return std::optional(ebnf_automaton(automaton, rules, "\"\""));
}

}  // namespace tessera::schema

// Deterministic finite automata over code points. Regular expressions become automata when patterns are intersected or
// negated.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/engine/schema/char_set.h"
#include "tessera/engine/schema/regex.h"

namespace tessera::schema {

// Counts how many elementary steps the work on one schema may still take. This limits the time of all functions below.
class WorkLimit {
 public:
  // Returns invalid_argument once the steps are used up.
  Status spend(std::size_t steps);

 private:
  std::size_t left_ = 60'000'000;  // so many steps take about half a second
};

inline constexpr std::size_t kMaxStates = 4096;
inline constexpr std::int32_t kNoState = -1;

// State 0 is the initial state. Every state can reach an accepting state, unless the automaton accepts nothing.
struct Automaton {
  std::vector<char32_t> starts{};       // class c holds the characters [starts[c], starts[c + 1]); starts[0] is 0
  std::vector<std::int32_t> next{};     // target state, at [state * classes() + class]; kNoState: none
  std::vector<std::uint8_t> accepts{};  // [state]: 1 if the state accepts

  std::size_t classes() const { return starts.size(); }
  std::size_t states() const { return accepts.size(); }
  std::int32_t step(std::size_t state, std::size_t char_class) const { return next[state * classes() + char_class]; }
  // Returns the characters of a class.
  CharRange range(std::size_t char_class) const;
  bool empty() const;
  bool accepts_text(std::string_view utf8) const;
};

enum class Reading : std::uint8_t { kNarrow, kWide };  // see regex.h

// Makes the automaton of the regex's narrow or wide reading (regex.h). Returns invalid_argument if it needs more than
// kMaxStates states or more than the remaining work.
Result<Automaton> make_automaton(const Regex& regex, Reading reading, WorkLimit& work);
// Makes an automaton that accepts exactly these texts. Precondition: they are sorted and unique.
Result<Automaton> texts_automaton(const std::vector<std::string>& texts, WorkLimit& work);
// Makes an automaton that accepts texts of `min` to `max` characters; max -1: unbounded.
Result<Automaton> length_automaton(std::int64_t min, std::int64_t max);
Result<Automaton> intersection(const Automaton& a, const Automaton& b, WorkLimit& work);
Result<Automaton> complement(const Automaton& a, WorkLimit& work);
// Returns the equivalent automaton with the fewest states.
Result<Automaton> minimised(const Automaton& a, WorkLimit& work);
// Returns all accepted texts if there are at most `most`; otherwise nothing.
std::optional<std::vector<std::string>> finite_texts(const Automaton& a, std::size_t most);

}  // namespace tessera::schema

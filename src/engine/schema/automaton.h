// Deterministic automata over code points: what a regular expression comes to where patterns are intersected or must
// not match.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/engine/schema/char_set.h"
#include "tessera/engine/schema/regex.h"

namespace tessera::schema {

// Elementary steps that one schema may still take; bounds the time of everything here.
class WorkLimit {
 public:
  // invalid_argument once they are used up.
  Status spend(std::size_t steps);

 private:
  std::size_t left_ = 60'000'000;  // about half a second
};

inline constexpr std::size_t kMaxStates = 4096;
inline constexpr std::int32_t kNoState = -1;

// State 0 is the first. Every state reaches an accepting one, except where nothing is accepted.
struct Automaton {
  std::vector<char32_t> starts{};       // class c holds the characters [starts[c], starts[c + 1]); starts[0] is 0
  std::vector<std::int32_t> next{};     // [state * classes + class]; kNoState where there is none
  std::vector<std::uint8_t> accepts{};  // by state

  std::size_t classes() const { return starts.size(); }
  std::size_t states() const { return accepts.size(); }
  std::int32_t step(std::size_t state, std::size_t char_class) const { return next[state * classes() + char_class]; }
  // The characters of a class.
  CharRange range(std::size_t char_class) const;
  bool empty() const;
  bool accepts_text(std::string_view utf8) const;
};

enum class Reading : std::uint8_t { kNarrow, kWide };  // regex.h

// invalid_argument where it takes more than kMaxStates states or the work that is left.
Result<Automaton> make_automaton(const Regex& regex, Reading reading, WorkLimit& work);
// These texts alone. Precondition: sorted, each once.
Result<Automaton> texts_automaton(const std::vector<std::string>& texts, WorkLimit& work);
// Texts of `min` to `max` characters; max -1: without end.
Result<Automaton> length_automaton(std::int64_t min, std::int64_t max);
Result<Automaton> intersection(const Automaton& a, const Automaton& b, WorkLimit& work);
Result<Automaton> complement(const Automaton& a, WorkLimit& work);
// The fewest states.
Result<Automaton> minimised(const Automaton& a, WorkLimit& work);
// All texts, where there are at most `most`.
std::optional<std::vector<std::string>> finite_texts(const Automaton& a, std::size_t most);

}  // namespace tessera::schema

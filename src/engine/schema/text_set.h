// The strings that a schema allows: lengths, patterns and formats, and what is left out.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/engine/schema/automaton.h"
#include "tessera/engine/schema/ebnf.h"
#include "tessera/engine/schema/regex.h"

namespace tessera::schema {

struct TextTerm {
  Regex regex{};  // every text matches it, or none does
  bool negated = false;
  bool loose = false;  // of a format that other validators take more widely: the wide reading is all texts
  std::shared_ptr<const Automaton> left_out{};  // instead of `regex`: no text is of it
  bool exact = false;                           // `left_out` holds in the wide reading, too
};

// A conjunction.
struct TextSet {
  std::int64_t min = 0;   // code points
  std::int64_t max = -1;  // -1: without end
  std::vector<TextTerm> terms{};

  bool free() const { return min == 0 && max < 0 && terms.empty(); }
};

TextSet both(const TextSet& a, const TextSet& b);

// Works on text sets, and keeps automata of their patterns. Errors: invalid_argument where it takes too long or too
// many states.
class TextSets {
 public:
  Result<std::shared_ptr<const Automaton>> automaton(const TextSet& set, Reading reading);
  Result<bool> empty(const TextSet& set, Reading reading);
  Result<bool> contains(const TextSet& set, std::string_view text, Reading reading);
  // `set` without what the wide reading of `other` has; exact for generation, larger in the wide reading.
  Status leave_out(TextSet& set, const TextSet& other);
  // `set` without these texts. Sets that lack the same texts share an automaton.
  Status leave_out_texts(TextSet& set, std::vector<std::string> texts);
  // An expression for the JSON strings of the set, with their quotes. Precondition: not empty in the narrow reading;
  // the same `rules` in every call, since equal sets share theirs.
  Result<std::string> ebnf(const TextSet& set, EbnfRules& rules);
  // parse_regex(), once for a pattern: what is made of equal patterns is then found again.
  Result<Regex> pattern(const std::string& text);
  WorkLimit& work() { return work_; }

 private:
  Result<std::string> write(const TextSet& set, EbnfRules& rules);
  Result<const Automaton*> regex_automaton(const Regex& regex, Reading reading);

  WorkLimit work_;
  struct Kept {
    Regex regex;  // holds the key's node
    Automaton automaton;
  };
  std::map<std::pair<const RegexNode*, Reading>, Kept> kept_;
  std::map<std::vector<std::string>, std::shared_ptr<const Automaton>> of_texts_;
  Result<Automaton> make(const TextSet& set, Reading reading);

  struct Made {
    TextSet set;  // holds the key's nodes
    std::shared_ptr<const Automaton> automaton;
  };
  std::map<std::pair<std::vector<std::intptr_t>, Reading>, Made> made_;
  std::map<std::string, Regex> patterns_;
  struct Written {
    TextSet set;  // holds the key's nodes
    std::string expression;
  };
  std::map<std::vector<std::intptr_t>, Written> written_;
};

}  // namespace tessera::schema

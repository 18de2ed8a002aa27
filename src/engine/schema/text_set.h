// Sets of strings that a schema allows. A set is defined by lengths, patterns, formats and excluded texts.
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
  Regex regex{};  // the term's texts match this regex; if `negated`, they do not match it
  bool negated = false;
  bool loose = false;  // other validators accept more texts of this format, so the wide reading is all texts
  std::shared_ptr<const Automaton> left_out{};  // if set, replaces `regex`: accepts the texts that the term excludes
  bool exact = false;                           // the wide reading excludes the texts of `left_out` too
};

// The strings that satisfy all of these conditions.
struct TextSet {
  std::int64_t min = 0;   // minimum length in code points
  std::int64_t max = -1;  // maximum length in code points; -1: unbounded
  std::vector<TextTerm> terms{};

  bool free() const { return min == 0 && max < 0 && terms.empty(); }
};

TextSet both(const TextSet& a, const TextSet& b);

// Operates on text sets, and caches the automata of their patterns. Returns invalid_argument if an operation takes too
// long or needs too many states.
class TextSets {
 public:
  Result<std::shared_ptr<const Automaton>> automaton(const TextSet& set, Reading reading);
  Result<bool> empty(const TextSet& set, Reading reading);
  Result<bool> contains(const TextSet& set, std::string_view text, Reading reading);
  // Removes from `set` all texts in the wide reading (regex.h) of `other`. Afterwards the narrow reading of `set`, from
  // which texts are generated, has none of these texts. The wide reading of `set` may keep some.
  Status leave_out(TextSet& set, const TextSet& other);
  // Removes `texts` from `set`. Sets that exclude the same texts share an automaton.
  Status leave_out_texts(TextSet& set, std::vector<std::string> texts);
  // Returns an expression for the JSON strings of the set, quotes included. Preconditions: the set's narrow reading is
  // not empty, and every call passes the same `rules`, because equal sets share rules.
  Result<std::string> ebnf(const TextSet& set, EbnfRules& rules);
  // Returns parse_regex() of a pattern, and parses each pattern only once. Equal patterns therefore share the cached
  // automaton of their Regex.
  Result<Regex> pattern(const std::string& text);
  WorkLimit& work() { return work_; }

 private:
  Result<std::string> write(const TextSet& set, EbnfRules& rules);
  Result<const Automaton*> regex_automaton(const Regex& regex, Reading reading);

  WorkLimit work_;
  struct Kept {
    Regex regex;  // keeps the key's node alive
    Automaton automaton;
  };
  std::map<std::pair<const RegexNode*, Reading>, Kept> kept_;
  std::map<std::vector<std::string>, std::shared_ptr<const Automaton>> of_texts_;
  Result<Automaton> make(const TextSet& set, Reading reading);

  struct Made {
    TextSet set;  // keeps the key's nodes alive
    std::shared_ptr<const Automaton> automaton;
  };
  std::map<std::pair<std::vector<std::intptr_t>, Reading>, Made> made_;
  std::map<std::string, Regex> patterns_;
  struct Written {
    TextSet set;  // keeps the key's nodes alive
    std::string expression;
  };
  std::map<std::vector<std::intptr_t>, Written> written_;
};

}  // namespace tessera::schema

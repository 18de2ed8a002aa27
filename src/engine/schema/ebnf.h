// A grammar in xgrammar's EBNF, as text that is put together from expressions.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tessera/engine/schema/automaton.h"
#include "tessera/engine/schema/char_set.h"
#include "tessera/engine/schema/regex.h"

namespace tessera::schema {

// "text" in quotes.
std::string ebnf_text(std::string_view utf8);
// [a-z]. Precondition: not empty.
std::string ebnf_class(const CharSet& characters);
// One character of the set as it stands inside a JSON string: `"`, `\` and control characters escaped, in one way each,
// and all others raw; of large sets the raw ones alone, except where ebnf_counted() applies. xgrammar keeps masks for
// the places of one rule: a rule that ends behind every character makes it try the whole vocabulary at each, so that
// large sets must not be choices, and loops stand inside one rule. Precondition: not empty.
std::string ebnf_json_character(const CharSet& characters);
// The alternatives of one character, all of them, each without a choice.
std::vector<std::string> ebnf_json_alternatives(const CharSet& characters);
// "a", "a?", "a*", "a{2,3}", … of an expression. max -1: without end.
std::string ebnf_repeat(const std::string& expression, std::int64_t min, std::int64_t max);
// `min` to `max` characters (max -1: without end) of the rule `character`. Where a text that begins with none of them
// follows, a closing quote for example, xgrammar counts them, at a cost that does not depend on their number
// (tools/xgrammar.patch); elsewhere each is written out.
std::string ebnf_counted(const std::string& character, std::int64_t min, std::int64_t max);
// "(a | b)"; one alternative stands for itself. Precondition: not empty.
std::string ebnf_choice(const std::vector<std::string>& alternatives);

class EbnfRules {
 public:
  // The name of a rule with this body; equal bodies share one.
  std::string shared(const std::string& body);
  // A name that no other rule has.
  std::string fresh_name(std::string_view hint);
  void define(const std::string& name, const std::string& body);
  // The name of ebnf_string_end()'s rule; `body` makes it once, from its name.
  std::string string_end(const std::function<std::string(const std::string&)>& body);

  std::size_t count() const { return count_; }
  std::size_t bytes() const { return text_.size(); }
  // All rules.
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::size_t count_ = 0;
  std::size_t names_ = 0;
  std::string string_end_;
  std::unordered_map<std::string, std::string> by_body_;
};

// The narrow reading, of a text inside a JSON string; `end` follows each text: an expression that begins with a quote,
// or "". Precondition: no anchors, and something matches.
std::string ebnf_regex(const Regex& regex, EbnfRules& rules, const std::string& end);
// An expression over rules that are added; `end` (an expression) follows each text. Precondition: not empty.
std::string ebnf_automaton(const Automaton& automaton, EbnfRules& rules, const std::string& end);

// The rest of any JSON string with its closing quote, characters in all their escaped forms; halves of surrogate pairs
// are left out.
std::string ebnf_string_end(EbnfRules& rules);
// The name of a rule: a character of any JSON string, in all its escaped forms; halves of surrogate pairs are left out.
std::string ebnf_string_character(EbnfRules& rules);

}  // namespace tessera::schema

// Builds a grammar as text in xgrammar's EBNF. Most functions return an expression of this text.
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

// Returns "text" in quotes.
std::string ebnf_text(std::string_view utf8);
// Returns a character class such as [a-z]. Precondition: the set is not empty.
std::string ebnf_class(const CharSet& characters);
// Returns an expression for one character of the set inside a JSON string. `"`, `\` and control characters have one
// escaped form each. All other characters are raw. For a set of more than 1000 characters, the expression is only the
// class of the raw characters. A choice between raw and escaped forms would be a rule of its own, which ends after
// every character. xgrammar caches token masks only for positions within one rule, so it would then test the whole
// vocabulary at each character. Precondition: the set is not empty.
std::string ebnf_json_character(const CharSet& characters);
// Returns all alternatives for one character of the set. No alternative is a choice itself.
std::vector<std::string> ebnf_json_alternatives(const CharSet& characters);
// Returns the expression repeated `min` to `max` times: "a", "a?", "a*", "a{2,3}", …. max -1: unbounded.
std::string ebnf_repeat(const std::string& expression, std::int64_t min, std::int64_t max);
// Returns an expression for `min` to `max` characters (max -1: unbounded) of the rule `character`. If none of these
// characters can begin the text that follows (for example a closing quote), xgrammar counts them at a cost that does
// not depend on their number (tools/xgrammar.patch). Otherwise xgrammar writes out every repetition.
std::string ebnf_counted(const std::string& character, std::int64_t min, std::int64_t max);
// Returns "(a | b)", or a single alternative as it is. Precondition: `alternatives` is not empty.
std::string ebnf_choice(const std::vector<std::string>& alternatives);

class EbnfRules {
 public:
  // Returns the name of a rule with this body. Calls with equal bodies return the same rule.
  std::string shared(const std::string& body);
  // Returns a name that no other rule has.
  std::string fresh_name(std::string_view hint);
  void define(const std::string& name, const std::string& body);
  // Returns the name of ebnf_string_end()'s rule. `body` is called once, with that name, and returns the rule's body.
  std::string string_end(const std::function<std::string(const std::string&)>& body);

  std::size_t count() const { return count_; }
  std::size_t bytes() const { return text_.size(); }
  // Returns the text of all rules.
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::size_t count_ = 0;
  std::size_t names_ = 0;
  std::string string_end_;
  std::unordered_map<std::string, std::string> by_body_;
};

// Returns an expression for the texts of the regex's narrow reading (regex.h), as characters of a JSON string. `end` is
// an expression that follows each text. It begins with a quote, or is "". Precondition: the regex has no anchors and
// matches something.
std::string ebnf_regex(const Regex& regex, EbnfRules& rules, const std::string& end);
// Returns an expression for the automaton's texts, and adds the rules that it uses. `end` is an expression that follows
// each text. Precondition: the automaton is not empty.
std::string ebnf_automaton(const Automaton& automaton, EbnfRules& rules, const std::string& end);

// Returns an expression for the rest of any JSON string: characters, in all their escaped forms, and the closing quote.
// Halves of surrogate pairs are left out.
std::string ebnf_string_end(EbnfRules& rules);
// Returns the name of a rule for any one character of a JSON string, raw or in one of its escaped forms. Halves of
// surrogate pairs are left out.
std::string ebnf_string_character(EbnfRules& rules);

}  // namespace tessera::schema

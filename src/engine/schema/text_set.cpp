#include "tessera/engine/schema/text_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/text/unicode.h"

namespace tessera::schema {
namespace {

using Kind = RegexNode::Kind;

Reading opposite(Reading reading) { return reading == Reading::kNarrow ? Reading::kWide : Reading::kNarrow; }

bool has_empty_class(const Regex& regex) {
  if (regex->kind == Kind::kClass) return regex->narrow.empty();
  return std::ranges::any_of(regex->parts, has_empty_class);
}

bool lengths_hold(const LengthRange& lengths, const TextSet& set) {
  return lengths.min >= set.min && (set.max < 0 || (lengths.max >= 0 && lengths.max <= set.max));
}

// Folds a maximum length into a regex that consists of one repeated class and of parts of fixed length. With at most 64
// characters, "[a-z][a-z0-9]*" becomes "[a-z][a-z0-9]{0,63}". Returns null if `regex` has another form or no text is
// left.
Regex fold_lengths(const Regex& regex, const TextSet& set) {
  std::vector<Regex> parts = regex->kind == Kind::kSequence ? regex->parts : std::vector<Regex>{regex};
  std::int64_t fixed = 0;
  Regex* varying = nullptr;
  for (Regex& part : parts) {
    const LengthRange lengths = regex_lengths(part);
    if (lengths.min == lengths.max) {
      fixed += lengths.min;
    } else if (varying == nullptr && part->kind == Kind::kRepeat && part->parts.front()->kind == Kind::kClass) {
      varying = &part;
    } else {
      return nullptr;
    }
  }
  if (varying == nullptr) return nullptr;
  const RegexNode& repeat = **varying;
  const std::int64_t min = std::max<std::int64_t>(repeat.min, set.min - fixed);
  std::int64_t max = repeat.max;
  if (set.max >= 0) max = max < 0 ? set.max - fixed : std::min<std::int64_t>(max, set.max - fixed);
  if (min > kMaxRegexCount || max > kMaxRegexCount || (max >= 0 && max < min) || (set.max >= 0 && set.max < fixed)) {
    return nullptr;
  }
  *varying = make_repeat(repeat.parts.front(), static_cast<int>(min), static_cast<int>(max));
  return make_sequence(std::move(parts));
}

// Limits the counts of repetitions to `count`. Unless `all` is set, limits only unbounded repetitions and repetitions
// of a single character.
Regex stopped(const Regex& regex, int count, bool all) {
  if (regex->parts.empty()) return regex;
  RegexNode out = *regex;
  for (Regex& part : out.parts) part = stopped(part, count, all);
  if (out.kind == Kind::kRepeat && (all || out.max < 0 || out.parts.front()->kind == Kind::kClass)) {
    const int last = std::max(out.min, count);
    out.max = out.max < 0 ? last : std::min(out.max, last);
  }
  return std::make_shared<const RegexNode>(std::move(out));
}

// Stops repetitions early, so that all texts stay within a long maximum length, such as the 2083 characters of a URL.
// An exact limit would need an automaton with a state for each number of characters. Returns null if the length is
// short, or if repetitions would stop before kLeastCount.
Regex stop_early(const Regex& regex, const TextSet& set) {
  constexpr std::int64_t kLong = 64;
  constexpr int kLeastCount = 8;
  if (set.max < kLong || regex_lengths(regex).min < set.min) return nullptr;
  for (const bool all : {false, true}) {
    Regex out = nullptr;
    for (int low = kLeastCount, high = kMaxRegexCount; low <= high;) {
      const int count = low + (high - low) / 2;
      Regex next = stopped(regex, count, all);
      const bool holds = lengths_hold(regex_lengths(next), set);
      if (holds) out = std::move(next);
      (holds ? low : high) = holds ? count + 1 : count - 1;
    }
    if (out != nullptr) return out;
  }
  return nullptr;
}

// Returns a map key for a set. Equal sets have equal keys. The key contains addresses of parsed patterns. Equal
// patterns have the same address, because a pattern is parsed only once.
std::vector<std::intptr_t> key_of(const TextSet& set) {
  std::vector<std::intptr_t> key = {static_cast<std::intptr_t>(set.min), static_cast<std::intptr_t>(set.max)};
  for (const TextTerm& term : set.terms) {
    key.push_back(reinterpret_cast<std::intptr_t>(term.regex.get()));
    key.push_back(reinterpret_cast<std::intptr_t>(term.left_out.get()));
    key.push_back(term.negated ? 1 : 0);
  }
  return key;
}

// Returns a regex whose texts all satisfy the set's lengths and terms, so that the set needs no automaton. Returns null
// if no such regex is known.
Regex direct_regex(const TextSet& set) {
  if (set.terms.size() != 1 || set.terms.front().negated || set.terms.front().left_out != nullptr) return nullptr;
  Regex regex = without_anchors(set.terms.front().regex);
  if (regex == nullptr || has_empty_class(regex)) return nullptr;
  if (lengths_hold(regex_lengths(regex), set)) return regex;
  if (Regex folded = fold_lengths(regex, set)) return folded;
  return stop_early(regex, set);
}

}  // namespace

TextSet both(const TextSet& a, const TextSet& b) {
  TextSet out = a;
  out.min = std::max(a.min, b.min);
  out.max = a.max < 0 ? b.max : b.max < 0 ? a.max : std::min(a.max, b.max);
  for (const TextTerm& term : b.terms) {
    const bool known = std::ranges::any_of(out.terms, [&](const TextTerm& one) {
      return one.regex == term.regex && one.negated == term.negated && one.left_out == term.left_out;
    });
    if (!known) out.terms.push_back(term);
  }
  return out;
}

Result<const Automaton*> TextSets::regex_automaton(const Regex& regex, Reading reading) {
  const auto found = kept_.find({regex.get(), reading});
  if (found != kept_.end()) return &found->second.automaton;
  Automaton made = TRY(make_automaton(regex, reading, work_));
  return &kept_.try_emplace({regex.get(), reading}, Kept{regex, std::move(made)}).first->second.automaton;
}

Result<Regex> TextSets::pattern(const std::string& text) {
  const auto known = patterns_.find(text);
  if (known != patterns_.end()) return known->second;
  Regex regex = TRY(parse_regex(text));
  TRY(work_.spend(10 * regex_ranges(regex)));
  patterns_.emplace(text, regex);
  return regex;
}

Result<std::shared_ptr<const Automaton>> TextSets::automaton(const TextSet& set, Reading reading) {
  TRY(work_.spend(10 * (1 + set.terms.size())));
  Made& known = made_[{key_of(set), reading}];
  if (known.automaton == nullptr) {
    Automaton made = TRY(make(set, reading));
    known = {set, std::make_shared<const Automaton>(std::move(made))};
  }
  return known.automaton;
}

Result<Automaton> TextSets::make(const TextSet& set, Reading reading) {
  // Applies the lengths last, because the automata of patterns alone are often small, and a length that all of their
  // texts satisfy adds no states.
  Automaton out = TRY(length_automaton(0, -1));
  for (const TextTerm& term : set.terms) {
    Automaton next;
    if (term.left_out != nullptr) {
      if (reading == Reading::kWide && !term.exact) continue;
      next = TRY(complement(*term.left_out, work_));
    } else if (term.loose && reading == (term.negated ? Reading::kNarrow : Reading::kWide)) {
      if (!term.negated) continue;
      return Automaton{.starts = {0}, .next = {kNoState}, .accepts = {0}};
    } else {
      const Automaton* of = TRY(regex_automaton(term.regex, term.negated ? opposite(reading) : reading));
      next = term.negated ? TRY(complement(*of, work_)) : *of;
    }
    out = TRY(intersection(out, next, work_));
  }
  if (set.min > 0 || set.max >= 0) {
    out = TRY(intersection(out, TRY(length_automaton(set.min, set.max)), work_));
  }
  return minimised(out, work_);
}

Result<bool> TextSets::empty(const TextSet& set, Reading reading) {
  if (set.max >= 0 && set.max < set.min) return true;
  if (set.terms.empty() || direct_regex(set) != nullptr) return false;
  return TRY(automaton(set, reading))->empty();
}

Result<bool> TextSets::contains(const TextSet& set, std::string_view text, Reading reading) {
  TRY(work_.spend(10 + text.size() * (1 + set.terms.size())));
  const auto length = static_cast<std::int64_t>(count_characters(text));
  if (length < set.min || (set.max >= 0 && length > set.max)) return false;
  for (const TextTerm& term : set.terms) {
    if (term.left_out != nullptr) {
      if ((reading == Reading::kNarrow || term.exact) && term.left_out->accepts_text(text)) return false;
      continue;
    }
    if (term.loose && reading == (term.negated ? Reading::kNarrow : Reading::kWide)) {
      if (term.negated) return false;
      continue;
    }
    const Automaton* of = TRY(regex_automaton(term.regex, term.negated ? opposite(reading) : reading));
    if (of->accepts_text(text) == term.negated) return false;
  }
  return true;
}

Status TextSets::leave_out(TextSet& set, const TextSet& other) {
  set.terms.push_back({.left_out = TRY(automaton(other, Reading::kWide))});
  return ok_status();
}

Status TextSets::leave_out_texts(TextSet& set, std::vector<std::string> texts) {
  std::ranges::sort(texts);
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  std::shared_ptr<const Automaton>& known = of_texts_[texts];
  if (known == nullptr) known = std::make_shared<const Automaton>(TRY(texts_automaton(texts, work_)));
  set.terms.push_back({.left_out = known, .exact = true});
  return ok_status();
}

Result<std::string> TextSets::ebnf(const TextSet& set, EbnfRules& rules) {
  const std::vector<std::intptr_t> key = key_of(set);
  const auto known = written_.find(key);
  if (known != written_.end()) return known->second.expression;
  std::string expression = TRY(write(set, rules));
  written_.emplace(key, Written{set, expression});
  return expression;
}

Result<std::string> TextSets::write(const TextSet& set, EbnfRules& rules) {
  const std::string quote = ebnf_text("\"");
  if (set.free()) return quote + ' ' + ebnf_string_end(rules);
  if (set.terms.empty()) {
    return fmt::format("{} {} {}", quote, ebnf_counted(ebnf_string_character(rules), set.min, set.max), quote);
  }
  if (const Regex regex = direct_regex(set)) return quote + ' ' + ebnf_regex(regex, rules, quote);
  return quote + ' ' + ebnf_automaton(*TRY(automaton(set, Reading::kNarrow)), rules, quote);
}

}  // namespace tessera::schema

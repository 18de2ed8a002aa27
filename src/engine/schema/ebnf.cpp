#include "tessera/engine/schema/ebnf.h"

#include <fmt/format.h>

#include <array>
#include <map>

#include "tessera/text/unicode.h"

namespace tessera::schema {
namespace {

// Appends a character. Escapes it if it is a control character or one of `special`, the characters that must be escaped
// in quotes or brackets.
void append_escaped(std::string& out, char32_t code, std::string_view special) {
  if (code < 0x80 && special.find(static_cast<char>(code)) != std::string_view::npos) {
    out += '\\';
    out += static_cast<char>(code);
  } else if (code < 0x20 || code == 0x7F) {
    out += fmt::format("\\u{:04x}", static_cast<unsigned>(code));
  } else {
    append_utf8(out, code);
  }
}

// Returns whether a set is large. A large set always contains characters that need no escape. The class of these
// characters is the first of the set's ebnf_json_alternatives().
bool is_large(const CharSet& characters) { return characters.size() > 1000; }

const CharSet& raw_characters() {
  static const CharSet raw = CharSet({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}}).complement();
  return raw;
}

// Returns an expression for any number of characters of the set, as a loop inside one rule.
std::string character_loop(const CharSet& characters, EbnfRules& rules) {
  const std::vector<std::string> ways = ebnf_json_alternatives(characters);
  if (ways.size() == 1) return ways.front() + '*';
  const std::string name = rules.fresh_name("l");
  std::string body = "\"\"";
  for (const std::string& way : ways) body += fmt::format(" | {} {}", way, name);
  rules.define(name, body);
  return name;
}

std::string in_sequence(const std::string& expression, const std::string& end) {
  return end.empty() ? expression : expression + ' ' + end;
}

std::string regex_repeat(const RegexNode& repeat, EbnfRules& rules, const std::string& end) {
  const Regex& part = repeat.parts.front();
  if (part->kind == RegexNode::Kind::kClass) {
    if (repeat.min == 0 && repeat.max < 0) return in_sequence(character_loop(part->narrow, rules), end);
    if (!end.empty()) {
      const std::string character = fmt::format("{}", fmt::join(ebnf_json_alternatives(part->narrow), " | "));
      return in_sequence(ebnf_counted(rules.shared(character), repeat.min, repeat.max), end);
    }
    if (repeat.max < 0) {
      return ebnf_repeat(ebnf_json_character(part->narrow), repeat.min, repeat.min) + ' ' +
             character_loop(part->narrow, rules);
    }
  }
  return in_sequence(ebnf_repeat(ebnf_regex(part, rules, ""), repeat.min, repeat.max), end);
}

std::string regex_sequence(const std::vector<Regex>& parts, EbnfRules& rules, const std::string& end) {
  if (parts.empty()) return end.empty() ? "\"\"" : end;
  std::string out;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const bool last = i + 1 == parts.size();
    out += (i > 0 ? " " : "") + ebnf_regex(parts[i], rules, last ? end : "");
  }
  return fmt::format("({})", out);
}

std::string regex_choice(const std::vector<Regex>& parts, EbnfRules& rules, const std::string& end) {
  std::vector<std::string> out;
  for (const Regex& part : parts) out.push_back(ebnf_regex(part, rules, end));
  return fmt::format("({})", fmt::join(out, " | "));
}

}  // namespace

std::string ebnf_text(std::string_view utf8) {
  std::string out = "\"";
  for (std::size_t at = 0; at < utf8.size();) {
    const Utf8Step step = decode_utf8(utf8, at);
    append_escaped(out, step.code, "\"\\");
    at += step.length;
  }
  return out + '"';
}

std::string ebnf_class(const CharSet& characters) {
  std::string out = "[";
  for (const CharRange& range : characters.ranges()) {
    append_escaped(out, range.first, "\\^]-[");
    if (range.first == range.last) continue;
    if (range.last > range.first + 1) out += '-';
    append_escaped(out, range.last, "\\^]-[");
  }
  return out + ']';
}

std::vector<std::string> ebnf_json_alternatives(const CharSet& characters) {
  static const CharSet quoted = CharSet({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}});
  constexpr std::array<std::pair<char32_t, char>, 7> kShort = {
      {{'"', '"'}, {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'}, {'\n', 'n'}, {'\r', 'r'}, {'\t', 't'}}};
  std::vector<std::string> out;
  const CharSet raw = characters - quoted;
  if (!raw.empty())
    out.push_back(raw.size() == 1 ? ebnf_text([&] {
      std::string one;
      append_utf8(one, raw.ranges().front().first);
      return one;
    }())
                                  : ebnf_class(raw));
  CharSet rest = characters & quoted;
  CharSet letters;
  for (const auto& [code, letter] : kShort) {
    if (!rest.contains(code)) continue;
    letters = letters | CharSet::of(static_cast<unsigned char>(letter));
    rest = rest - CharSet::of(code);
  }
  if (letters.size() == 1) {
    out.push_back(ebnf_text(std::string("\\") + static_cast<char>(letters.ranges().front().first)));
  } else if (!letters.empty()) {
    out.push_back(fmt::format("{} {}", ebnf_text("\\"), ebnf_class(letters)));
  }
  for (char32_t high = 0; high < 2; ++high) {
    std::string digits;
    for (char32_t low = 0; low < 16; ++low) {
      if (rest.contains(high * 16 + low)) digits += "0123456789abcdef"[low];
    }
    if (!digits.empty()) {
      out.push_back(
          fmt::format("{} {}", ebnf_text(high == 0 ? "\\u000" : "\\u001"), ebnf_class(CharSet::any_of(digits))));
    }
  }
  return out;
}

std::string ebnf_json_character(const CharSet& characters) {
  std::vector<std::string> out = ebnf_json_alternatives(characters);
  if (is_large(characters)) out.resize(1);
  return ebnf_choice(out);
}

std::string ebnf_repeat(const std::string& expression, std::int64_t min, std::int64_t max) {
  if (max == 0) return "\"\"";
  if (min == 1 && max == 1) return expression;
  const bool one_class = expression.front() == '[' && expression.find(']') == expression.size() - 1;
  const std::string part = one_class ? expression : fmt::format("({})", expression);
  if (min == 0 && max == 1) return part + "?";
  if (min == 0 && max < 0) return part + "*";
  if (min == 1 && max < 0) return part + "+";
  if (max < 0) return fmt::format("{}{{{},}}", part, min);
  return fmt::format("{}{{{},{}}}", part, min, max);
}

std::string ebnf_counted(const std::string& character, std::int64_t min, std::int64_t max) {
  if (max == 0) return "\"\"";
  return max < 0 ? fmt::format("{}{{{},}}", character, min) : fmt::format("{}{{{},{}}}", character, min, max);
}

std::string ebnf_choice(const std::vector<std::string>& alternatives) {
  if (alternatives.size() == 1) return alternatives.front();
  return fmt::format("({})", fmt::join(alternatives, " | "));
}

std::string EbnfRules::shared(const std::string& body) {
  const auto found = by_body_.find(body);
  if (found != by_body_.end()) return found->second;
  const std::string name = fresh_name("r");
  define(name, body);
  by_body_.emplace(body, name);
  return name;
}

std::string EbnfRules::string_end(const std::function<std::string(const std::string&)>& body) {
  if (string_end_.empty()) {
    string_end_ = fresh_name("s");
    define(string_end_, body(string_end_));
  }
  return string_end_;
}

std::string EbnfRules::fresh_name(std::string_view hint) { return fmt::format("{}{}", hint, names_++); }

void EbnfRules::define(const std::string& name, const std::string& body) {
  text_ += fmt::format("{} ::= {}\n", name, body);
  ++count_;
}

std::string ebnf_regex(const Regex& regex, EbnfRules& rules, const std::string& end) {
  switch (regex->kind) {
    case RegexNode::Kind::kClass: return in_sequence(ebnf_json_character(regex->narrow), end);
    case RegexNode::Kind::kSequence: return regex_sequence(regex->parts, rules, end);
    case RegexNode::Kind::kChoice: return regex_choice(regex->parts, rules, end);
    case RegexNode::Kind::kRepeat: return regex_repeat(*regex, rules, end);
    default: return end.empty() ? "\"\"" : end;  // anchors were removed before
  }
}

std::string ebnf_automaton(const Automaton& automaton, EbnfRules& rules, const std::string& end) {
  // Groups the characters of each state by the state to which they lead. A state with a single incoming transition and
  // a single outgoing one is written inside its predecessor's rule.
  std::vector<std::map<std::int32_t, CharSet>> ways(automaton.states());
  std::vector<int> entries(automaton.states(), 0);
  entries[0] = 2;
  for (std::size_t s = 0; s < automaton.states(); ++s) {
    std::map<std::int32_t, std::vector<CharRange>> ranges;
    for (std::size_t c = 0; c < automaton.classes(); ++c) {
      if (automaton.step(s, c) != kNoState) ranges[automaton.step(s, c)].push_back(automaton.range(c));
    }
    for (auto& [to, list] : ranges) {
      ways[s].emplace(to, CharSet(std::move(list)));
      ++entries[static_cast<std::size_t>(to)];
    }
  }
  const std::string prefix = rules.fresh_name("a") + "_";
  const auto is_last = [&](std::size_t s) { return automaton.accepts[s] != 0 && ways[s].empty(); };
  std::vector<std::uint8_t> queued(automaton.states(), 0);
  std::vector<std::size_t> queue = {0};
  queued[0] = 1;
  for (std::size_t i = 0; i < queue.size(); ++i) {
    const std::size_t s = queue[i];
    std::vector<std::string> alternatives;
    if (automaton.accepts[s] != 0) alternatives.push_back(end);
    for (const auto& [first, characters] : ways[s]) {
      std::string rest;
      auto at = static_cast<std::size_t>(first);
      while (entries[at] < 2 && ways[at].size() == 1 && automaton.accepts[at] == 0) {
        const std::vector<std::string> next = ebnf_json_alternatives(ways[at].begin()->second);
        if (next.size() > 1) break;
        rest += ' ' + next.front();
        at = static_cast<std::size_t>(ways[at].begin()->first);
      }
      if (is_last(at)) {
        rest += ' ' + end;
      } else {
        rest += fmt::format(" {}{}", prefix, at);
        if (queued[at] == 0) queue.push_back(at);
        queued[at] = 1;
      }
      for (const std::string& way : ebnf_json_alternatives(characters)) alternatives.push_back(way + rest);
    }
    rules.define(fmt::format("{}{}", prefix, s), fmt::format("{}", fmt::join(alternatives, " | ")));
  }
  return prefix + "0";
}

std::string ebnf_string_end(EbnfRules& rules) {
  return rules.string_end([&](const std::string& name) {
    const std::string escape =
        rules.shared(R"(["\\/bfnrt] | "u" ([0-9a-cA-CefEF] [0-9a-fA-F]{3} | [dD] [0-7] [0-9a-fA-F]{2}))");
    return fmt::format(R"("\"" | {} {} | "\\" {} {})", ebnf_class(raw_characters()), name, escape, name);
  });
}

std::string ebnf_string_character(EbnfRules& rules) {
  return rules.shared(ebnf_class(raw_characters()) +
                      R"( | "\\" ["\\/bfnrt] | "\\u" [0-9a-cA-CefEF] [0-9a-fA-F] [0-9a-fA-F] [0-9a-fA-F])"
                      R"( | "\\u" [dD] [0-7] [0-9a-fA-F] [0-9a-fA-F])");
}

}  // namespace tessera::schema

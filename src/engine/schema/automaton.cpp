#include "tessera/engine/schema/automaton.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "tessera/text/unicode.h"

namespace tessera::schema {
namespace {

constexpr char32_t kBeyond = 0x110000;
constexpr std::size_t kMostDensePairs = 65536;

std::size_t class_of(const std::vector<char32_t>& starts, char32_t code) {
  return static_cast<std::size_t>(std::ranges::upper_bound(starts, code) - starts.begin()) - 1;
}

Status too_large() {
  return invalid_argument(fmt::format("its patterns come to more than {} states of an automaton", kMaxStates));
}

// Removes the states from which no accepting state can be reached.
Automaton trimmed(const Automaton& a) {
  // begins[state] is the index in `from` at which the list of the state's predecessors begins.
  std::vector<std::size_t> begins(a.states() + 1, 0);
  for (const std::int32_t to : a.next) {
    if (to != kNoState) ++begins[static_cast<std::size_t>(to)];
  }
  std::partial_sum(begins.begin(), begins.end(), begins.begin());
  std::vector<std::int32_t> from(begins.back());
  for (std::size_t i = a.next.size(); i > 0; --i) {
    const std::int32_t to = a.next[i - 1];
    if (to != kNoState) from[--begins[static_cast<std::size_t>(to)]] = static_cast<std::int32_t>((i - 1) / a.classes());
  }
  std::vector<std::int32_t> queue;
  std::vector<std::int32_t> id(a.states(), kNoState);
  for (std::size_t s = 0; s < a.states(); ++s) {
    if (a.accepts[s] == 0) continue;
    id[s] = 0;
    queue.push_back(static_cast<std::int32_t>(s));
  }
  for (std::size_t i = 0; i < queue.size(); ++i) {
    const auto at = static_cast<std::size_t>(queue[i]);
    for (std::size_t j = begins[at]; j < begins[at + 1]; ++j) {
      const std::int32_t before = from[j];
      if (id[static_cast<std::size_t>(before)] != kNoState) continue;
      id[static_cast<std::size_t>(before)] = 0;
      queue.push_back(before);
    }
  }
  id[0] = 0;  // the initial state stays even if nothing is accepted
  std::int32_t count = 0;
  for (std::int32_t& one : id) {
    if (one != kNoState) one = count++;
  }
  Automaton out{.starts = a.starts};
  for (std::size_t s = 0; s < a.states(); ++s) {
    if (id[s] == kNoState) continue;
    out.accepts.push_back(a.accepts[s]);
    for (std::size_t c = 0; c < a.classes(); ++c) {
      const std::int32_t to = a.step(s, c);
      out.next.push_back(to == kNoState ? kNoState : id[static_cast<std::size_t>(to)]);
    }
  }
  return out;
}

}  // namespace

Status WorkLimit::spend(std::size_t steps) {
  if (steps > left_) return invalid_argument("its patterns, or their combination, take too long to compile");
  left_ -= steps;
  return ok_status();
}

CharRange Automaton::range(std::size_t char_class) const {
  const char32_t end = char_class + 1 < classes() ? starts[char_class + 1] : kBeyond;
  return {starts[char_class], end - 1};
}

bool Automaton::empty() const {
  return std::ranges::none_of(accepts, [](std::uint8_t yes) { return yes != 0; });
}

bool Automaton::accepts_text(std::string_view utf8) const {
  std::int32_t state = 0;
  for (std::size_t at = 0; at < utf8.size();) {
    const Utf8Step character = decode_utf8(utf8, at);
    at += character.length;
    state = step(static_cast<std::size_t>(state), class_of(starts, character.code));
    if (state == kNoState) return false;
  }
  return accepts[static_cast<std::size_t>(state)] != 0;
}

Result<Automaton> length_automaton(std::int64_t min, std::int64_t max) {
  const std::int64_t last = max < 0 ? min : max;
  if (last >= static_cast<std::int64_t>(kMaxStates)) return too_large();
  Automaton out{.starts = {0, 0xD800, 0xE000}};
  for (std::int64_t s = 0; s <= last; ++s) {
    out.accepts.push_back(s >= min ? 1 : 0);
    const std::int32_t to = s < last  ? static_cast<std::int32_t>(s + 1)
                            : max < 0 ? static_cast<std::int32_t>(s)
                                      : kNoState;
    out.next.insert(out.next.end(), {to, kNoState, to});
  }
  return out;
}

Result<Automaton> texts_automaton(const std::vector<std::string>& texts, WorkLimit& work) {
  // Builds a prefix tree (trie), in which all texts without a continuation end in one shared state.
  std::vector<std::map<char32_t, std::int32_t>> ways(1);
  std::vector<std::uint8_t> accepts = {0};
  for (const std::string& text : texts) {
    std::size_t state = 0;
    for (std::size_t at = 0; at < text.size();) {
      const Utf8Step character = decode_utf8(text, at);
      at += character.length;
      const auto [found, added] = ways[state].try_emplace(character.code, static_cast<std::int32_t>(ways.size()));
      state = static_cast<std::size_t>(found->second);
      if (!added) continue;
      ways.emplace_back();
      accepts.push_back(0);
    }
    accepts[state] = 1;
  }
  std::set<char32_t> starts = {0, 0xD800, 0xE000};
  std::int32_t last = kNoState;
  std::vector<std::int32_t> id(ways.size(), kNoState);
  Automaton out;
  for (std::size_t s = 0; s < ways.size(); ++s) {
    if (ways[s].empty() && last != kNoState && s != 0) {
      id[s] = last;
      continue;
    }
    id[s] = static_cast<std::int32_t>(out.accepts.size());
    if (ways[s].empty() && s != 0) last = id[s];
    out.accepts.push_back(accepts[s]);
    for (const auto& [code, to] : ways[s]) starts.insert({code, code + 1});
  }
  if (out.states() > kMaxStates) return too_large();
  TRY(work.spend(out.states() * starts.size()));
  out.starts.assign(starts.begin(), starts.end());
  out.next.assign(out.states() * out.classes(), kNoState);
  for (std::size_t s = 0; s < ways.size(); ++s) {
    for (const auto& [code, to] : ways[s])
      out.next[static_cast<std::size_t>(id[s]) * out.classes() + class_of(out.starts, code)] =
          id[static_cast<std::size_t>(to)];
  }
  return out;
}

Result<Automaton> intersection(const Automaton& a, const Automaton& b, WorkLimit& work) {
  Automaton out;
  std::ranges::set_union(a.starts, b.starts, std::back_inserter(out.starts));
  std::vector<std::pair<std::size_t, std::size_t>> classes;
  for (const char32_t start : out.starts) classes.emplace_back(class_of(a.starts, start), class_of(b.starts, start));
  // A table of all pairs of states is faster than a map. Most automata are small enough for it.
  const bool dense = a.states() * b.states() <= kMostDensePairs;
  std::vector<std::int32_t> table(dense ? a.states() * b.states() : 0, kNoState);
  std::map<std::pair<std::size_t, std::size_t>, std::int32_t> map;
  const auto id_of = [&](std::size_t s, std::size_t t) -> std::int32_t& {
    return dense ? table[s * b.states() + t] : map.try_emplace({s, t}, kNoState).first->second;
  };
  id_of(0, 0) = 0;
  std::vector<std::pair<std::size_t, std::size_t>> pairs = {{0, 0}};
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    TRY(work.spend(10 * classes.size()));
    const auto [state_a, state_b] = pairs[i];
    out.accepts.push_back(a.accepts[state_a] != 0 && b.accepts[state_b] != 0 ? 1 : 0);
    for (const auto& [class_a, class_b] : classes) {
      const std::int32_t to_a = a.step(state_a, class_a);
      const std::int32_t to_b = b.step(state_b, class_b);
      if (to_a == kNoState || to_b == kNoState) {
        out.next.push_back(kNoState);
        continue;
      }
      const std::pair to = {static_cast<std::size_t>(to_a), static_cast<std::size_t>(to_b)};
      std::int32_t& id = id_of(to.first, to.second);
      if (id == kNoState) {
        id = static_cast<std::int32_t>(pairs.size());
        pairs.push_back(to);
      }
      out.next.push_back(id);
    }
    // Allows more states than the limit, since dead ends are removed later.
    if (pairs.size() > 8 * kMaxStates) return too_large();
  }
  out = trimmed(out);
  if (out.states() > kMaxStates) return too_large();
  return out;
}

Result<Automaton> complement(const Automaton& a, WorkLimit& work) {
  TRY(work.spend(a.next.size() + 1));
  const Automaton any = TRY(length_automaton(0, -1));  // supplies the classes of all characters except surrogates
  Automaton out;
  std::ranges::set_union(a.starts, any.starts, std::back_inserter(out.starts));
  std::vector<std::size_t> classes;
  for (const char32_t start : out.starts) classes.push_back(class_of(a.starts, start));
  const auto sink = static_cast<std::int32_t>(a.states());
  for (std::size_t s = 0; s <= a.states(); ++s) {
    out.accepts.push_back(s == a.states() || a.accepts[s] == 0 ? 1 : 0);
    for (std::size_t c = 0; c < classes.size(); ++c) {
      std::int32_t to = s == a.states() ? kNoState : a.step(s, classes[c]);
      if (to == kNoState) to = sink;
      out.next.push_back(out.starts[c] >= 0xD800 && out.starts[c] < 0xE000 ? kNoState : to);
    }
  }
  return trimmed(out);
}

std::optional<std::vector<std::string>> finite_texts(const Automaton& a, std::size_t most) {
  std::vector<std::string> out;
  // Lists texts by length. A text with more characters than there are states would run through a loop, so there would
  // be infinitely many texts.
  std::vector<std::pair<std::int32_t, std::string>> texts = {{0, ""}};
  for (std::size_t length = 0; !texts.empty(); ++length) {
    if (length > a.states() || texts.size() > most) return std::nullopt;
    std::vector<std::pair<std::int32_t, std::string>> longer;
    for (const auto& [state, text] : texts) {
      if (a.accepts[static_cast<std::size_t>(state)] != 0) out.push_back(text);
      for (std::size_t c = 0; c < a.classes(); ++c) {
        const std::int32_t to = a.step(static_cast<std::size_t>(state), c);
        if (to == kNoState) continue;
        const CharRange range = a.range(c);
        if (range.last - range.first >= most) return std::nullopt;
        for (char32_t code = range.first; code <= range.last; ++code) {
          longer.emplace_back(to, text);
          append_utf8(longer.back().second, code);
        }
        if (longer.size() > most) return std::nullopt;
      }
    }
    texts = std::move(longer);
    if (out.size() > most) return std::nullopt;
  }
  return out;
}

}  // namespace tessera::schema

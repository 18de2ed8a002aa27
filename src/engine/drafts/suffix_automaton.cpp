#include "tessera/engine/drafts/suffix_automaton.h"

#include <boost/unordered/unordered_flat_map.hpp>
#include <vector>

namespace tessera {
namespace {

constexpr std::int32_t kRoot = 0;
constexpr std::int32_t kNone = -1;

// A class of substrings that end at the same places.
struct State {
  std::int32_t length = 0;         // length of the longest substring in the class
  std::int32_t link = kNone;       // class of the longest suffix that also ends at other places
  std::int32_t end = 0;            // number of tokens up to the end of one occurrence of the substrings
  std::int32_t last_edge = kNone;  // first edge in the linked list of the state's edges
};

struct Edge {
  TokenId token;
  std::int32_t next = kNone;  // next edge of the same state; kNone: the last one
};

}  // namespace

struct SuffixAutomaton::States {
  std::vector<State> all{State{}};
  std::vector<Edge> edges;
  boost::unordered_flat_map<std::uint64_t, std::int32_t> targets;  // target state by (state, token)
  std::int32_t last = kRoot;                                       // state of the whole text

  static std::uint64_t key(std::int32_t state, TokenId token) {
    return static_cast<std::uint64_t>(state) << 32 | static_cast<std::uint32_t>(token.value());
  }
  State& at(std::int32_t state) { return all[static_cast<std::size_t>(state)]; }
  std::int32_t add(const State& state) {
    all.push_back(state);
    return static_cast<std::int32_t>(all.size()) - 1;
  }
  std::int32_t target(std::int32_t state, TokenId token) const {
    const auto it = targets.find(key(state, token));
    return it == targets.end() ? kNone : it->second;
  }
  void connect(std::int32_t from, TokenId token, std::int32_t to) {
    if (!targets.insert_or_assign(key(from, token), to).second) return;
    edges.push_back({.token = token, .next = at(from).last_edge});
    at(from).last_edge = static_cast<std::int32_t>(edges.size()) - 1;
  }
  std::int32_t split(std::int32_t state, std::int32_t length);
};

// Splits the state: returns a new state for its substrings of up to `length` tokens.
std::int32_t SuffixAutomaton::States::split(std::int32_t state, std::int32_t length) {
  const std::int32_t shorter = add({.length = length, .link = at(state).link, .end = at(state).end});
  for (std::int32_t e = at(state).last_edge; e != kNone; e = edges[static_cast<std::size_t>(e)].next) {
    const TokenId token = edges[static_cast<std::size_t>(e)].token;
    connect(shorter, token, target(state, token));
  }
  at(state).link = shorter;
  return shorter;
}

SuffixAutomaton::SuffixAutomaton() : states_(std::make_unique<States>()) {}
SuffixAutomaton::~SuffixAutomaton() = default;
SuffixAutomaton::SuffixAutomaton(SuffixAutomaton&& other) noexcept = default;
SuffixAutomaton& SuffixAutomaton::operator=(SuffixAutomaton&& other) noexcept = default;

void SuffixAutomaton::append(TokenId token) {
  States& s = *states_;
  const auto end = static_cast<std::int32_t>(++size_);
  const std::int32_t whole = s.add({.length = end, .end = end});
  std::int32_t from = s.last;
  std::int32_t to = kNone;
  for (; from != kNone && (to = s.target(from, token)) == kNone; from = s.at(from).link) s.connect(from, token, whole);
  std::int32_t link = kRoot;
  if (from != kNone) {
    const std::int32_t length = s.at(from).length + 1;
    link = to;
    if (s.at(to).length != length) {
      link = s.split(to, length);
      for (; from != kNone && s.target(from, token) == to; from = s.at(from).link) s.connect(from, token, link);
    }
  }
  s.at(whole).link = link;
  s.last = whole;
  match_ = {.length = s.at(link).length, .end = s.at(link).end};
  // Updates the newest occurrence in at most kMostUpdates suffix classes, because a text of one repeated token has as
  // many of these classes as tokens. The other classes keep an older occurrence.
  constexpr int kMostUpdates = 32;
  for (int i = 0; i < kMostUpdates && link > kRoot; ++i, link = s.at(link).link) s.at(link).end = end;
}

}  // namespace tessera

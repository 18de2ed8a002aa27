#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_set>
#include <utility>

#include "tessera/engine/schema/automaton.h"

namespace tessera::schema {
namespace {

constexpr std::size_t kMaxNodes = 40'000;

// A node of Thompson's construction. It has one edge for characters, or any number of edges without characters.
struct Node {
  enum class Edge : std::uint8_t { kFree, kStart, kEnd, kCharacters };
  Edge edge = Edge::kFree;
  const CharSet* characters = nullptr;
  std::vector<std::int32_t> to{};
};

class Builder {
 public:
  explicit Builder(Reading reading) : reading_(reading) {}

  // Adds a path that matches `regex` and begins at the node `from`. Returns the path's last node.
  Result<std::int32_t> add(const Regex& regex, std::int32_t from) {
    if (nodes_.size() > kMaxNodes) {
      return invalid_argument(fmt::format("a pattern comes to more than {} nodes of an automaton", kMaxNodes));
    }
    switch (regex->kind) {
      case RegexNode::Kind::kStart: return edge(from, Node::Edge::kStart);
      case RegexNode::Kind::kEnd: return edge(from, Node::Edge::kEnd);
      case RegexNode::Kind::kClass:
        return edge(from, Node::Edge::kCharacters, reading_ == Reading::kNarrow ? &regex->narrow : &regex->wide);
      case RegexNode::Kind::kSequence:
        for (const Regex& part : regex->parts) from = TRY(add(part, from));
        return from;
      case RegexNode::Kind::kChoice: {
        const std::int32_t end = node();
        for (const Regex& part : regex->parts) {
          const std::int32_t begin = node();
          join(from, begin);
          join(TRY(add(part, begin)), end);
        }
        return end;
      }
      case RegexNode::Kind::kRepeat: break;
    }
    const Regex& part = regex->parts.front();
    for (int i = 0; i < regex->min; ++i) {
      const std::int32_t begin = node();  // counts towards kMaxNodes even if the part is empty
      join(from, begin);
      from = TRY(add(part, begin));
    }
    if (regex->max < 0) {
      const std::int32_t loop = node();
      join(from, loop);
      const std::int32_t begin = node();
      join(loop, begin);
      join(TRY(add(part, begin)), loop);
      const std::int32_t end = node();
      join(loop, end);
      return end;
    }
    const std::int32_t end = node();
    join(from, end);
    for (int i = regex->min; i < regex->max; ++i) {
      const std::int32_t begin = node();
      join(from, begin);
      from = TRY(add(part, begin));
      join(from, end);
    }
    return end;
  }

  std::int32_t node() {
    nodes_.emplace_back();
    return static_cast<std::int32_t>(nodes_.size()) - 1;
  }
  const std::vector<Node>& nodes() const { return nodes_; }

 private:
  // Adds an edge without characters. Precondition: `from` has only such edges, like every node that add() takes or
  // returns.
  void join(std::int32_t from, std::int32_t to) { nodes_[static_cast<std::size_t>(from)].to.push_back(to); }
  std::int32_t edge(std::int32_t from, Node::Edge kind, const CharSet* characters = nullptr) {
    const std::int32_t middle = node();
    join(from, middle);
    const std::int32_t end = node();
    Node& made = nodes_[static_cast<std::size_t>(middle)];
    made.edge = kind;
    made.characters = characters;
    made.to = {end};
    return end;
  }

  Reading reading_;
  std::vector<Node> nodes_;
};

// Says whether a path has passed "$". After "$", no character may follow, except one last newline in the wide reading.
enum Phase : std::int32_t { kBefore = 0, kEnded = 1, kAfterNewline = 2, kPhases = 3 };
using Position = std::int32_t;  // index of a pair of node and phase: node * kPhases + phase

struct Positions {
  bool consumed = false;  // a character precedes these positions, so "^" does not match here
  std::vector<Position> sorted{};
  auto operator<=>(const Positions&) const = default;
};

class Subsets {
 public:
  Subsets(const std::vector<Node>& nodes, Reading reading, WorkLimit& work)
      : nodes_(nodes), reading_(reading), work_(work), seen_(nodes.size() * kPhases, 0) {}

  Result<Automaton> run(std::int32_t first, std::int32_t last) {
    TRY(find_classes());
    TRY(state_of(false, {first * kPhases + kBefore}));
    for (std::size_t i = 0; i < states_.size(); ++i) {
      const Positions here = states_[i];
      out_.accepts.push_back(std::ranges::any_of(here.sorted, [&](Position at) { return at / kPhases == last; }) ? 1
                                                                                                                 : 0);
      TRY(work_.spend(out_.classes() * (1 + here.sorted.size())));
      for (std::size_t c = 0; c < out_.classes(); ++c) out_.next.push_back(TRY(step(here, out_.starts[c])));
    }
    return std::move(out_);
  }

 private:
  // Divides all characters into classes, so that every character set of the regex contains either all characters of a
  // class or none.
  Status find_classes() {
    std::set<char32_t> starts = {0, '\n', '\n' + 1, 0xD800, 0xE000};
    std::unordered_set<const CharSet*> known;  // nodes of a repetition share their character sets
    for (const Node& node : nodes_) {
      if (node.characters == nullptr || !known.insert(node.characters).second) continue;
      TRY(work_.spend(20 * node.characters->ranges().size()));
      for (const CharRange& range : node.characters->ranges()) {
        starts.insert(range.first);
        if (range.last < 0x10FFFF) starts.insert(range.last + 1);
      }
    }
    out_.starts.assign(starts.begin(), starts.end());
    return ok_status();
  }

  Result<std::int32_t> step(const Positions& here, char32_t code) {
    std::vector<Position> to;
    if (code >= 0xD800 && code < 0xE000) return kNoState;
    for (const Position at : here.sorted) {
      const Node& node = nodes_[static_cast<std::size_t>(at / kPhases)];
      const std::int32_t phase = at % kPhases;
      if (phase == kBefore && node.edge == Node::Edge::kCharacters && node.characters->contains(code)) {
        to.push_back(node.to.front() * kPhases + kBefore);
      } else if (phase == kEnded && reading_ == Reading::kWide && code == '\n') {
        to.push_back(at - kEnded + kAfterNewline);
      }
    }
    if (to.empty()) return kNoState;
    return state_of(true, std::move(to));
  }

  Result<std::int32_t> state_of(bool consumed, std::vector<Position> queue) {
    Positions made{.consumed = consumed};
    ++round_;
    const auto enter = [&](Position at) {
      if (seen_[static_cast<std::size_t>(at)] == round_) return false;
      seen_[static_cast<std::size_t>(at)] = round_;
      return true;
    };
    std::erase_if(queue, [&](Position at) { return !enter(at); });
    for (std::size_t i = 0; i < queue.size(); ++i) {
      const Position at = queue[i];
      const Node& node = nodes_[static_cast<std::size_t>(at / kPhases)];
      std::int32_t phase = at % kPhases;
      if (node.edge == Node::Edge::kCharacters || (node.edge == Node::Edge::kStart && consumed)) continue;
      if (node.edge == Node::Edge::kEnd && phase == kBefore) phase = kEnded;
      for (const std::int32_t to : node.to) {
        if (enter(to * kPhases + phase)) queue.push_back(to * kPhases + phase);
      }
    }
    TRY(work_.spend(4 * queue.size()));
    std::ranges::sort(queue);
    made.sorted = std::move(queue);
    const auto [found, added] = ids_.try_emplace(made, static_cast<std::int32_t>(states_.size()));
    if (added) states_.push_back(made);
    if (states_.size() > kMaxStates) {
      return invalid_argument(fmt::format("a pattern comes to more than {} states of an automaton", kMaxStates));
    }
    return found->second;
  }

  const std::vector<Node>& nodes_;
  Reading reading_;
  WorkLimit& work_;
  std::vector<std::uint32_t> seen_;  // [position]: the last call of state_of() that reached it
  std::uint32_t round_ = 0;
  Automaton out_;
  std::map<Positions, std::int32_t> ids_;
  std::vector<Positions> states_;
};

}  // namespace

Result<Automaton> make_automaton(const Regex& regex, Reading reading, WorkLimit& work) {
  const Regex any = make_repeat(make_any(), 0, -1);
  const Regex anywhere = make_sequence({any, regex, any});
  Builder builder(reading);
  const std::int32_t first = builder.node();
  const std::int32_t last = TRY(builder.add(anywhere, first));
  const Automaton raw = TRY(Subsets(builder.nodes(), reading, work).run(first, last));
  // The intersection accepts the same texts as `raw`. intersection() is called only because it removes dead ends.
  return minimised(TRY(intersection(raw, TRY(length_automaton(0, -1)), work)), work);
}

}  // namespace tessera::schema

// Minimises an automaton by Hopcroft's algorithm. A block of states is split if only some of its states have
// transitions into a given other block on one class of characters. The splits go on until no block is left to split.
// The automaton gets no dead state as the target of missing transitions. The algorithm works without one, because every
// block is used once as a whole to split the others, before one of its halves is used for this.
#include <algorithm>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "tessera/engine/schema/automaton.h"

namespace tessera::schema {
namespace {

// A partition of the states into blocks. The states of a block are adjacent, with the marked ones first.
class Partition {
 public:
  explicit Partition(std::size_t states) : order_(states), place_(states), block_(states, 0) {
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::iota(place_.begin(), place_.end(), std::size_t{0});
    blocks_.push_back({0, states, 0});
  }

  std::size_t count() const { return blocks_.size(); }
  std::size_t block_of(std::size_t state) const { return block_[state]; }
  std::size_t size(std::size_t block) const { return blocks_[block].end - blocks_[block].begin; }
  std::vector<std::size_t> states(std::size_t block) const {
    return {order_.begin() + static_cast<std::ptrdiff_t>(blocks_[block].begin),
            order_.begin() + static_cast<std::ptrdiff_t>(blocks_[block].end)};
  }

  // Marks a state. Precondition: the state is not marked yet.
  void mark(std::size_t state) {
    Block& block = blocks_[block_[state]];
    if (block.marked == 0) touched_.push_back(block_[state]);
    const std::size_t to = block.begin + block.marked++;
    const std::size_t other = order_[to];
    std::swap(order_[place_[state]], order_[to]);
    std::swap(place_[state], place_[other]);
  }

  // Moves the marked states of each block into a new block, unless all of the block's states are marked. Calls
  // split(old block, new block) for each new block.
  template <class Split>
  void split_marked(const Split& split) {
    for (const std::size_t old : std::exchange(touched_, {})) {
      const std::size_t marked = std::exchange(blocks_[old].marked, 0);
      if (marked == size(old)) continue;
      const std::size_t begin = blocks_[old].begin;
      blocks_.push_back({begin, begin + marked, 0});
      blocks_[old].begin += marked;
      for (std::size_t i = begin; i < begin + marked; ++i) block_[order_[i]] = blocks_.size() - 1;
      split(old, blocks_.size() - 1);
    }
  }

 private:
  struct Block {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::size_t marked = 0;
  };
  std::vector<std::size_t> order_;
  std::vector<std::size_t> place_;  // [state]: its index in order_
  std::vector<std::size_t> block_;  // [state]: its block
  std::vector<Block> blocks_;
  std::vector<std::size_t> touched_;  // blocks with marked states
};

// Lists, for each state and each class of characters, the states that have a transition into that state on this class.
class Sources {
 public:
  explicit Sources(const Automaton& a) : states_(a.states()), begins_(a.classes() * a.states() + 1, 0) {
    for (std::size_t i = 0; i < a.next.size(); ++i) {
      if (a.next[i] != kNoState) ++begins_[slot(i % a.classes(), static_cast<std::size_t>(a.next[i])) + 1];
    }
    std::partial_sum(begins_.begin(), begins_.end(), begins_.begin());
    sources_.resize(begins_.back());
    std::vector<std::uint32_t> at(begins_.begin(), begins_.end() - 1);
    for (std::size_t i = 0; i < a.next.size(); ++i) {
      if (a.next[i] == kNoState) continue;
      sources_[at[slot(i % a.classes(), static_cast<std::size_t>(a.next[i]))]++] =
          static_cast<std::uint32_t>(i / a.classes());
    }
  }

  std::span<const std::uint32_t> of(std::size_t char_class, std::size_t state) const {
    const std::size_t at = slot(char_class, state);
    return std::span(sources_).subspan(begins_[at], begins_[at + 1] - begins_[at]);
  }

 private:
  std::size_t slot(std::size_t char_class, std::size_t state) const { return char_class * states_ + state; }

  std::size_t states_;
  std::vector<std::uint32_t> begins_;
  std::vector<std::uint32_t> sources_;
};

Result<Partition> equal_states(const Automaton& a, WorkLimit& work) {
  TRY(work.spend(4 * a.next.size() + a.states()));
  const Sources sources(a);
  Partition parts(a.states());
  std::vector<std::size_t> waiting = {0};
  std::vector<std::uint8_t> waits = {1};  // [block]: 1 if it is in `waiting`
  const auto wait = [&](std::size_t block) {
    waiting.push_back(block);
    waits[block] = 1;
  };
  const auto split = [&](std::size_t old, std::size_t made) {
    waits.push_back(0);
    // If the old block still waits to be used for splits, the new block must wait too. Otherwise the old block was
    // already used as a whole, so it is enough to use the smaller of the two halves.
    wait(waits[old] != 0 || parts.size(made) <= parts.size(old) ? made : old);
  };
  for (std::size_t s = 0; s < a.states(); ++s) {
    if (a.accepts[s] != 0) parts.mark(s);
  }
  parts.split_marked(split);
  while (!waiting.empty()) {
    const std::size_t block = waiting.back();
    waiting.pop_back();
    waits[block] = 0;
    const std::vector<std::size_t> into = parts.states(block);  // a copy, because the block may be split meanwhile
    TRY(work.spend(into.size() * a.classes()));
    for (std::size_t c = 0; c < a.classes(); ++c) {
      std::size_t marked = 0;
      for (const std::size_t state : into) {
        for (const std::uint32_t source : sources.of(c, state)) parts.mark(source);
        marked += sources.of(c, state).size();
      }
      if (marked == 0) continue;
      TRY(work.spend(2 * marked));
      parts.split_marked(split);
    }
  }
  return parts;
}

}  // namespace

Result<Automaton> minimised(const Automaton& a, WorkLimit& work) {
  const Partition parts = TRY(equal_states(a, work));
  // Numbers blocks by their first state, so that the initial state's block is 0.
  std::vector<std::int32_t> id(parts.count(), kNoState);
  std::vector<std::size_t> firsts;
  for (std::size_t s = 0; s < a.states(); ++s) {
    std::int32_t& one = id[parts.block_of(s)];
    if (one != kNoState) continue;
    one = static_cast<std::int32_t>(firsts.size());
    firsts.push_back(s);
  }
  Automaton out{.starts = a.starts};
  for (const std::size_t s : firsts) {
    out.accepts.push_back(a.accepts[s]);
    for (std::size_t c = 0; c < a.classes(); ++c) {
      const std::int32_t to = a.step(s, c);
      out.next.push_back(to == kNoState ? kNoState : id[parts.block_of(static_cast<std::size_t>(to))]);
    }
  }
  return out;
}

}  // namespace tessera::schema

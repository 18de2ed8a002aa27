// Which waiting sequences begin like one whose prompt is being computed, and are better off waiting for its pages.
//
//   waits.begin(running);                         // before a round of questions
//   if (waits.should_wait(*sequence, reusable)) … // for each that waits
//   waits.add(*admitted);                         // once it runs
//   waits.forget_nodes();                         // once pages were taken or given back
//
// A sequence waits as long as it shares more full pages with such a prompt than the prefix cache can give it. It is
// compared with each prompt once: of its pages it remembers hashes, each of all tokens and images so far, so that two
// prompts are compared in the logarithm of their lengths. Hashes that agree by accident make a sequence wait, and
// nothing else. A question costs a few operations where nothing has changed, whatever the lengths.
//
// A pure bookkeeper on one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tessera/engine/cache/prefix_cache.h"

namespace tessera {

class CacheManager;
struct Sequence;

// What a sequence remembers between questions.
struct PrefixStanding {
  std::vector<std::uint64_t> hashes;  // [full pages that were asked for]: of all tokens up to the page's end
  std::int64_t compared = 0;          // newest admission that it was compared with
  std::int64_t leader = 0;            // admission of the sequence that it shares most with; 0: none
  std::int64_t shared = 0;            // pages

  // Its tokens have grown, or its places in line are others.
  void forget_leader() { compared = leader = shared = 0; }
};

class PrefixWaits {
 public:
  // `cache` outlives it.
  explicit PrefixWaits(const CacheManager& cache) : cache_(cache) {}

  // Of `running` those take part whose prompts are computed and may be shared (`is_shared`).
  template <class Running, class IsShared>
  void begin(const Running& running, const IsShared& is_shared) {
    leaders_.clear();
    for (const auto& sequence : running)
      if (is_shared(*sequence)) add(*sequence);
    sort();
  }
  // One that was admitted after all others.
  void add(Sequence& sequence) { leaders_.push_back({.sequence = &sequence, .nodes = std::nullopt}); }
  // `reusable`: the tokens of it that may be reused.
  bool should_wait(Sequence& sequence, const PrefixTokens& reusable);
  void forget_nodes();

  // Pages that were hashed, or whose hashes were compared: what the questions have cost.
  std::int64_t pages_looked_at() const { return pages_looked_at_; }

 private:
  struct Leader {
    Sequence* sequence;
    // That the prefix cache has of its prompt; none: not asked for.
    std::optional<PrefixCache::Path> nodes;
  };
  void sort();
  Leader* find(std::int64_t admission);
  void hash_pages(PrefixStanding& standing, const PrefixTokens& tokens);
  std::int64_t shared_pages(const PrefixStanding& standing, std::int64_t pages, Leader& leader);
  bool is_known(Leader& leader, std::int64_t pages, const PrefixTokens& tokens) const;

  const CacheManager& cache_;
  std::vector<Leader> leaders_;  // in the order of their admissions
  std::int64_t pages_looked_at_ = 0;
};

}  // namespace tessera

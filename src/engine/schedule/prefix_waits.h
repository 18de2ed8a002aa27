// Decides which waiting sequences should wait for the pages of a running prompt that begins as they do.
//
//   waits.begin(running, is_shared);              // before the waiting sequences are checked
//   if (waits.should_wait(*sequence, reusable)) … // for each waiting sequence
//   waits.add(*admitted);                         // once it was admitted
//   waits.forget_nodes();                         // after pages were taken or given back
//
// A sequence waits as long as it shares more full pages with a running prompt (its leader) than the prefix cache can
// give it. The sequence is compared with each prompt once. A sequence keeps a hash for each page, over all tokens and
// images up to the page's last token, so two prompts are compared in logarithmic time. A hash collision at worst makes
// a sequence wait in vain. If nothing has changed, another call of should_wait() costs only a few operations, even for
// long prompts.
//
// Pure bookkeeping; used by one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tessera/engine/cache/prefix_cache.h"

namespace tessera {

class CacheManager;
struct Sequence;

// State that a sequence keeps between calls of should_wait().
struct PrefixStanding {
  std::vector<std::uint64_t> hashes;  // [pages hashed so far]: hash of all tokens up to the page's end
  std::int64_t compared = 0;          // number of the newest admission that this sequence was compared with
  std::int64_t leader = 0;            // admission number of the sequence that shares most pages with this one; 0: none
  std::int64_t shared = 0;            // pages shared with the leader

  // Call it when the sequence's tokens have grown, or its place in the queue has changed.
  void forget_leader() { compared = leader = shared = 0; }
};

class PrefixWaits {
 public:
  // `cache` must outlive this object.
  explicit PrefixWaits(const CacheManager& cache) : cache_(cache) {}

  // Starts a round with new leaders: the `running` sequences whose prompts are being computed and may be shared
  // (`is_shared`).
  template <class Running, class IsShared>
  void begin(const Running& running, const IsShared& is_shared) {
    leaders_.clear();
    for (const auto& sequence : running)
      if (is_shared(*sequence)) add(*sequence);
    sort();
  }
  // Adds a sequence that was admitted after all others.
  void add(Sequence& sequence) { leaders_.push_back({.sequence = &sequence, .nodes = std::nullopt}); }
  // Returns whether the sequence should wait for a leader. `reusable`: the sequence's tokens whose pages may come from
  // the prefix cache.
  bool should_wait(Sequence& sequence, const PrefixTokens& reusable);
  void forget_nodes();

  // Returns the number of pages hashed or compared so far, which is the cost of all calls of should_wait().
  std::int64_t pages_looked_at() const { return pages_looked_at_; }

 private:
  // A running sequence for whose pages other sequences may wait.
  struct Leader {
    Sequence* sequence;
    // The prompt's nodes in the prefix cache; empty until they are looked up.
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

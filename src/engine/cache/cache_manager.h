// Decides which pages of the KV cache belong to which sequence. A cache group is a set of layers whose caches keep
// tokens by the same rule: all tokens (paged, latent), the tokens of a sliding window (window), or one recurrent state
// (state). This class has one pool for each cache group, and one prefix cache over all groups. A SequenceCache holds
// the pages of one sequence.
//
//   cache.find(own, tokens);                       // finds and locks the cached prefix of the tokens
//   … cache.needed(group, own, n) <= cache.available(group) for every group …
//   cache.admit(own, n, most);                     // takes pages for n tokens in paged groups, slots in state groups
//   for each forward:
//     count = cache.fitting(own, computed, count);
//     cache.take_pages(own, n, computed + count);  // takes pages in window groups for the forward's tokens
//     … the forward is enqueued; computed += count …
//     cache.keep(own, tokens);
//     cache.leave_window(own, computed);
//   cache.release(own);
//
// A page has p tokens. In each group, a sequence of n tokens holds
//   paged, latent   ⌈n / p⌉ pages
//   window          the pages of the next token's window, at most ⌈(window - 1) / p⌉ + 1, and the pages of a prompt's
//                   chunk while the chunk is computed
//   state           one slot
//
// A checkpoint is a slot with an earlier state of a sequence, from which other sequences can continue. A state group's
// slot is copied when a sequence continues from a checkpoint, or leaves one behind where a forward ends. The copies run
// before everything else in the next forward, in the order in which they were requested. A slot that a copy will read
// can therefore be given to another sequence before the copy has run. That sequence writes the slot only after the
// copy. A forward can also store a state among its rows as a checkpoint (take_checkpoints).
//
// Pure bookkeeping; used by one thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/engine/cache/cache_pool.h"
#include "tessera/engine/cache/prefix_cache.h"
#include "tessera/ops/contract/forward_batch.h"

namespace tessera {

struct CacheOptions {
  std::vector<CacheGroupOptions> groups;  // the model's groups; at most ir::kMaxCacheGroups
  std::int64_t page_size = 16;            // tokens of a page
};

// Returns the options of a cache with one paged group of `num_pages` pages, page 0 included.
CacheOptions paged_cache(std::int64_t num_pages, std::int64_t page_size);

// The pages and slots that one sequence holds.
struct SequenceCache {
  std::array<GroupPages, ir::kMaxCacheGroups> groups;
  PrefixCache::Path path;  // nodes of the sequence's first pages, which belong to the prefix cache
  // The branch point: the number of pages that the sequence shares with earlier sequences. It is set only if no state
  // was kept at the end of these pages. 0 means that there is no branch point. Later sequences with the same beginning
  // are likely to diverge there too, so the state at the branch point is worth keeping.
  std::int64_t branch_pages = 0;

  std::int64_t cached_pages() const { return static_cast<std::int64_t>(path.size()); }
};

// Usage of one group, counted in pages, or in slots for a state group. Page 0, which is reserved for padding, is not
// counted.
struct CacheGroupStats {
  std::int64_t used_pages = 0;    // pages that running requests hold
  std::int64_t cached_pages = 0;  // pages that only the prefix cache holds; freed when they are needed
  std::int64_t usable_pages = 0;
  std::int64_t page_bytes = 0;
  double usage() const {
    return usable_pages == 0 ? 0 : static_cast<double>(used_pages) / static_cast<double>(usable_pages);
  }
};

class CacheManager {
 public:
  explicit CacheManager(CacheOptions options);
  CacheManager(const CacheManager&) = delete;
  CacheManager& operator=(const CacheManager&) = delete;

  std::size_t num_groups() const { return pools_.size(); }
  const CacheGroupOptions& group(std::size_t g) const { return pools_[g].options(); }
  std::int64_t page_size() const { return page_size_; }
  std::int64_t pages_for(std::int64_t tokens) const { return tessera::pages_for(tokens, page_size_); }
  bool has_states() const { return has_states_; }
  static constexpr std::int64_t kUnbounded = INT32_MAX;  // max_tokens() returns this if nothing bounds the length
  // Returns the length in tokens of the longest sequence that could run alone, or kUnbounded if no group's memory grows
  // with the sequence.
  std::int64_t max_tokens() const;
  CacheGroupStats stats(std::size_t g) const;

  // Returns the number of pages that are free or can be freed when they are needed.
  std::int64_t available(std::size_t g) const { return pools_[g].num_free() + prefixes_.num_evictable(g); }
  // Returns the number of pages that a sequence of `tokens` tokens needs for its admission, besides those it holds
  // already.
  std::int64_t needed(std::size_t g, const SequenceCache& own, std::int64_t tokens) const;
  // Returns the number of pages that a running sequence of `tokens` tokens is expected to take soon.
  std::int64_t headroom(std::size_t g, const SequenceCache& own, std::int64_t tokens) const;

  // The least distance in tokens from the end of the reusable prefix to a branch point. A nearer branch point is
  // ignored, because a forward that ends there, or a checkpoint there, would cost more than it saves.
  static constexpr std::int64_t kLeastBranchTokens = 64;
  // Finds the longest reusable prefix of `tokens` and the branch point, and puts both into `own`, which must be empty.
  void find(SequenceCache& own, const PrefixTokens& tokens);
  std::int64_t count_known(const PrefixTokens& tokens) const { return prefixes_.count_known(tokens); }
  // These two functions call the PrefixCache functions that have the same names.
  void follow(PrefixCache::Path& path, const PrefixTokens& tokens) const { prefixes_.follow(path, tokens); }
  bool finds_all_of(std::span<PrefixCache::Node* const> first, const PrefixTokens& tokens) const {
    return prefixes_.finds_all_of(first, tokens);
  }
  // Gives a new sequence its pages and slots. `most` is the largest number of tokens that it may reach. Precondition:
  // needed() pages of every group are available.
  void admit(SequenceCache& own, std::int64_t tokens, std::int64_t most);

  // Returns how many pages of the group are free, that is, neither held nor cached.
  std::int64_t num_free(std::size_t g) const { return pools_[g].num_free(); }
  // Returns whether enough pages are available: in paged groups for all `tokens` tokens, and in window groups for the
  // tokens before `window_end`.
  bool can_take(const SequenceCache& own, std::int64_t tokens, std::int64_t window_end) const;
  // Takes the pages that can_take() checks for. Precondition: can_take().
  void take_pages(SequenceCache& own, std::int64_t tokens, std::int64_t window_end);
  // Returns the largest n, up to `count`, for which every window group has pages for the n tokens that follow the first
  // `computed` tokens. Pages that the sequence holds and available pages both count.
  std::int64_t fitting(const SequenceCache& own, std::int64_t computed, std::int64_t count) const;
  // Gives back the pages of window groups that neither token `computed` nor any later token attends to.
  void leave_window(SequenceCache& own, std::int64_t computed);

  // Enters the full pages of `tokens` into the prefix cache. Precondition: these tokens are computed.
  void keep(SequenceCache& own, const PrefixTokens& tokens);
  // Copies the sequence's states to checkpoints at its path's last node. Skips state groups in which the node already
  // has a checkpoint, or in which no slot is free or can be freed. Precondition: the slots hold the states after the
  // path's tokens.
  void add_checkpoint(const SequenceCache& own);
  // Takes slots in which a forward stores the states of its request number `request` after `rows` rows, and appends
  // them to `to`. Skips state groups in which no slot is free or can be freed. Once the forward was submitted, call
  // enter_checkpoint() for each of them.
  void take_checkpoints(std::int64_t request, std::int64_t rows, std::vector<StateCheckpoint>& to);
  // Makes a taken slot the checkpoint after the first `tokens` tokens of the sequence. Gives the slot back if they have
  // a checkpoint already. Precondition: keep() has entered these tokens, which end with a page.
  void enter_checkpoint(const SequenceCache& own, std::int64_t tokens, const StateCheckpoint& checkpoint);
  // Gives the slots of a sequence to the prefix cache as checkpoints at the last node of its path, without a copy. Call
  // it when the sequence stops running.
  void leave_checkpoint(SequenceCache& own);
  void release(SequenceCache& own);

  // Retains the text of a sequence in the prefix cache. The first `prompt_tokens` tokens of the text are the prompt.
  // Call it when the sequence ends, before release().
  void retain(const SequenceCache& own, const RetentionHint& hint, std::int64_t prompt_tokens, Retentions::Time now);
  // These four functions call the PrefixCache functions that have the same names.
  bool release_session(const std::string& session) { return prefixes_.release_session(session); }
  void end_retentions(Retentions::Time now) { prefixes_.end_retentions(now); }
  bool retains() const { return prefixes_.retains(); }
  RetentionStats retention_stats() const { return prefixes_.retention_stats(); }

  // Appends to `copies` the copies that were requested since the last call.
  void take_copies(std::vector<SlotCopy>& copies);
  // Drops all checkpoints, also those that were taken and not entered. Call it after a failure, since requested copies
  // may not have happened.
  void forget_checkpoints();
  // Drops everything in the prefix cache that no sequence uses.
  void flush_prefixes() { prefixes_.flush(); }
  // Calls PrefixCache::observe().
  void observe(CacheEventLog* log) { prefixes_.observe(log); }

 private:
  std::int64_t missing(std::size_t g, const SequenceCache& own, std::int64_t tokens, std::int64_t window_end) const;
  PageId take(std::size_t g);

  std::int64_t page_size_;
  std::vector<CachePool> pools_;
  PrefixCache prefixes_;
  bool has_states_ = false;
  bool has_windows_ = false;
  std::vector<SlotCopy> copies_;
  std::vector<StateCheckpoint> taken_;  // by take_checkpoints(), and not entered yet
};

}  // namespace tessera
